// SPDX-License-Identifier: Apache-2.0
// How long sites that died, sleep or hang hold up the others: real server, real site processes, real time.
#include <poll.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "adapters/formats/safetensors.hpp"
#include "backends/curl/blob_transfer.hpp"
#include "backends/storage/sha256.hpp"
#include "darlcore/hex.hpp"
#include "darlcore/merge/model_layout.hpp"
#include "tests/asio/serve_fixture.hpp"

namespace {

using namespace darlcore;
using http::testing::get;
using http::testing::post;
using http::testing::served;
using http::testing::temporary_folder;
using steady = std::chrono::steady_clock;

constexpr std::uint64_t blocks = 96;
constexpr std::uint64_t block_size = 4;
constexpr std::uint64_t windows = blocks * block_size;

double seconds_since(steady::time_point t) { return std::chrono::duration<double>(steady::now() - t).count(); }

/// What is left open of the deadlines is hours away: only the rule under test can close a round in time.
std::vector<std::string> server_arguments(std::initializer_list<std::string> more) {
    std::vector<std::string> all{"--num-samples",
                                 std::to_string(windows),
                                 "--block-size",
                                 std::to_string(block_size),
                                 "--seed",
                                 "1",
                                 "--outer.eta=1",
                                 "--outer.beta=0",
                                 "--lease.min_ttl_s=1",
                                 "--lease.default_ttl_s=2",
                                 "--round.keepalive_s=0.5",
                                 "--train.inner_steps=1",
                                 "--eval.every=0"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
}

darl::child_process start_site(const std::string& server, const temporary_folder& folder, const std::string& site,
                               const std::string& seconds_per_window) {
    darl::child_process::options o;
    o.argv = {DARL_PROGRAM,
              "simulate-site",
              "--server",
              server,
              "--site",
              site,
              "--dir",
              folder / site,
              "--num-samples",
              std::to_string(windows),
              "--block-size",
              std::to_string(block_size),
              "--seed",
              "1",
              "--seconds-per-window",
              seconds_per_window};
    o.stderr_file = folder / (site + ".log");
    return darl::child_process::start(o).value();
}

/// A site of the run by hand: it can stop at any moment.
class hand_site {
public:
    hand_site(const served& server, std::string name) : client_(server.client()), name_(std::move(name)) {}

    client::json_answer ask(const std::string& path,
                            std::initializer_list<std::pair<std::string_view, json::value>> more) {
        json::value body = json::make_object({{"cluster", name_}, {"incarnation", to_text(me_)}});
        for (const auto& [key, value] : more) body.set(key, value);
        return post(client_, path, body);
    }
    void join() {
        ASSERT_EQ(ask("/register", {{"protocol", 2}, {"ranks", 1}}).status, 200);
        const tensor_spec table{"windows", dtype::f32, {windows}};
        const auto joined = ask("/round/join", {{"layout_digest", to_hex(model_layout::make({table})->digest())},
                                                {"schedule_digest", "none"},
                                                {"seq_len", 1},
                                                {"codecs", json::value(json::array{json::value("f32")})}});
        ASSERT_EQ(joined.status, 200) << json::dump(joined.body);
        run_id_ = *joined.body.at("run_id").as_string();
    }
    /// Also a sign of life. The generation that it is to train from, when it is told to.
    std::optional<std::uint64_t> poll(std::string_view state) {
        const auto told = ask("/round/poll", {{"have_generation", 0}, {"state", state}, {"wait_s", 0.0}});
        if (told.status != 200 || *told.body.at("action").as_string() != "train") return std::nullopt;
        return told.body.at("generation").as_u64();
    }
    /// Takes four blocks; what a contribution would claim of them.
    json::value claims() {
        json::value out = json::array{};
        const auto got = ask("/acquire", {{"blocks", 4}});
        if (got.status != 200 || *got.body.at("status").as_string() != "granted") return out;
        for (const json::value& l : *got.body.at("leases").as_array()) {
            EXPECT_EQ(ask("/reserve", {{"lease", l.at("lease_id")}, {"token", l.at("token")}, {"through", l.at("end")}})
                          .status,
                      200);
            out.push_back(json::make_object({{"lease", l.at("lease_id")},
                                             {"token", l.at("token")},
                                             {"from", l.at("start")},
                                             {"through", l.at("end")}}));
        }
        return out;
    }
    /// The digest of a delta that is stored at the server.
    std::string upload(const std::string& path, std::uint64_t base) {
        const tensor_spec table{"windows", dtype::f32, {windows}};
        const std::vector<float> values(windows, 1.0F);
        auto out = formats::safetensors_writer::create(path, std::span(&table, 1),
                                                       {{"darl.run_id", run_id_},
                                                        {"darl.site", name_},
                                                        {"darl.base_generation", std::to_string(base)},
                                                        {"darl.tokens", "16"},
                                                        {"darl.steps", "1"}})
                       .value();
        EXPECT_TRUE(out.write(std::as_bytes(std::span(values))) && out.finish());
        std::ifstream in(path, std::ios::binary);
        const std::string bytes{std::istreambuf_iterator<char>(in), {}};
        client::upload_job job;
        job.path = path;
        job.sha256 = storage::sha256_hex(bytes);
        job.bytes = bytes.size();
        job.codec = "f32";
        job.base = generation{base};
        job.who = lease::caller{{name_}, me_};
        const auto sent = client::upload_blob(client_, job, {[] { return 0.5; }, [](double) { return true; }});
        EXPECT_TRUE(sent) << to_text(sent.error());
        return job.sha256;
    }

private:
    client::http_client client_;
    std::string name_;
    incarnation me_{0x0123456789abcdefULL, 0xfedcba9876543210ULL};
    std::string run_id_;
};

json::value round_of(client::http_client& c) { return get(c, "/round").body; }
std::uint64_t generation_of(const json::value& round) { return round.at("generation").as_u64().value_or(0); }

bool trains(const json::value& round, std::string_view site) {
    for (const json::value& p : *round.at("participants").as_array())
        if (*p.at("site").as_string() == site && *p.at("status").as_string() == "training") return true;
    return false;
}

void wait_a_little() { ::poll(nullptr, 0, 20); }

/// Each window was trained into the model exactly once.
void expect_a_whole_model(const std::string& state) {
    std::string name;
    std::ifstream(state + "/model/CURRENT") >> name;
    const auto model = formats::safetensors_reader::open(state + "/model/" + name + "/global.safetensors");
    ASSERT_TRUE(model) << to_text(model.error());
    std::vector<float> table(windows);
    ASSERT_TRUE(model->read_all(*model->header().find("windows"), std::as_writable_bytes(std::span(table))));
    // eta 1, beta 0, all of a phase of one site is its share of the merge: a window counts once when it is not zero
    for (std::uint64_t w = 0; w < windows; ++w) ASSERT_GT(table[w], 0.0F) << "window " << w;
}

TEST(round_liveness, a_site_killed_and_one_asleep_hold_a_round_up_for_one_live_window) {
    const temporary_folder folder;
    constexpr double live_window_s = 3;
    served server(folder / "state", server_arguments({"--round.live_window_s=3"}));
    ASSERT_TRUE(server.up()) << server.log();
    auto status = server.client();
    auto alpha = start_site(server.url(), folder, "alpha", "0.002");
    while (*round_of(status).at("state").as_string() != "open") wait_a_little();
    auto beta = start_site(server.url(), folder, "beta", "0.5");
    hand_site gamma(server, "gamma");
    ASSERT_NO_FATAL_FAILURE(gamma.join());
    const json::value claims = gamma.claims();
    ASSERT_GE(claims.size(), 1U);

    // all three are in one round, alpha is done with it
    std::uint64_t base = 0;
    for (json::value round;; wait_a_little()) {
        if (const auto told = gamma.poll("idle")) base = *told;
        round = round_of(status);
        ASSERT_TRUE(beta.running() && alpha.running());
        if (trains(round, "beta") && trains(round, "gamma") && round.at("pledged").as_u64() == 1U) break;
    }
    const std::string delta = gamma.upload(folder / "late", base);
    ASSERT_TRUE(gamma.poll("training").value_or(base) == base);
    ASSERT_EQ(generation_of(round_of(status)), base) << "without the two the round cannot close";
    beta.kill();
    const auto silent = steady::now();
    while (generation_of(round_of(status)) == base) wait_a_little();
    const double held_s = seconds_since(silent);
    std::printf("the round went on after %.2f s, live window %.0f s\n", held_s, live_window_s);
    EXPECT_GT(held_s, live_window_s - 1) << "a live site is waited for";
    EXPECT_LT(held_s, live_window_s + 1 + 4) << "4 s for a busy machine; the next deadline is hours away";

    const auto late = gamma.ask("/round/contribute", {{"id", "late-1"},
                                                      {"base_generation", base},
                                                      {"sha256", delta},
                                                      {"codec", "f32"},
                                                      {"tokens", 16},
                                                      {"steps", 1},
                                                      {"loss_sum", 1.0},
                                                      {"loss_count", 1},
                                                      {"leases", claims}});
    EXPECT_EQ(late.status, 409) << json::dump(late.body);
    EXPECT_TRUE(late.code == "stale_generation" || late.code == "round_closed") << late.code;
    EXPECT_EQ(alpha.wait(std::chrono::seconds(120)), std::optional(0)) << "trains what the two held as well";
    EXPECT_EQ(get(status, "/status").body.at("committed").as_u64(), blocks);
    expect_a_whole_model(folder / "state");
    EXPECT_EQ(server.stop(), 0) << server.log();
}

// It beats and never contributes: two dues, then nobody waits for it any more.
TEST(round_liveness, a_site_that_hangs_but_beats_costs_two_dues_in_all) {
    const temporary_folder folder;
    constexpr double due_s = 3 + 1;  // of a site without an estimate, and the gap behind the others
    served server(folder / "state",
                  server_arguments({"--round.live_window_s=60", "--round.budget=false", "--round.unknown_phase_s=2",
                                    "--round.unknown_transfer_s=1", "--round.overdue_gap_s=1"}));
    ASSERT_TRUE(server.up()) << server.log();
    auto status = server.client();
    auto alpha = start_site(server.url(), folder, "alpha", "0.0005");
    while (*round_of(status).at("state").as_string() != "open") wait_a_little();
    hand_site beta(server, "beta");
    ASSERT_NO_FATAL_FAILURE(beta.join());
    std::vector<std::uint64_t> dues;  // rounds that it was told to train in
    const auto begun = steady::now();
    const std::uint64_t first = generation_of(round_of(status));
    while (alpha.running()) {
        // takes every task it is given
        const auto told = beta.poll("idle");
        if (told && (dues.empty() || dues.back() != *told)) dues.push_back(*told);
        wait_a_little();
    }
    const double took_s = seconds_since(begun);
    ASSERT_EQ(alpha.wait(std::chrono::seconds(1)), std::optional(0));
    const auto round = round_of(status);
    const std::uint64_t rounds = generation_of(round) - first;
    std::printf("%.1f s for %llu rounds, %zu of them with the hung site; a due is %.0f s\n", took_s,
                static_cast<unsigned long long>(rounds), dues.size(), due_s);
    for (const json::value& m : *round.at("members").as_array())
        if (*m.at("site").as_string() == "beta") {
            EXPECT_TRUE(*m.at("lagging").as_bool());
        }
    ASSERT_GE(rounds, 5U);
    EXPECT_GT(took_s, due_s - 1) << "it was waited for";
    EXPECT_LT(took_s, 2 * due_s + 0.7 * static_cast<double>(rounds) + 2)
        << "two dues, and what the rounds themselves take";
    EXPECT_LT(took_s, due_s * static_cast<double>(rounds)) << "that is what it would cost without the rule";
    EXPECT_EQ(get(status, "/status").body.at("committed").as_u64(), blocks);
}

}  // namespace
