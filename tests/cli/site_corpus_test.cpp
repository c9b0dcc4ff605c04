// SPDX-License-Identifier: Apache-2.0
// Real programs: darl serve, darl train as a site, darl export.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>

#include <gtest/gtest.h>

#include "adapters/cli/child_process.hpp"
#include "adapters/cli/run_config.hpp"
#include "adapters/formats/json.hpp"
#include "tests/cli/run_darl.hpp"
#include "tests/formats/temp_folder.hpp"

namespace {

using namespace darlcore;
using namespace std::chrono_literals;
using darl::testing::run_darl;
using darlcore::testing::file_text;
using darlcore::testing::temp_folder;
using darlcore::testing::write_text;

class site_corpora : public ::testing::Test {
protected:
    // 24 windows of 33 bytes; `word` is all that differs between two texts.
    void make_corpus(const std::string& name, const std::string& word) {
        std::string text;
        while (text.size() < 24 * 33) text += "a block is held by one site, " + word + "; ";
        text.resize(24 * 33 - 2);
        write_text(temp_.file(name + ".txt"), text);
        const auto made = run_darl({"tokenize", "--input", temp_.file(name + ".txt"), "--tokenizer", "bytes",
                                    "--seq-len", "32", "--out", temp_.file(name)});
        ASSERT_EQ(made.status, 0) << made.err;
    }

    [[nodiscard]] std::string run_file(const std::string& corpus) const {
        darl::run_config c;
        c.flavour = "debug-1m";
        c.manifest = temp_.file(corpus) + "/manifest.json";
        c.work_dir = temp_.file("work-" + corpus);
        c.seq_len = 32;
        c.block_size = 4;
        c.inner_steps = 3;
        c.batch = 4;
        c.threads = 1;
        c.eval_every = 0;
        c.keepalive_s = 1;
        c.give_up_s = 60;
        std::filesystem::create_directories(c.work_dir);
        write_text(temp_.file(corpus + ".toml"), darl::run_config_text(c));
        return temp_.file(corpus + ".toml");
    }

    // A server that knows the size of the corpus, not which one it is: the first site says that.
    void start_server(const std::string& state) {
        darl::child_process::options o;
        o.argv = {DARL_PROGRAM,   "serve",       "--state-dir",   temp_.file(state),
                  "--listen",     "127.0.0.1:0", "--num-samples", "24",
                  "--block-size", "4",           "--no-sync"};
        o.read_stdout = true;
        o.stderr_file = temp_.file(state + ".log");
        auto child = darl::child_process::start(o);
        ASSERT_TRUE(child);
        server_.emplace(*std::move(child));
        const auto line = server_->read_line(60s);
        ASSERT_TRUE(line) << file_text(o.stderr_file);
        url_ = *json::parse(*line).value().at("url").as_string();
    }
    void stop_server() {
        server_->signal(SIGTERM);
        EXPECT_EQ(server_->wait(60s), 0);
    }

    darl::testing::darl_outcome site(const std::string& name, const std::string& corpus) {
        return run_darl({"train", "--config", run_file(corpus), "--server", url_, "--site", name});
    }

    temp_folder temp_;
    std::optional<darl::child_process> server_;
    std::string url_;
};

json::value manifest_of(const temp_folder& temp, const std::string& corpus) {
    return json::parse(file_text(temp.file(corpus) + "/manifest.json")).value();
}

// Red when the content digest is left out of the registration: then only sizes and tokenizer are compared.
TEST_F(site_corpora, of_equal_geometry_and_other_tokens_refuse_each_other) {
    make_corpus("left", "the left");
    make_corpus("copy", "the left");
    make_corpus("other", "the next");
    EXPECT_EQ(manifest_of(temp_, "left").at("corpus"), manifest_of(temp_, "other").at("corpus"));
    EXPECT_FALSE(manifest_of(temp_, "left").at("corpus_content") == manifest_of(temp_, "other").at("corpus_content"));
    for (const auto& [first, second] : {std::pair("left", "other"), std::pair("other", "left")}) {
        start_server(std::string("state-") + first);
        const auto trained = site("a", first);
        EXPECT_EQ(trained.status, 0) << trained.err;
        const auto refused = site("b", second);
        EXPECT_EQ(refused.status, 2) << refused.err;
        EXPECT_NE(refused.err.find("tokenize again or copy the shards"), std::string::npos) << refused.err;
        stop_server();
    }
    start_server("state-left");  // the pin outlives the server
    EXPECT_EQ(site("b", "other").status, 2);
    const auto same = site("c", "copy");
    EXPECT_EQ(same.status, 0) << same.err;
    stop_server();
}

TEST_F(site_corpora, weights_of_a_run_are_exported_from_its_server_and_from_its_state) {
    make_corpus("left", "the left");
    start_server("state");
    const auto early = run_darl({"export", "--server", url_, "--out", temp_.file("early")});
    EXPECT_EQ(early.status, 2);
    EXPECT_NE(early.err.find("no weights yet"), std::string::npos) << early.err;
    ASSERT_EQ(site("a", "left").status, 0);
    const auto fetched = run_darl({"export", "--json", "--server", url_, "--out", temp_.file("fetched")});
    ASSERT_EQ(fetched.status, 0) << fetched.err;
    const auto older = run_darl({"export", "--server", url_, "--generation", "99", "--out", temp_.file("older")});
    EXPECT_EQ(older.status, 2) << older.err;
    EXPECT_NE(older.err.find("not 99"), std::string::npos) << older.err;
    const auto taken = run_darl({"export", "--server", url_, "--out", temp_.file("fetched")});
    EXPECT_EQ(taken.status, 2) << taken.err;
    stop_server();
    const auto stated =
        run_darl({"export", "--json", "--state-dir", temp_.file("state"), "--out", temp_.file("stated")});
    ASSERT_EQ(stated.status, 0) << stated.err;
    EXPECT_EQ(file_text(temp_.file("fetched/config.json")), file_text(temp_.file("stated/config.json")));
    const auto one = json::parse(fetched.out).value();
    const auto two = json::parse(stated.out).value();
    EXPECT_EQ(one.at("generation"), two.at("generation"));
    EXPECT_GT(one.at("generation").as_u64(), 0U);
    EXPECT_EQ(one.at("parameters"), two.at("parameters"));
    // What sites get is the bf16 of what the server keeps: upper halves of the same numbers, rounded.
    const std::string wire = file_text(temp_.file("fetched/model.safetensors"));
    const std::string full = file_text(temp_.file("stated/model.safetensors"));
    ASSERT_EQ(wire.size(), full.size());
    for (std::size_t i = wire.size() - 4 * 4096; i < wire.size(); i += 4) {
        float a = 0, b = 0;
        std::memcpy(&a, wire.data() + i, 4);
        std::memcpy(&b, full.data() + i, 4);
        EXPECT_NEAR(a, b, std::abs(b) * 0x1p-8) << i;
    }
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(temp_.path()), {}), 8)
        << "left.txt, left, left.toml, work-left, state, state.log, fetched, stated: no staging file is left";
}

}  // namespace
