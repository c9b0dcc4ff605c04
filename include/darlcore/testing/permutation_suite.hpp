// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "darlcore/testing/property.hpp"
#include "darlcore/testing/space_properties.hpp"

// Contract suite for block orders. To test your own permutation, write a type with the members of `epoch_map` and
// instantiate:
//
//   INSTANTIATE_TYPED_TEST_SUITE_P(mine, permutation_contract, ::testing::Types<my_epoch_map>);
//
// DARLCORE_PROPERTY_BUDGET scales the number of cases.
namespace darlcore::testing {

template <class Map>
class permutation_contract : public ::testing::Test {};

TYPED_TEST_SUITE_P(permutation_contract);

TYPED_TEST_P(permutation_contract, every_block_has_one_position) {
    check_property(1000, &::darlcore::testing::every_block_has_one_position<TypeParam>);
}

TYPED_TEST_P(permutation_contract, every_window_lies_in_one_block) {
    check_property(1000, &::darlcore::testing::every_window_lies_in_one_block<TypeParam>);
}

TYPED_TEST_P(permutation_contract, digest_covers_every_parameter) {
    check_property(1000, &::darlcore::testing::digest_covers_every_parameter<TypeParam>);
}

TYPED_TEST_P(permutation_contract, neighbours_have_nothing_in_common) {
    check_property(1000, &::darlcore::testing::neighbours_have_nothing_in_common<TypeParam>);
}

TYPED_TEST_P(permutation_contract, equal_parameters_give_equal_orders) {
    check_property(100, [] {
        const auto parameters = any_space();
        const auto epoch = any_epoch();
        const TypeParam a(parameters, epoch);
        const TypeParam b(parameters, epoch);
        RC_ASSERT(agreements(a, b) == a.num_blocks());
        RC_ASSERT(a.digest() == b.digest());
    });
}

REGISTER_TYPED_TEST_SUITE_P(permutation_contract, every_block_has_one_position, every_window_lies_in_one_block,
                            digest_covers_every_parameter, neighbours_have_nothing_in_common,
                            equal_parameters_give_equal_orders);

}  // namespace darlcore::testing
