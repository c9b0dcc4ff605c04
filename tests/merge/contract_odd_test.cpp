// SPDX-License-Identifier: Apache-2.0
#include "darlcore/testing/odd_tensor_backend.hpp"
#include "darlcore/testing/tensor_backend_contract.hpp"

namespace darlcore::testing {

template <bool Fused>
struct odd_factory {
    using backend = odd_tensor_backend<Fused>;
    static std::optional<std::string> absent() { return {}; }
    static backend make(const backend_variant&) { return {}; }
    static constexpr bool exact_nan = true;
};

INSTANTIATE_TYPED_TEST_SUITE_P(odd_composed, tensor_backend_contract, odd_factory<false>);
INSTANTIATE_TYPED_TEST_SUITE_P(odd_one_at_a_time, tensor_backend_contract, odd_factory<true>);

}  // namespace darlcore::testing
