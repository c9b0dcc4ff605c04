// SPDX-License-Identifier: Apache-2.0
#include "darlcore/darlcore.hpp"
#include "darlcore/lease/table.hpp"
#include "darlcore/merge/guards.hpp"
#include "darlcore/plan/waterfill.hpp"
#include "darlcore/round/machine.hpp"

const void* address_of_word_in_the_other_unit() {
    return reinterpret_cast<const void*>(&darlcore::set_assertion_handler);
}
