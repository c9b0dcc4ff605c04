// SPDX-License-Identifier: Apache-2.0
// A stranger's own block order under the project's contract.
#include "darlcore/epoch_map.hpp"
#include "darlcore/testing/permutation_suite.hpp"

namespace darlcore::testing {
INSTANTIATE_TYPED_TEST_SUITE_P(consumer, permutation_contract, ::testing::Types<epoch_map>);
}
