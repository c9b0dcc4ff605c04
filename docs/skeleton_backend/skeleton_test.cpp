// SPDX-License-Identifier: Apache-2.0
// All promises of a backend, tested by one line at the end.
#include "darlcore/testing/tensor_backend_contract.hpp"
#include "docs/skeleton_backend/skeleton_backend.hpp"

namespace darlcore::testing {

struct skeleton_factory {
    using backend = skeleton::backend;
    /// A reason when the device is not there; the tests are then skipped with it.
    static std::optional<std::string> absent() { return {}; }
    static backend make(const backend_variant&) { return {}; }
    /// True when NaN payloads follow conversions.hpp; otherwise the suite asks only that NaN stays NaN.
    static constexpr bool exact_nan = false;
};

INSTANTIATE_TYPED_TEST_SUITE_P(skeleton, tensor_backend_contract, skeleton_factory);

}  // namespace darlcore::testing
