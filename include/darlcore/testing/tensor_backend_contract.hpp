// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "darlcore/testing/outer_step_twin.hpp"
#include "darlcore/testing/property.hpp"
#include "darlcore/testing/tensor_backend_support.hpp"

// The promises of a tensor backend as a typed GoogleTest suite. Use:
//
//     struct my_factory {
//         using backend = my_backend;
//         static std::optional<std::string> absent() { return {}; }       // a reason when the device is not there
//         static my_backend make(const darlcore::testing::backend_variant& v) { return my_backend(v.threads); }
//         static constexpr bool exact_nan = false;                        // true: NaN payloads as conversions.hpp says
//     };
//     INSTANTIATE_TYPED_TEST_SUITE_P(mine, tensor_backend_contract, my_factory);
namespace darlcore::testing {

template <class Factory>
class tensor_backend_contract : public ::testing::Test {
public:
    using backend_type = typename Factory::backend;
    static_assert(tensor_backend<backend_type>);

    void SetUp() override {
        if (const auto reason = Factory::absent()) GTEST_SKIP() << *reason;
    }
    /// Sizes around every vector width and the chunk of the backend.
    static std::vector<std::uint64_t> sizes() {
        std::vector<std::uint64_t> list{0, 1, 2, 3, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 257};
        const std::uint64_t chunk = Factory::make({}).caps().chunk_elements_preferred;
        if (chunk > 300 && chunk <= 100'000) list.insert(list.end(), {chunk - 1, chunk, chunk + 1});
        return list;
    }
    static constexpr std::array merge_types{dtype::f32, dtype::bf16, dtype::f16};
};

TYPED_TEST_SUITE_P(tensor_backend_contract);

TYPED_TEST_P(tensor_backend_contract, says_what_it_can_do) {
    auto backend = TypeParam::make({});
    const backend_caps caps = backend.caps();
    EXPECT_TRUE(caps.dtypes.contains(dtype::f32));
    EXPECT_GE(caps.contributions_max, 0);
    EXPECT_GT(caps.chunk_elements_preferred, 0U);
    EXPECT_GT(caps.alignment_bytes, 0U);
}

TYPED_TEST_P(tensor_backend_contract, copies_bytes_in_and_out_unchanged) {
    auto backend = TypeParam::make({});
    typename TypeParam::backend::queue q{};
    for (const std::uint64_t n : this->sizes()) {
        device_tensors memory(backend, q);
        const host_tensor tensor = arbitrary_tensor(dtype::bf16, n, n);
        ASSERT_TRUE(memory.place(tensor, n % 5));
        EXPECT_EQ(*memory.fetch(0), tensor) << n;
    }
}

TYPED_TEST_P(tensor_backend_contract, scans_to_the_bit_at_every_size_type_and_alignment) {
    auto backend = TypeParam::make({});
    typename TypeParam::backend::queue q{};
    for (const std::uint64_t n : this->sizes())
        for (const dtype type : this->merge_types) {
            const host_tensor tensor = arbitrary_tensor(type, n, 3 * n + 1);
            scan_accumulator twin;
            twin.feed(tensor.view());
            device_tensors memory(backend, q);
            const auto scan = backend.scan(q, *memory.place(tensor, n % 7));
            ASSERT_TRUE(scan);
            EXPECT_EQ(*scan, twin.finish()) << n << ' ' << type;
        }
}

TYPED_TEST_P(tensor_backend_contract, scans_long_tensors_in_fixed_blocks_whatever_the_threads) {
    for (const std::uint64_t n :
         {2 * scan_block_elements - 1, 2 * scan_block_elements, 5 * scan_block_elements + 12'345}) {
        const host_tensor tensor = arbitrary_tensor(dtype::f32, n, n);
        scan_accumulator twin;
        twin.feed(tensor.view());
        for (const int threads : {1, 2, 3}) {
            auto backend = TypeParam::make({.threads = threads});
            typename TypeParam::backend::queue q{};
            device_tensors memory(backend, q);
            EXPECT_EQ(*backend.scan(q, *memory.place(tensor, 1)), twin.finish()) << n << ", threads " << threads;
        }
    }
}

TYPED_TEST_P(tensor_backend_contract, a_single_nan_or_inf_anywhere_makes_a_scan_not_finite) {
    auto backend = TypeParam::make({});
    typename TypeParam::backend::queue q{};
    const float bad[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                         -std::numeric_limits<float>::infinity()};
    for (const dtype type : this->merge_types)
        for (std::uint64_t at = 0; at < 70; ++at) {
            host_tensor tensor = arbitrary_tensor(type, 70, at);
            tensor.set(at, bad[at % 3]);
            device_tensors memory(backend, q);
            EXPECT_EQ(*backend.scan(q, *memory.place(tensor)), (delta_scan{false, 0.0F, 0.0})) << at;
        }
}

TYPED_TEST_P(tensor_backend_contract, widens_all_65536_bf16_and_f16_values_exactly) {
    auto backend = TypeParam::make({});
    typename TypeParam::backend::queue q{};
    for (const dtype type : {dtype::bf16, dtype::f16}) {
        host_tensor all(type, 65536);
        for (std::uint32_t i = 0; i < 65536; ++i) {
            const auto bits = static_cast<std::uint16_t>(i);
            std::memcpy(all.bytes.data() + 2 * i, &bits, 2);
        }
        device_tensors memory(backend, q);
        const auto in = *memory.place(all);
        const auto out = *memory.place(host_tensor(dtype::f32, 65536));
        ASSERT_TRUE(convert(backend, q, in, out));
        const host_tensor wide = *memory.fetch(1);
        for (std::uint64_t i = 0; i < 65536; ++i) {
            const float expected = all.at(i);
            if (!TypeParam::exact_nan && std::isnan(expected))
                ASSERT_TRUE(std::isnan(wide.at(i))) << i;
            else
                ASSERT_EQ(std::bit_cast<std::uint32_t>(wide.at(i)), std::bit_cast<std::uint32_t>(expected)) << i;
        }
    }
}

TYPED_TEST_P(tensor_backend_contract, narrows_to_the_nearest_with_ties_to_even) {
    auto backend = TypeParam::make({});
    typename TypeParam::backend::queue q{};
    bit_source bits(9);
    host_tensor in(dtype::f32, 20'000);
    for (std::uint64_t i = 0; i < in.elements(); ++i) {
        // every exponent, and low bits that sit on, beside and far from the ties of both types
        const auto low = static_cast<std::uint32_t>(bits.next());
        const std::uint32_t tie = i % 3 == 0 ? 0x8000U : i % 3 == 1 ? 0x1000U : low & 0xffffU;
        const std::uint32_t word = (low & 0xffff0000U) | ((tie + static_cast<std::uint32_t>(i % 5) - 2U) & 0xffffU);
        in.set(i, std::bit_cast<float>(word));
    }
    for (const dtype type : {dtype::bf16, dtype::f16}) {
        device_tensors memory(backend, q);
        const auto source = *memory.place(in);
        const auto target = *memory.place(host_tensor(type, in.elements()));
        ASSERT_TRUE(convert(backend, q, source, target));
        const host_tensor narrow = *memory.fetch(1);
        host_tensor expected(type, in.elements());
        scalar_ops::convert(in.view(), expected.view());
        for (std::uint64_t i = 0; i < in.elements(); ++i) {
            if (!TypeParam::exact_nan && std::isnan(in.at(i)))
                ASSERT_TRUE(std::isnan(narrow.at(i))) << i;
            else
                ASSERT_EQ(std::memcmp(&narrow.bytes[2 * i], &expected.bytes[2 * i], 2), 0) << i << ' ' << in.at(i);
        }
    }
}

TYPED_TEST_P(tensor_backend_contract, steps_to_the_bit_at_every_size_and_type) {
    auto backend = TypeParam::make({});
    for (const std::uint64_t n : this->sizes())
        for (const dtype type : this->merge_types)
            for (const std::size_t contributions : {1U, 3U}) {
                const step_case one = arbitrary_step(n, contributions, type, 100 * n + contributions);
                const auto outcome = step_on(backend, one, n % 5);
                ASSERT_TRUE(outcome) << to_text(outcome.error());
                EXPECT_EQ(*outcome, reference_step(one)) << n << ' ' << type << ' ' << contributions;
            }
}

TYPED_TEST_P(tensor_backend_contract, steps_to_the_bit_for_one_to_nine_contributions_and_beyond_its_group) {
    auto backend = TypeParam::make({});
    std::vector<std::size_t> counts{1, 2, 3, 4, 5, 6, 7, 8, 9};
    const auto group = static_cast<std::size_t>(backend.caps().contributions_max);
    if (group > 0) counts.push_back(group + 1);
    if (group > 0) counts.push_back(2 * group + 1);
    for (const std::size_t contributions : counts)
        for (std::uint64_t seed = 0; seed < 6; ++seed) {
            const step_case one = arbitrary_step(200, contributions, this->merge_types[seed % 3], seed);
            const auto outcome = step_on(backend, one);
            ASSERT_TRUE(outcome) << to_text(outcome.error());
            EXPECT_EQ(*outcome, reference_step(one)) << contributions << ", seed " << seed;
        }
}

TYPED_TEST_P(tensor_backend_contract, mixes_types_of_deltas_in_one_step) {
    auto backend = TypeParam::make({});
    step_case one = arbitrary_step(100, 3, dtype::f32, 5);
    one.deltas[1] = arbitrary_tensor(dtype::bf16, 100, 6);
    one.deltas[2] = arbitrary_tensor(dtype::f16, 100, 7);
    const auto outcome = step_on(backend, one);
    ASSERT_TRUE(outcome) << to_text(outcome.error());
    EXPECT_EQ(*outcome, reference_step(one));
}

TYPED_TEST_P(tensor_backend_contract, threads_and_chunks_change_no_bit) {
    const step_case one = arbitrary_step(200'000, 3, dtype::bf16, 77);
    const step_outcome expected = reference_step(one);
    for (const int threads : {1, 2, 3, 8})
        for (const std::uint64_t chunk : {1U, 7U, 4096U, 1'000'000U}) {
            if (chunk == 1 && threads > 1) continue;
            auto backend = TypeParam::make({.threads = threads, .chunk_elements = chunk});
            const auto outcome = step_on(backend, one, 3);
            ASSERT_TRUE(outcome) << to_text(outcome.error());
            EXPECT_TRUE(*outcome == expected) << "threads " << threads << ", chunk " << chunk;
        }
}

TYPED_TEST_P(tensor_backend_contract, a_step_in_parts_equals_the_step_at_once) {
    auto backend = TypeParam::make({});
    typename TypeParam::backend::queue q{};
    const step_case one = arbitrary_step(1000, 2, dtype::bf16, 21);
    device_tensors memory(backend, q);
    std::vector<weighted_delta> deltas{{*memory.place(one.deltas[0]), one.shares[0], one.scales[0]},
                                       {*memory.place(one.deltas[1]), one.shares[1], one.scales[1]}};
    outer_step_args args;
    args.w = *memory.place(one.w);
    if (one.v) args.v = *memory.place(*one.v);
    args.rule = one.rule;
    args.deltas = deltas;
    const std::size_t first_output = memory.count();
    args.w_out = *memory.place(host_tensor(dtype::f32, 1000));
    args.v_out = *memory.place(host_tensor(dtype::f32, 1000));
    std::vector<weighted_delta> room(2);
    for (std::uint64_t first = 0; first < 1000; first += 77) {
        const auto part = part_of(args, first, std::min<std::uint64_t>(77, 1000 - first), room);
        ASSERT_TRUE(run_outer_step(backend, q, part));
    }
    const step_outcome expected = reference_step(one);
    EXPECT_EQ(*memory.fetch(first_output), expected.w);
    EXPECT_EQ(*memory.fetch(first_output + 1), expected.v);
}

TYPED_TEST_P(tensor_backend_contract, fused_and_composed_paths_give_the_same_bits) {
    auto backend = TypeParam::make({});
    typename TypeParam::backend::queue q{};
    const step_case one = arbitrary_step(300, 4, dtype::f16, 31);
    device_tensors memory(backend, q);
    std::vector<weighted_delta> deltas;
    for (std::size_t i = 0; i < 4; ++i) deltas.push_back({*memory.place(one.deltas[i]), one.shares[i], one.scales[i]});
    outer_step_args args;
    args.w = *memory.place(one.w);
    if (one.v) args.v = *memory.place(*one.v);
    args.rule = one.rule;
    args.deltas = deltas;
    const std::size_t first_output = memory.count();
    args.w_out = *memory.place(host_tensor(dtype::f32, 300));
    args.v_out = *memory.place(host_tensor(dtype::f32, 300));
    ASSERT_TRUE(detail::composed_outer_step(backend, q, args));
    EXPECT_EQ(*memory.fetch(first_output), reference_step(one).w);
    EXPECT_EQ(*memory.fetch(first_output + 1), reference_step(one).v);
}

TYPED_TEST_P(tensor_backend_contract, agrees_with_the_f64_twin) {
    auto backend = TypeParam::make({});
    step_case one = arbitrary_step(500, 3, dtype::f32, 41);
    std::vector<twin_contribution> used;
    twin_state old;
    for (std::uint64_t k = 0; k < 500; ++k) old.w.push_back(static_cast<double>(one.w.at(k)));
    if (one.v) old.v.emplace();
    for (std::uint64_t k = 0; one.v && k < 500; ++k) old.v->push_back(static_cast<double>(one.v->at(k)));
    const double tokens[] = {100, 300, 200};
    for (std::size_t i = 0; i < 3; ++i) {
        one.shares[i] = static_cast<float>(tokens[i] / 600);
        one.scales[i] = 1.0F;
        used.push_back({{}, tokens[i]});
        for (std::uint64_t k = 0; k < 500; ++k) used[i].delta.push_back(static_cast<double>(one.deltas[i].at(k)));
    }
    const auto outcome = step_on(backend, one);
    ASSERT_TRUE(outcome);
    const twin_state twin = twin_outer_step(old, used, 0.7, 0.9, one.rule.mode == step_mode::plain);
    for (std::uint64_t k = 0; k < 500; ++k) {
        const double bound = 1e-6 * std::max(1.0, std::abs(twin.w[k]));
        EXPECT_NEAR(static_cast<double>(outcome->w.at(k)), twin.w[k], bound) << k;
        EXPECT_NEAR(static_cast<double>(outcome->v.at(k)), (*twin.v)[k], bound) << k;
    }
}

TYPED_TEST_P(tensor_backend_contract, flush_to_zero_of_the_calling_thread_changes_nothing) {
#if defined(__SSE2__)
    auto backend = TypeParam::make({.threads = 2});
    typename TypeParam::backend::queue q{};
    step_case one = arbitrary_step(100, 2, dtype::bf16, 51);
    for (std::uint64_t k = 0; k < 100; ++k) one.w.set(k, static_cast<float>(k) * 0x1p-149F);
    for (auto& delta : one.deltas)
        for (std::uint64_t k = 0; k < 100; ++k) delta.set(k, static_cast<float>(k) * 0x1p-133F);
    const step_outcome expected = reference_step(one);
    scan_accumulator twin;
    twin.feed(one.w.view());
    constexpr unsigned flush_to_zero_and_denormals_are_zero = 0x8040U;
    const unsigned saved = _mm_getcsr();
    _mm_setcsr(saved | flush_to_zero_and_denormals_are_zero);
    const auto outcome = step_on(backend, one);
    device_tensors memory(backend, q);
    const auto scan = backend.scan(q, *memory.place(one.w));
    const unsigned after = _mm_getcsr() & ~0x3fU;  // the low bits are sticky flags
    _mm_setcsr(saved);
    EXPECT_TRUE(outcome && *outcome == expected);
    EXPECT_EQ(*scan, twin.finish());
    EXPECT_EQ(after, (saved | flush_to_zero_and_denormals_are_zero) & ~0x3fU) << "the caller's mode is left as it was";
#else
    GTEST_SKIP() << "no way to switch flush-to-zero on for this processor";
#endif
}

TYPED_TEST_P(tensor_backend_contract, building_blocks_round_once_per_operation) {
    auto backend = TypeParam::make({});
    typename TypeParam::backend::queue q{};
    const host_tensor a = arbitrary_tensor(dtype::f32, 150, 61);
    const host_tensor b = arbitrary_tensor(dtype::bf16, 150, 62);
    device_tensors memory(backend, q);
    const auto a_view = *memory.place(a, 1);
    const auto b_view = *memory.place(b, 1);
    const auto out = *memory.place(host_tensor(dtype::f32, 150), 1);
    host_tensor expected(dtype::f32, 150);
    ASSERT_TRUE(subtract(backend, q, a_view, b_view, out));
    scalar_ops::subtract(a.view(), b.view(), expected.view());
    EXPECT_EQ(*memory.fetch(2), expected);
    scan_accumulator sum;
    sum.feed(expected.view());
    EXPECT_EQ(*sum_squares_of_difference(backend, q, a_view, b_view), sum.finish().sum_squares);
    ASSERT_TRUE(axpy(backend, q, 0.3F, b_view, a_view, out));
    scalar_ops::axpy(0.3F, b.view(), a.view(), expected.view());
    EXPECT_EQ(*memory.fetch(2), expected);
    ASSERT_TRUE(axpy(backend, q, -0.3F, b_view, {}, out));
    scalar_ops::axpy(-0.3F, b.view(), {}, expected.view());
    EXPECT_EQ(*memory.fetch(2), expected);
}

TYPED_TEST_P(tensor_backend_contract, any_step_gives_the_reference_bits) {
    auto backend = TypeParam::make({.threads = 2});
    check_property(100, [&] {
        const auto n = *rc::gen::inRange<std::uint64_t>(0, 600);
        const auto contributions = *rc::gen::inRange<std::size_t>(1, 12);
        const auto type = *rc::gen::element(dtype::f32, dtype::bf16, dtype::f16);
        const step_case one = arbitrary_step(n, contributions, type, *rc::gen::arbitrary<std::uint32_t>());
        const auto outcome = step_on(backend, one, *rc::gen::inRange<std::size_t>(0, 9));
        RC_ASSERT(static_cast<bool>(outcome));
        RC_ASSERT(*outcome == reference_step(one));
    });
}

REGISTER_TYPED_TEST_SUITE_P(tensor_backend_contract, says_what_it_can_do, copies_bytes_in_and_out_unchanged,
                            scans_to_the_bit_at_every_size_type_and_alignment,
                            scans_long_tensors_in_fixed_blocks_whatever_the_threads,
                            a_single_nan_or_inf_anywhere_makes_a_scan_not_finite,
                            widens_all_65536_bf16_and_f16_values_exactly, narrows_to_the_nearest_with_ties_to_even,
                            steps_to_the_bit_at_every_size_and_type,
                            steps_to_the_bit_for_one_to_nine_contributions_and_beyond_its_group,
                            mixes_types_of_deltas_in_one_step, threads_and_chunks_change_no_bit,
                            a_step_in_parts_equals_the_step_at_once, fused_and_composed_paths_give_the_same_bits,
                            agrees_with_the_f64_twin, flush_to_zero_of_the_calling_thread_changes_nothing,
                            building_blocks_round_once_per_operation, any_step_gives_the_reference_bits);

}  // namespace darlcore::testing
