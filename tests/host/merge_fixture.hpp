// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "adapters/formats/safetensors.hpp"
#include "backends/host/merge_files.hpp"
#include "darlcore/testing/tensor_backend_support.hpp"

// A small model of several tensors, its deltas, and a merge of them on files.
namespace darlcore::merge_fixture {

using darlcore::testing::host_tensor;

class folder {
public:
    folder() {
        std::string pattern = ::testing::TempDir() + "darl-merge-XXXXXX";
        path_ = ::mkdtemp(pattern.data());
    }
    ~folder() { std::filesystem::remove_all(path_); }
    folder(const folder&) = delete;
    folder& operator=(const folder&) = delete;
    [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    std::string path_;
};

inline std::string bytes_of(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

/// Names are in layout order; one tensor is empty, one a scalar, one spans several blocks.
inline std::vector<tensor_spec> small_model(dtype type = dtype::f32) {
    return {{"a.weight", type, {7, 11}},
            {"b.bias", type, {}},
            {"c.empty", type, {0, 4}},
            {"d.table", type, {130, 1100}},
            {"e", type, {3}}};
}

using tensors = std::vector<host_tensor>;  // in the order of the specs

inline tensors arbitrary_model(const std::vector<tensor_spec>& specs, std::uint64_t seed) {
    tensors all;
    for (const tensor_spec& spec : specs)
        all.push_back(darlcore::testing::arbitrary_tensor(spec.dtype, *element_count(spec.shape), ++seed * 1000));
    return all;
}

inline void write_model(const std::string& path, std::vector<tensor_spec> specs, const tensors& values,
                        const formats::safetensors_metadata& metadata = {}, bool reversed = false) {
    std::vector<std::size_t> order(specs.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = reversed ? order.size() - 1 - i : i;
    std::vector<tensor_spec> ordered;
    for (const std::size_t i : order) ordered.push_back(specs[i]);
    auto writer = formats::safetensors_writer::create(path, ordered, metadata).value();
    for (const std::size_t i : order) ASSERT_TRUE(writer.write(values[i].bytes));
    ASSERT_TRUE(writer.finish());
}

inline tensors read_model(const std::string& path, const std::vector<tensor_spec>& specs) {
    const auto reader = formats::safetensors_reader::open(path).value();
    tensors all;
    for (const tensor_spec& spec : specs) {
        const auto* entry = reader.header().find(spec.name);
        host_tensor tensor(entry->spec.dtype, *element_count(entry->spec.shape));
        EXPECT_TRUE(reader.read_all(*entry, tensor.bytes));
        all.push_back(std::move(tensor));
    }
    return all;
}

struct site_delta {
    std::string site;
    std::uint64_t tokens = 0;
    std::uint64_t steps = 0;
    tensors values;
    dtype type = dtype::bf16;
};

inline std::vector<site_delta> three_sites(dtype type = dtype::bf16) {
    std::vector<site_delta> sites{
        {"alpha", 300, 10, {}, type}, {"beta", 100, 12, {}, type}, {"gamma", 250, 9, {}, type}};
    std::uint64_t seed = 40;
    for (site_delta& s : sites) s.values = arbitrary_model(small_model(type), seed += 10);
    return sites;
}

/// Everything on disk, and the request that merges it.
struct scene {
    folder dir;
    std::vector<tensor_spec> specs = small_model();
    tensors w = arbitrary_model(small_model(), 1);
    std::optional<tensors> v = arbitrary_model(small_model(), 2);
    std::vector<site_delta> sites = three_sites();
    host::merge_request request;

    void write(bool reversed = false) {
        write_model(dir.file("w"), specs, w);
        if (v) write_model(dir.file("v"), specs, *v);
        request.base_path = dir.file("w");
        if (v) request.velocity_path = dir.file("v");
        request.guards.current = generation{5};
        for (const site_delta& s : sites) {
            const contribution_claim claim{"run-1", {s.site}, generation{5}, s.tokens, s.steps};
            write_model(dir.file(s.site), small_model(s.type), s.values, metadata_of(claim), reversed);
            request.deltas.push_back({dir.file(s.site), claim, {}, {}});
        }
        name_outputs("out");
    }
    void name_outputs(const std::string& prefix) {
        request.weights_out = dir.file(prefix + ".w");
        request.velocity_out = dir.file(prefix + ".v");
        request.wire_out = dir.file(prefix + ".wire");
    }
    static formats::safetensors_metadata metadata_of(const contribution_claim& claim) {
        return {{"darl.run_id", claim.run_id},
                {"darl.site", claim.site.name},
                {"darl.base_generation", std::to_string(claim.base_generation.count)},
                {"darl.tokens", std::to_string(claim.tokens)},
                {"darl.steps", std::to_string(claim.steps)}};
    }
    /// All bytes of the three outputs.
    [[nodiscard]] std::string output_bytes() const {
        return bytes_of(request.weights_out) + bytes_of(*request.velocity_out) + bytes_of(*request.wire_out);
    }
};

/// What the outputs must hold, tensor by tensor, when these sites (ascending) are used.
inline std::vector<darlcore::testing::step_outcome> expected_outcome(const scene& s,
                                                                     const std::vector<site_delta>& used,
                                                                     const step_rule& rule) {
    std::vector<std::uint64_t> tokens;
    for (const auto& u : used) tokens.push_back(u.tokens);
    std::vector<darlcore::testing::step_outcome> outcomes;
    for (std::size_t t = 0; t < s.specs.size(); ++t) {
        darlcore::testing::step_case one;
        one.w = s.w[t];
        if (s.v) one.v = (*s.v)[t];
        for (const auto& u : used) one.deltas.push_back(u.values[t]);
        one.shares = shares_of(tokens).value();
        one.scales.assign(used.size(), 1.0F);
        one.rule = rule;
        one.wire = dtype::bf16;
        outcomes.push_back(reference_step(one));
    }
    return outcomes;
}

inline void expect_outputs(const scene& s, const std::vector<darlcore::testing::step_outcome>& expected) {
    const tensors w = read_model(s.request.weights_out, s.specs);
    const tensors v = read_model(*s.request.velocity_out, s.specs);
    const tensors wire = read_model(*s.request.wire_out, s.specs);
    for (std::size_t t = 0; t < expected.size(); ++t) {
        EXPECT_TRUE(w[t] == expected[t].w) << s.specs[t].name;
        EXPECT_TRUE(v[t] == expected[t].v) << s.specs[t].name;
        EXPECT_TRUE(wire[t] == expected[t].wire) << s.specs[t].name;
    }
}

}  // namespace darlcore::merge_fixture
