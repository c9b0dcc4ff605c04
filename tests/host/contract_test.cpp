// SPDX-License-Identifier: Apache-2.0
#include "backends/host/cpu_backend.hpp"

#include <algorithm>

#include "darlcore/testing/tensor_backend_contract.hpp"

namespace darlcore::testing {

template <host::instruction_set Set, host::store_kind Stores>
struct host_factory {
    using backend = host::cpu_backend;
    static std::optional<std::string> absent() {
        const auto& sets = host::available_instruction_sets();
        if (std::find(sets.begin(), sets.end(), Set) != sets.end()) return {};
        return "this processor has no " + std::string(host::word(Set));
    }
    static backend make(const backend_variant& v) {
        const std::uint64_t chunk = v.chunk_elements == 0 ? 65536 : v.chunk_elements;
        return backend({.threads = v.threads, .chunk_elements = chunk, .instructions = Set, .stores = Stores});
    }
    static constexpr bool exact_nan = true;
};

using host::instruction_set;
using host::store_kind;
using baseline = host_factory<instruction_set::baseline, store_kind::by_size>;
using avx2 = host_factory<instruction_set::avx2, store_kind::by_size>;
using avx512 = host_factory<instruction_set::avx512, store_kind::by_size>;
using avx512_streaming = host_factory<instruction_set::avx512, store_kind::non_temporal>;
using avx2_streaming = host_factory<instruction_set::avx2, store_kind::non_temporal>;
using baseline_streaming = host_factory<instruction_set::baseline, store_kind::non_temporal>;
INSTANTIATE_TYPED_TEST_SUITE_P(baseline, tensor_backend_contract, baseline);
INSTANTIATE_TYPED_TEST_SUITE_P(avx2, tensor_backend_contract, avx2);
INSTANTIATE_TYPED_TEST_SUITE_P(avx512, tensor_backend_contract, avx512);
INSTANTIATE_TYPED_TEST_SUITE_P(avx512_around_the_caches, tensor_backend_contract, avx512_streaming);
INSTANTIATE_TYPED_TEST_SUITE_P(avx2_around_the_caches, tensor_backend_contract, avx2_streaming);
INSTANTIATE_TYPED_TEST_SUITE_P(baseline_around_the_caches, tensor_backend_contract, baseline_streaming);

}  // namespace darlcore::testing
