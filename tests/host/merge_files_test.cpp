// SPDX-License-Identifier: Apache-2.0
#include "backends/host/merge_files.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "backends/host/delta_stream.hpp"
#include "backends/host/file_digest.hpp"
#include "tests/host/merge_fixture.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::merge_fixture;

digest32 parts_digest_of(const std::string& bytes) {
    std::string digests;
    for (std::size_t at = 0; at < bytes.size(); at += host::digest_part_bytes) {
        const auto part = sha256_of(std::string_view(bytes).substr(at, host::digest_part_bytes));
        digests.append(part.begin(), part.end());
    }
    return sha256_of(digests);
}

TEST(merge_files, gives_the_bits_of_the_reference_and_digests_of_what_it_wrote) {
    scene s;
    s.write();
    const auto report = host::merge_files(s.request);
    ASSERT_TRUE(report) << to_text(report.error());
    ASSERT_TRUE(report->merged);
    EXPECT_TRUE(report->rejected.empty());
    expect_outputs(s, expected_outcome(s, s.sites, {0.7F, 0.9F, step_mode::nesterov}));
    EXPECT_EQ(report->weights_parts_digest, parts_digest_of(bytes_of(s.request.weights_out)));
    EXPECT_EQ(report->velocity_parts_digest, parts_digest_of(bytes_of(*s.request.velocity_out)));
    EXPECT_EQ(report->wire_sha256, sha256_of(bytes_of(*s.request.wire_out)));
    EXPECT_EQ(report->bytes_written, s.output_bytes().size());
    EXPECT_EQ(report->step_advance, 12U);
}

TEST(merge_files, figures_are_those_of_the_merged_deltas) {
    scene s;
    s.request.cosines = true;
    s.write();
    const auto report = host::merge_files(s.request);
    ASSERT_TRUE(report && report->merged);
    delta_scan w, d0;
    double dot = 0, norm0 = 0, norm1 = 0;
    for (std::size_t t = 0; t < s.specs.size(); ++t) {
        scan_accumulator sum_w, sum_d;
        sum_w.feed(s.w[t].view());
        sum_d.feed(s.sites[0].values[t].view());
        w.append(sum_w.finish());
        d0.append(sum_d.finish());
        for (std::uint64_t k = 0; k < s.w[t].elements(); ++k) {
            const double x = static_cast<double>(s.sites[0].values[t].at(k));
            const double y = static_cast<double>(s.sites[1].values[t].at(k));
            dot += x * y;
            norm0 += x * x;
            norm1 += y * y;
        }
    }
    EXPECT_EQ(report->used[0].scan, d0) << "to the bit, order of tensors included";
    EXPECT_EQ(report->weight_norm, w.norm());
    EXPECT_DOUBLE_EQ(report->drift->per_site[0], d0.norm() / w.norm());
    ASSERT_EQ(report->cosines.size(), 3U);
    EXPECT_NEAR(*report->cosines[0].cosine, dot / std::sqrt(norm0 * norm1), 1e-9);
    EXPECT_GT(*report->agreement.overall, 0.0);
    EXPECT_LE(*report->agreement.overall, 1.0);
}

TEST(merge_files, order_of_arrival_threads_chunks_and_budget_change_no_bit) {
    scene s;
    s.write();
    std::set<digest32> seen;
    int run = 0;
    std::sort(s.request.deltas.begin(), s.request.deltas.end(), [](auto& a, auto& b) { return a.path < b.path; });
    do {
        for (const int threads : {1, 2, 3, 8}) {
            s.request.threads = threads;
            s.request.chunk_bytes_max = threads == 3 ? 1U << 24U : 1;
            s.request.memory_budget_bytes = threads == 1 ? 4U << 20U : 64U << 20U;
            s.name_outputs("run" + std::to_string(run++));
            const auto report = host::merge_files(s.request);
            ASSERT_TRUE(report && report->merged) << to_text(report.error());
            seen.insert(sha256_of(s.output_bytes()));
        }
    } while (std::next_permutation(s.request.deltas.begin(), s.request.deltas.end(),
                                   [](auto& a, auto& b) { return a.path < b.path; }));
    EXPECT_EQ(run, 24);
    EXPECT_EQ(seen.size(), 1U);
}

TEST(merge_files, the_order_of_tensors_in_a_delta_file_does_not_matter) {
    scene straight, reversed;
    straight.write(false);
    reversed.write(true);
    const auto a = host::merge_files(straight.request);
    const auto b = host::merge_files(reversed.request);
    ASSERT_TRUE(a && b && a->merged && b->merged);
    EXPECT_EQ(straight.output_bytes(), reversed.output_bytes());
    EXPECT_EQ(a->used[1].scan, b->used[1].scan);
}

TEST(merge_files, types_of_deltas_may_differ_between_sites) {
    scene s;
    s.sites[1].type = dtype::f32;
    s.sites[1].values = arbitrary_model(small_model(dtype::f32), 77);
    s.sites[2].type = dtype::f16;
    s.sites[2].values = arbitrary_model(small_model(dtype::f16), 78);
    s.write();
    const auto report = host::merge_files(s.request);
    ASSERT_TRUE(report && report->merged);
    expect_outputs(s, expected_outcome(s, s.sites, {0.7F, 0.9F, step_mode::nesterov}));
}

TEST(merge_files, the_first_merge_has_no_velocity) {
    scene s;
    s.v.reset();
    s.sites.resize(1);
    s.write();
    const auto report = host::merge_files(s.request);
    ASSERT_TRUE(report && report->merged);
    EXPECT_EQ(report->rule, (step_rule{1.0F, 0.9F, step_mode::nesterov})) << "solo";
    expect_outputs(s, expected_outcome(s, s.sites, report->rule));
}

// What a nan, a lie, a cut or a flipped bit in beta's file does: beta is named, the other two merge as if it had not
// been there.
struct spoiled {
    const char* about;
    errc code;
    void (*spoil)(scene&);
};

void rewrite_beta(scene& s) { std::filesystem::remove(s.dir.file("beta")); }

const spoiled spoiled_files[] = {
    {"nan", errc::not_finite,
     [](scene& s) {
         s.sites[1].values[3].set(70'000, std::numeric_limits<float>::quiet_NaN());
         rewrite_beta(s);
         write_model(s.dir.file("beta"), small_model(dtype::bf16), s.sites[1].values);
     }},
    {"growth", errc::growth,
     [](scene& s) {
         s.sites[1].values[0].set(5, 1e6F);
         rewrite_beta(s);
         write_model(s.dir.file("beta"), small_model(dtype::bf16), s.sites[1].values);
     }},
    {"truncated", errc::corrupt,
     [](scene& s) {
         std::filesystem::resize_file(s.dir.file("beta"), std::filesystem::file_size(s.dir.file("beta")) - 1);
     }},
    {"cut inside the header", errc::truncated, [](scene& s) { std::filesystem::resize_file(s.dir.file("beta"), 100); }},
    {"absent", errc::not_found, [](scene& s) { rewrite_beta(s); }},
    {"metadata lies about tokens", errc::meta_mismatch, [](scene& s) { s.request.deltas[1].claim.tokens = 99; }},
    {"metadata of another site", errc::meta_mismatch,
     [](scene& s) {
         std::filesystem::copy_file(s.dir.file("gamma"), s.dir.file("beta"),
                                    std::filesystem::copy_options::overwrite_existing);
         s.request.deltas[1].claim.tokens = 250;
         s.request.deltas[1].claim.steps = 9;
     }},
    {"one bit flipped", errc::digest_mismatch,
     [](scene& s) {
         std::string bytes = bytes_of(s.dir.file("beta"));
         s.request.deltas[1].sha256 = sha256_of(bytes);
         bytes[bytes.size() - 5] = static_cast<char>(bytes[bytes.size() - 5] ^ 1);
         std::ofstream(s.dir.file("beta"), std::ios::binary) << bytes;
     }},
    {"other shape", errc::layout_mismatch,
     [](scene& s) {
         auto specs = small_model(dtype::bf16);
         specs[0].shape = {11, 7};
         rewrite_beta(s);
         write_model(s.dir.file("beta"), specs, s.sites[1].values);
     }},
    {"stale", errc::stale_generation, [](scene& s) { s.request.deltas[1].claim.base_generation = generation{4}; }},
    {"no tokens", errc::zero_tokens, [](scene& s) { s.request.deltas[1].claim.tokens = 0; }},
    {"norm", errc::norm_outlier,
     [](scene& s) {
         for (auto& tensor : s.sites[1].values)
             for (std::uint64_t k = 0; k < tensor.elements(); ++k) tensor.set(k, 200.0F * tensor.at(k));
         rewrite_beta(s);
         write_model(s.dir.file("beta"), small_model(dtype::bf16), s.sites[1].values);
         s.request.guards.accepted_norms = norm_history(std::vector<double>(8, 150.0));
     }},
};

TEST(merge_files, each_bad_delta_is_rejected_alone_with_its_code) {
    for (const spoiled& bad : spoiled_files) {
        scene s;
        s.write();
        bad.spoil(s);
        const auto report = host::merge_files(s.request);
        ASSERT_TRUE(report) << bad.about << ": " << to_text(report.error());
        ASSERT_EQ(report->rejected.size(), 1U) << bad.about;
        EXPECT_EQ(report->rejected[0].code, bad.code) << bad.about << ": " << report->rejected[0].reason;
        EXPECT_EQ(report->rejected[0].site.name, "beta") << bad.about;
        EXPECT_FALSE(report->rejected[0].reason.empty()) << bad.about;
        expect_outputs(s, expected_outcome(s, {s.sites[0], s.sites[2]}, {0.7F, 0.9F, step_mode::nesterov}));
    }
}

TEST(merge_files, a_correct_digest_is_accepted) {
    scene s;
    s.write();
    for (auto& d : s.request.deltas) d.sha256 = sha256_of(bytes_of(d.path));
    const auto report = host::merge_files(s.request);
    ASSERT_TRUE(report && report->merged);
    EXPECT_EQ(report->used.size(), 3U);
}

TEST(merge_files, the_second_contribution_of_a_site_is_refused) {
    scene s;
    s.write();
    s.request.deltas.push_back(s.request.deltas[0]);
    const auto report = host::merge_files(s.request);
    ASSERT_TRUE(report && report->merged);
    ASSERT_EQ(report->rejected.size(), 1U);
    EXPECT_EQ(report->rejected[0].code, errc::duplicate_site);
    expect_outputs(s, expected_outcome(s, s.sites, {0.7F, 0.9F, step_mode::nesterov}));
}

TEST(merge_files, metadata_may_be_required) {
    scene s;
    s.write();
    std::filesystem::remove(s.dir.file("beta"));
    write_model(s.dir.file("beta"), small_model(dtype::bf16), s.sites[1].values);
    s.request.require_metadata = true;
    const auto report = host::merge_files(s.request);
    ASSERT_TRUE(report && report->merged);
    ASSERT_EQ(report->rejected.size(), 1U);
    EXPECT_EQ(report->rejected[0].code, errc::meta_mismatch);
}

TEST(merge_files, with_nothing_usable_nothing_is_written) {
    scene s;
    s.write();
    for (auto& d : s.request.deltas) d.claim.base_generation = generation{4};
    const auto report = host::merge_files(s.request);
    ASSERT_TRUE(report);
    EXPECT_FALSE(report->merged);
    EXPECT_EQ(report->rejected.size(), 3U);
    EXPECT_FALSE(std::filesystem::exists(s.request.weights_out));
}

TEST(merge_files, a_budget_that_is_too_small_names_the_number_it_needs) {
    scene s;
    s.write();
    s.request.memory_budget_bytes = 8 * 2 * (256U << 10U) - 1;
    const auto report = host::merge_files(s.request);
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().code, errc::invalid_argument);
    EXPECT_NE(report.error().context.find("4194304"), std::string::npos) << report.error().context;
    EXPECT_FALSE(std::filesystem::exists(s.request.weights_out));
    s.request.memory_budget_bytes += 1;
    EXPECT_TRUE(host::merge_files(s.request));
}

TEST(merge_files, a_merge_that_would_not_be_finite_is_abandoned_and_leaves_nothing) {
    scene s;
    s.w[0].set(0, 3e38F);
    s.sites[0].type = dtype::f32;
    s.sites[0].values = arbitrary_model(small_model(dtype::f32), 3);
    s.sites[0].values[0].set(0, 3e38F);
    s.write();
    const auto report = host::merge_files(s.request);
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().code, errc::not_finite);
    EXPECT_FALSE(std::filesystem::exists(s.request.weights_out));
    EXPECT_FALSE(std::filesystem::exists(*s.request.velocity_out));
    EXPECT_FALSE(std::filesystem::exists(*s.request.wire_out));
}

TEST(merge_files, base_and_velocity_must_fit_and_be_there) {
    scene s;
    s.write();
    s.request.velocity_path = s.dir.file("beta");
    EXPECT_EQ(host::merge_files(s.request).error().code, errc::unsupported) << "bf16 velocity";
    auto specs = small_model();
    specs[0].name = "other";
    write_model(s.dir.file("v2"), specs, *s.v);
    s.request.velocity_path = s.dir.file("v2");
    EXPECT_EQ(host::merge_files(s.request).error().code, errc::layout_mismatch);
    s.request.velocity_path = s.dir.file("absent");
    const auto absent = host::merge_files(s.request);
    EXPECT_EQ(absent.error().code, errc::not_found);
    EXPECT_NE(absent.error().context.find("absent"), std::string::npos);
    s.request.policy.beta = 1.0;
    EXPECT_EQ(host::merge_files(s.request).error().code, errc::invalid_argument);
}

TEST(merge_files, an_output_that_exists_is_never_overwritten) {
    scene s;
    s.write();
    std::ofstream(*s.request.velocity_out) << "precious";
    EXPECT_EQ(host::merge_files(s.request).error().code, errc::already_exists);
    EXPECT_EQ(bytes_of(*s.request.velocity_out), "precious");
    EXPECT_FALSE(std::filesystem::exists(s.request.weights_out));
}

TEST(merge_files, a_merge_that_is_stopped_leaves_nothing) {
    scene s;
    s.write();
    const std::atomic<bool> stop{true};
    s.request.cancelled = &stop;
    EXPECT_EQ(host::merge_files(s.request).error().code, errc::cancelled);
    EXPECT_FALSE(std::filesystem::exists(s.request.weights_out));
}

TEST(merge_files, outputs_that_are_not_asked_for_are_not_written) {
    scene s;
    s.write();
    ASSERT_TRUE(host::merge_files(s.request));
    const std::string weights = bytes_of(s.request.weights_out);
    s.name_outputs("less");
    s.request.velocity_out.reset();
    s.request.wire_out.reset();
    ASSERT_TRUE(host::merge_files(s.request));
    EXPECT_EQ(bytes_of(s.request.weights_out), weights);
    EXPECT_FALSE(std::filesystem::exists(s.dir.file("less.v")));
}

TEST(merge_files, clip_scales_the_delta_before_its_share) {
    scene s;
    s.write();
    double norm = 0;
    for (const auto& t : s.sites[0].values)
        for (std::uint64_t k = 0; k < t.elements(); ++k) norm += std::pow(static_cast<double>(t.at(k)), 2);
    s.request.guards.limits.clip = 1.0;
    s.request.guards.accepted_norms = norm_history(std::vector<double>(8, std::sqrt(norm) / 4));
    const auto report = host::merge_files(s.request);
    ASSERT_TRUE(report && report->merged);
    EXPECT_NEAR(static_cast<double>(report->used[0].scale), 0.25, 1e-6);
    EXPECT_NEAR(report->drift->per_site[0] * report->weight_norm, std::sqrt(norm) / 4, 1e-3);
}

TEST(delta_stream, pieces_of_any_size_give_the_facts_of_the_file) {
    scene s;
    s.write(true);
    const std::string bytes = bytes_of(s.dir.file("alpha"));
    const auto merged = host::merge_files(s.request);
    ASSERT_TRUE(merged);
    for (const std::size_t piece : {std::size_t{1}, std::size_t{3}, std::size_t{4096}, std::size_t{1'000'000}}) {
        host::delta_stream stream(bytes.size());
        for (std::size_t at = 0; at < bytes.size(); at += piece)
            ASSERT_TRUE(stream.feed(std::as_bytes(std::span(bytes)).subspan(at, std::min(piece, bytes.size() - at))));
        const auto facts = stream.finish();
        ASSERT_TRUE(facts);
        EXPECT_EQ(facts->scan, merged->used[0].scan) << piece;
        EXPECT_EQ(facts->layout.digest(), merged->layout.digest());
        EXPECT_EQ(*facts->header.meta("darl.site"), "alpha");
    }
}

TEST(delta_stream, a_short_a_long_and_a_broken_stream_are_errors) {
    scene s;
    s.write();
    const std::string bytes = bytes_of(s.dir.file("alpha"));
    const auto all = std::as_bytes(std::span(bytes));
    host::delta_stream short_one(bytes.size());
    ASSERT_TRUE(short_one.feed(all.first(bytes.size() - 1)));
    EXPECT_EQ(short_one.finish().error().code, errc::truncated);
    host::delta_stream long_one(bytes.size() - 1);
    EXPECT_EQ(long_one.feed(all).error().code, errc::too_large);
    host::delta_stream other_size(bytes.size() + 1);
    EXPECT_EQ(other_size.feed(all).error().code, errc::corrupt);
    host::delta_stream bounded(bytes.size(), 16);
    EXPECT_EQ(bounded.feed(all).error().code, errc::too_large);
    host::delta_stream empty(0);
    EXPECT_EQ(empty.finish().error().code, errc::truncated);
    std::string broken = bytes;
    broken[9] = '!';
    host::delta_stream garbage(broken.size());
    EXPECT_EQ(garbage.feed(std::as_bytes(std::span(broken))).error().code, errc::parse_error);
}

TEST(delta_stream, a_file_without_tensors_is_an_empty_delta) {
    const std::string bytes = *formats::build_safetensors_header({}, {});
    host::delta_stream stream(bytes.size());
    ASSERT_TRUE(stream.feed(std::as_bytes(std::span(bytes))));
    EXPECT_EQ(stream.finish()->scan, delta_scan{});
}

}  // namespace
