// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/model_spec.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "adapters/formats/json.hpp"

namespace {

using namespace darlcore::models;
using darlcore::errc;
namespace json = darlcore::json;

TEST(model_spec, parameter_counts_of_all_flavours_are_pinned) {
    const std::pair<const char*, std::int64_t> pinned[] = {
        {"0.6B", 596'049'920},   {"1.7B", 1'720'574'976}, {"4B", 4'022'468'096},
        {"8B", 8'190'735'360},   {"14B", 14'768'307'200}, {"32B", 32'762'123'264},
        {"debug-1m", 1'049'984}, {"debug-3m", 2'902'848}, {"debug-10m", 10'000'192}};
    ASSERT_EQ(flavour_names().size(), std::size(pinned));
    for (const auto& [name, count] : pinned) EXPECT_EQ(parameter_count(*flavour(name)), count) << name;
}

TEST(model_spec, tied_weights_are_counted_once) {
    model_config c = *flavour("0.6B", 131'328);
    EXPECT_EQ(parameter_count(c), 574'947'328);
    EXPECT_EQ(parameter_specs(c).size(), 310U);
    c.tied = false;
    EXPECT_EQ(parameter_count(c), 709'427'200);
}

TEST(model_spec, resnet18_has_the_known_count_and_untrained_statistics_beside_it) {
    model_config c;
    c.kind = architecture::resnet18;
    EXPECT_EQ(parameter_count(c), 11'173'962);
    const auto specs = parameter_specs(c);
    EXPECT_EQ(std::count_if(specs.begin(), specs.end(), [](const auto& s) { return !s.trained; }), 40);
}

TEST(model_spec, layout_order_is_ascending_bytes_of_the_name) {
    for (const char* name : {"debug-1m", "8B"}) {
        const auto specs = parameter_specs(*flavour(name));
        EXPECT_TRUE(
            std::is_sorted(specs.begin(), specs.end(), [](const auto& a, const auto& b) { return a.name < b.name; }));
    }
}

TEST(model_spec, weight_decay_is_for_matrices_only) {
    for (const auto& spec : parameter_specs(*flavour("debug-1m"))) {
        EXPECT_EQ(spec.decays(), spec.name.find("norm") == std::string::npos) << spec.name;
    }
}

TEST(model_spec, an_unknown_flavour_names_those_that_exist) {
    const auto missing = flavour("debug-2m");
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().code, errc::not_found);
    EXPECT_NE(missing.error().context.find("debug-3m"), std::string::npos);
}

TEST(config_json, own_text_reads_back_equal_for_every_kind) {
    model_config llama = *flavour("debug-1m");
    llama.kind = architecture::llama;
    llama.rope_theta = 12345.0;
    llama.bos_id = 1;
    model_config gpt2;
    gpt2.kind = architecture::gpt2;
    gpt2.vocab_size = 96;
    gpt2.hidden_size = 32;
    gpt2.layers = 2;
    gpt2.heads = gpt2.kv_heads = 4;
    gpt2.head_dim = 8;
    gpt2.ffn_size = 128;
    gpt2.positions_max = 64;
    gpt2.norm_eps = 1e-5;
    gpt2.rope_theta = 1e4;
    model_config vision;
    vision.kind = architecture::resnet18;
    for (const model_config& c : {*flavour("4B"), llama, gpt2}) {
        const auto again = parse_config(config_text(c), "config.json");
        ASSERT_TRUE(again) << to_text(again.error());
        EXPECT_EQ(*again, c);
    }
    const auto again = parse_config(config_text(vision), "config.json");
    ASSERT_TRUE(again) << to_text(again.error());
    EXPECT_EQ(again->classes, 10);
}

json::value base_document() { return *json::parse(config_text(*flavour("debug-1m"))); }

TEST(config_json, both_spellings_of_the_rotary_base_are_read) {
    json::value older = base_document();
    auto& members = *older.as_object();
    std::erase_if(members, [](const auto& m) { return m.first == "rope_parameters" || m.first == "dtype"; });
    older.set("rope_theta", 5000);
    EXPECT_EQ(parse_config(json::dump(older), "c")->rope_theta, 5000.0);
    json::value newer = base_document();
    std::erase_if(*newer.as_object(),
                  [](const auto& m) { return m.first == "rope_theta" || m.first == "torch_dtype"; });
    newer.set("rope_parameters", json::make_object({{"rope_theta", 7000.0}, {"rope_type", "default"}}));
    EXPECT_EQ(parse_config(json::dump(newer), "c")->rope_theta, 7000.0);
}

struct refused_case {
    const char* key;
    const char* json_value;
    errc code;
};

TEST(config_json, a_setting_that_changes_the_mathematics_is_refused_by_name) {
    const refused_case cases[] = {
        {"rope_scaling", R"({"rope_type":"yarn","factor":4.0})", errc::unsupported},
        {"rope_parameters", R"({"rope_theta":1e6,"rope_type":"linear","factor":2})", errc::unsupported},
        {"attention_bias", "true", errc::unsupported},
        {"attention_dropout", "0.1", errc::unsupported},
        {"hidden_act", "\"relu\"", errc::unsupported},
        {"layer_types", R"(["full_attention","sliding_attention"])", errc::unsupported},
        {"quantization_config", "{}", errc::unsupported},
        {"partial_rotary_factor", "0.5", errc::unsupported},
        {"vocab_size", "-3", errc::invalid_argument},
        {"num_hidden_layers", "\"four\"", errc::invalid_argument},
        {"rms_norm_eps", "-1.0", errc::invalid_argument},
        {"logit_softcap", "30.0", errc::unknown_key},
        {"num_key_value_heads", "3", errc::invalid_argument},
    };
    for (const refused_case& c : cases) {
        json::value document = base_document();
        document.set(c.key, *json::parse(c.json_value));
        const auto refused = parse_config(json::dump(document), "some/config.json");
        ASSERT_FALSE(refused) << c.key;
        EXPECT_EQ(refused.error().code, c.code) << c.key << ": " << refused.error().context;
        EXPECT_NE(refused.error().context.find("some/config.json"), std::string::npos) << c.key;
        EXPECT_NE(refused.error().context.find(c.key), std::string::npos) << refused.error().context;
    }
}

TEST(config_json, a_sliding_window_is_refused_only_when_it_is_used) {
    json::value document = base_document();
    document.set("sliding_window", 4096);
    EXPECT_TRUE(parse_config(json::dump(document), "c"));
    document.set("use_sliding_window", true);
    EXPECT_EQ(parse_config(json::dump(document), "c").error().code, errc::unsupported);
}

TEST(config_json, a_foreign_model_type_and_broken_json_are_errors) {
    EXPECT_EQ(parse_config(R"({"model_type":"mamba"})", "c").error().code, errc::unsupported);
    EXPECT_EQ(parse_config("{", "c").error().code, errc::parse_error);
    EXPECT_EQ(parse_config("[]", "c").error().code, errc::parse_error);
    EXPECT_EQ(parse_config(R"({"vocab_size":5})", "c").error().code, errc::parse_error);
}

}  // namespace
