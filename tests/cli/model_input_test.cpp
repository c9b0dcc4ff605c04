// SPDX-License-Identifier: Apache-2.0
// Damaged and foreign model folders and corpora: each is refused with the file, the key and what to do; through the
// real program with exit code 2, leaving nothing (every third: each start of it loads libtorch).
#include <filesystem>
#include <functional>

#include <gtest/gtest.h>

#include "adapters/formats/json.hpp"
#include "adapters/formats/safetensors.hpp"
#include "backends/torch/weights_io.hpp"
#include "tests/cli/run_darl.hpp"
#include "tests/formats/bad_headers.hpp"
#include "tests/formats/temp_folder.hpp"

namespace {

using namespace darlcore;
using darl::testing::run_darl;
using darlcore::testing::file_text;
using darlcore::testing::temp_folder;
using darlcore::testing::write_text;
namespace fs = std::filesystem;

class model_input : public ::testing::Test {
protected:
    static void SetUpTestSuite() {
        temp = std::make_unique<temp_folder>();
        const auto made = run_darl({"export", "--flavour", "debug-1m", "--seed", "1", "--out", temp->file("good")});
        ASSERT_EQ(made.status, 0) << made.err;
        write_text(temp->file("ids.json"), "[[1,2,3]]");
    }
    static void TearDownTestSuite() { temp.reset(); }

    // A copy of the good folder with the key of config.json set to a JSON text.
    static void set_key(const std::string& key, const std::string& to) {
        auto config = json::parse(file_text(temp->file("bad/config.json"))).value();
        config.set(key, json::parse(to).value());
        write_text(temp->file("bad/config.json"), json::dump(config));
    }
    // The weights written anew with another list of tensors (zeros).
    static void rewrite(const std::function<void(std::vector<tensor_spec>&)>& change) {
        const std::string path = temp->file("bad/model.safetensors");
        std::vector<tensor_spec> specs;
        const auto header = formats::safetensors_reader::open(path).value().header();
        for (const auto& entry : header.entries) specs.push_back(entry.spec);
        change(specs);
        fs::remove(path);
        auto writer = formats::safetensors_writer::create(path, specs, {}).value();
        const std::vector<std::byte> zeros(writer.data_bytes());
        writer.write(zeros).value();
        writer.finish().value();
    }

    static std::unique_ptr<temp_folder> temp;
};
std::unique_ptr<temp_folder> model_input::temp;

// What the commands that read a model do first; the error's text.
std::string reading_fails(const std::string& folder) {
    const auto config = models::read_folder_config(folder);
    if (!config) return config.error().context;
    const auto specs = models::parameter_specs(*config);
    std::size_t elements = 0;
    for (const auto& s : specs) elements += static_cast<std::size_t>(s.elements());
    std::vector<float> flat(elements);
    const auto read = models::read_folder_weights(folder, specs, flat);
    return read ? "" : read.error().context;
}

TEST_F(model_input, that_is_damaged_or_of_another_model_is_refused_by_name) {
    struct damage {
        const char* file;
        const char* key;
        const char* fix;
        std::function<void()> make;
    };
    const std::string weights = temp->file("bad/model.safetensors");
    const std::string config = temp->file("bad/config.json");
    const std::vector<damage> damages = {
        {"config.json", "cannot open", "give a model folder", [&] { fs::remove(config); }},
        {"config.json", "JSON", "copy the file again", [&] { write_text(config, "{"); }},
        {"config.json", "rope_scaling", "use a model that does without",
         [] { set_key("rope_scaling", R"({"type":"linear","factor":2.0})"); }},
        {"config.json", "surprise", "remove it if", [] { set_key("surprise", "1"); }},
        {"config.json", "attention_bias", "use a model that does without", [] { set_key("attention_bias", "true"); }},
        {"config.json", "hidden_act", "must be", [] { set_key("hidden_act", "\"relu\""); }},
        {"config.json", "num_attention_heads", "must be", [] { set_key("num_attention_heads", "0"); }},
        {"config.json", "model_type", "use a model of", [] { set_key("model_type", "\"bert\""); }},
        {"model.safetensors", "o_proj", "config.json", [] { set_key("num_attention_heads", "8"); }},
        {"model.safetensors", "model.layers.3", "config.json", [] { set_key("num_hidden_layers", "3"); }},
        {"model.safetensors", "cannot open", "give a model folder", [&] { fs::remove(weights); }},
        {"model.safetensors", "has 0 bytes", "copy the file again", [&] { write_text(weights, ""); }},
        {"model.safetensors", "beyond the end", "copy the file again",
         [&] { fs::resize_file(weights, fs::file_size(weights) / 2); }},
        {"model.safetensors", "header", "copy the file again",
         [&] { write_text(weights, std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}")); }},
        {"model.safetensors", "model.norm.weight", "export the weights again",
         [] {
             rewrite(
                 [](auto& all) { std::erase_if(all, [](const auto& t) { return t.name == "model.norm.weight"; }); });
         }},
        {"model.safetensors", "zzz", "config.json",
         [] { rewrite([](auto& all) {
                  all.push_back({"zzz", dtype::f32, {2}});
              }); }},
        {"model.safetensors", "is i64", "convert", [] { rewrite([](auto& all) { all.front().dtype = dtype::i64; }); }},
        {"model.safetensors", "has shape", "config.json",
         [] { rewrite([](auto& all) { all.back().shape.back() += 1; }); }},
    };
    for (std::size_t i = 0; i < damages.size(); ++i) {
        fs::remove_all(temp->file("bad"));
        fs::copy(temp->file("good"), temp->file("bad"));
        damages[i].make();
        const std::string said = reading_fails(temp->file("bad"));
        for (const char* named : {damages[i].file, damages[i].key, damages[i].fix})
            EXPECT_NE(said.find(named), std::string::npos) << i << ": " << named << " in " << said;
        if (i % 3 != 2) continue;
        const auto seen = run_darl({"logits", "--model", temp->file("bad"), "--ids", temp->file("ids.json")});
        EXPECT_EQ(seen.status, 2) << i << ": " << seen.err;
        EXPECT_EQ(seen.out, "");
        EXPECT_EQ(seen.err, "darl: " + said + "\n") << i;
    }
}

// The table of malformed headers as weights of a model: all through what the commands read with, some through the
// program (each start of it loads libtorch; `darl merge` takes them all).
TEST_F(model_input, with_a_malformed_header_is_refused_by_name) {
    fs::remove_all(temp->file("bad"));
    fs::copy(temp->file("good"), temp->file("bad"));
    const auto table = darlcore::testing::bad_headers();
    for (std::size_t i = 0; i < table.size(); ++i) {
        write_text(temp->file("bad/model.safetensors"), darlcore::testing::file_of(table[i]));
        const std::string said = reading_fails(temp->file("bad"));
        for (const char* named : {"bad/model.safetensors: ", table[i].reason, "copy the file again"})
            EXPECT_NE(said.find(named), std::string::npos) << table[i].about << ": " << said;
        if (i % 40 != 7) continue;
        for (const char* command : {"logits", "sample"}) {
            const auto seen = run_darl({command, "--model", temp->file("bad"), command[0] == 'l' ? "--ids" : "--prompt",
                                        temp->file("ids.json")});
            EXPECT_EQ(seen.status, 2) << table[i].about;
            EXPECT_EQ(seen.out, "");
            EXPECT_EQ(seen.err, "darl: " + said + "\n");
        }
    }
}

TEST_F(model_input, of_ids_beyond_the_vocabulary_is_refused) {
    write_text(temp->file("high.json"), "[[1,512]]");
    const auto seen = run_darl({"logits", "--model", temp->file("good"), "--ids", temp->file("high.json")});
    EXPECT_EQ(seen.status, 2);
    EXPECT_NE(seen.err.find("high.json: id 512"), std::string::npos) << seen.err;
}

TEST_F(model_input, of_a_corpus_with_another_vocabulary_or_a_cut_shard_is_refused) {
    write_text(temp->file("text.txt"), std::string(400, 'a'));
    const auto tokenize = [&](const std::string& tokenizer, const std::string& out) {
        const auto made = run_darl({"tokenize", "--input", temp->file("text.txt"), "--tokenizer", tokenizer,
                                    "--seq-len", "7", "--out", temp->file(out)});
        ASSERT_EQ(made.status, 0) << made.err;
    };
    tokenize(DARLCORE_TEST_DATA "/tokenizers/qwen.tokenizer.json", "wide");
    const auto wide = run_darl({"eval", "--model", temp->file("good"), "--data", temp->file("wide")});
    EXPECT_EQ(wide.status, 2) << wide.err;
    EXPECT_NE(wide.err.find("has a vocabulary of 768"), std::string::npos) << wide.err;
    tokenize("bytes", "cut");
    EXPECT_EQ(run_darl({"eval", "--model", temp->file("good"), "--data", temp->file("cut")}).status, 0);
    fs::resize_file(temp->file("cut/tokens-00000.bin"), 100);
    const auto cut = run_darl({"eval", "--model", temp->file("good"), "--data", temp->file("cut")});
    EXPECT_EQ(cut.status, 2) << cut.err;
    EXPECT_NE(cut.err.find("tokens-00000.bin"), std::string::npos) << cut.err;
    EXPECT_NE(cut.err.find("copy the shard again"), std::string::npos) << cut.err;
    tokenize("bytes", "edited");
    auto manifest = json::parse(file_text(temp->file("edited/manifest.json"))).value();
    manifest.set("window", 9);
    write_text(temp->file("edited/manifest.json"), json::dump(manifest));
    const auto edited = run_darl({"eval", "--model", temp->file("good"), "--data", temp->file("edited")});
    EXPECT_EQ(edited.status, 2) << edited.err;
    for (const char* named : {"edited/manifest.json", "window is 9", "copy the corpus again"})
        EXPECT_NE(edited.err.find(named), std::string::npos) << edited.err;
}

TEST_F(model_input, that_cannot_be_exported_leaves_no_folder) {
    write_text(temp->file("c.json"), R"({"model_type":"qwen3","sliding_window":4,"use_sliding_window":true})");
    const auto before = std::distance(fs::directory_iterator(temp->path()), {});
    const std::string out = temp->file("exported");
    for (const auto& [arguments, named] : std::vector<std::pair<std::vector<std::string>, std::string>>{
             {{"--config-json", temp->file("c.json")}, "c.json: key '"},
             {{"--config-json", temp->file("none.json")}, "none.json"},
             {{"--flavour", "debug-2m"}, "debug-1m"},
             {{"--state-dir", temp->file("no-state")}, "no-state"},
             {{"--server", "http://127.0.0.1:1/", "--token-file", temp->file("no-token")}, "no-token"},
             {{"--flavour", "debug-1m", "--tokenizer", temp->file("no-tokenizer")}, "no-tokenizer"},
             {{}, "--flavour"}}) {
        auto call = arguments;
        call.insert(call.begin(), "export");
        call.insert(call.end(), {"--out", out});
        const auto seen = run_darl(call);
        EXPECT_EQ(seen.status, 2) << named << ": " << seen.err;
        EXPECT_NE(seen.err.find(named), std::string::npos) << named << ": " << seen.err;
        EXPECT_EQ(std::distance(fs::directory_iterator(temp->path()), {}), before) << named;
    }
}

TEST_F(model_input, of_bad_tokenizers_is_refused_by_file_and_key) {
    write_text(temp->file("text.txt"), std::string(400, 'a'));
    auto document =
        json::parse(file_text(DARLCORE_TEST_DATA "/tokenizers/gpt2.tokenizer.json"), json::limits{1U << 20U, 16})
            .value();
    document.set("normalizer", json::make_object({{"type", "Lowercase"}}));
    write_text(temp->file("t.json"), json::dump(document));
    const auto seen = run_darl({"tokenize", "--input", temp->file("text.txt"), "--tokenizer", temp->file("t.json"),
                                "--seq-len", "7", "--out", temp->file("never")});
    EXPECT_EQ(seen.status, 2);
    EXPECT_NE(seen.err.find("t.json: normalizer.type: `Lowercase` is not implemented"), std::string::npos) << seen.err;
    EXPECT_FALSE(fs::exists(temp->file("never")));
}

}  // namespace
