// SPDX-License-Identifier: Apache-2.0
// Two translation units that include everything link into one program: no header defines a non-inline symbol.
#include <gtest/gtest.h>

#include "darlcore/darlcore.hpp"
#include "darlcore/lease/table.hpp"
#include "darlcore/merge/guards.hpp"
#include "darlcore/plan/waterfill.hpp"
#include "darlcore/round/machine.hpp"

const void* address_of_word_in_the_other_unit();

TEST(headers, two_units_that_include_everything_link_and_share_one_inline_definition) {
    EXPECT_EQ(reinterpret_cast<const void*>(&darlcore::set_assertion_handler), address_of_word_in_the_other_unit());
}
