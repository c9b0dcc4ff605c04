// SPDX-License-Identifier: Apache-2.0
// Whatever the order of arrival, the threads, the chunk, the kind of store and the place of the outputs: one SHA-256.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "backends/host/cpu_backend.hpp"
#include "darlcore/digest.hpp"
#include "darlcore/testing/tensor_backend_support.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::testing;

struct arrival {
    std::string site;
    std::uint64_t tokens;
    host_tensor delta;
};

digest32 digest_of_merge(const step_case& base, std::vector<arrival> arrived, const host::cpu_options& options,
                         bool sorted) {
    if (sorted) std::sort(arrived.begin(), arrived.end(), [](const auto& a, const auto& b) { return a.site < b.site; });
    step_case one = base;
    std::vector<std::uint64_t> tokens;
    for (const arrival& a : arrived) {
        tokens.push_back(a.tokens);
        one.deltas.push_back(a.delta);
        one.scales.push_back(1.0F);
    }
    one.shares = shares_of(tokens).value();
    host::cpu_backend backend(options);
    const step_outcome out = step_on(backend, one, 1).value();
    std::string bytes;
    for (const host_tensor* t : {&out.w, &out.v, &out.wire})
        bytes.append(reinterpret_cast<const char*>(t->bytes.data()), t->bytes.size());
    return sha256_of(bytes);
}

/// Digests over everything that must not matter.
std::set<digest32> all_digests(bool sorted) {
    constexpr std::uint64_t n = 70'001;
    step_case base;
    base.w = arbitrary_tensor(dtype::f32, n, 1);
    base.v = arbitrary_tensor(dtype::f32, n, 2);
    base.wire = dtype::bf16;
    std::vector<arrival> arrived{{"alpha", 300, arbitrary_tensor(dtype::bf16, n, 3)},
                                 {"beta", 100, arbitrary_tensor(dtype::f32, n, 4)},
                                 {"gamma", 250, arbitrary_tensor(dtype::f16, n, 5)}};
    std::set<digest32> seen;
    int order = 0;
    do {
        for (const int threads : {1, 2, 3, 8})
            for (const std::uint64_t chunk : {1U, 7U, 4096U, 65'536U, 1'000'000U}) {
                if (chunk < 100 && (threads > 2 || order > 0)) continue;
                base.in_place = (order + threads) % 2 == 0;
                const auto stores = threads == 3 ? host::store_kind::non_temporal : host::store_kind::by_size;
                seen.insert(digest_of_merge(
                    base, arrived,
                    {.threads = threads, .chunk_elements = chunk, .instructions = std::nullopt, .stores = stores},
                    sorted));
            }
        ++order;
    } while (std::next_permutation(arrived.begin(), arrived.end(),
                                   [](const auto& a, const auto& b) { return a.site < b.site; }));
    return seen;
}

TEST(outer_step, one_digest_whatever_order_threads_chunk_and_place) { EXPECT_EQ(all_digests(true).size(), 1U); }

// What the promise hangs on: the ascending order of sites.
TEST(outer_step, without_the_order_of_sites_the_arrival_would_show) { EXPECT_GT(all_digests(false).size(), 1U); }

}  // namespace
