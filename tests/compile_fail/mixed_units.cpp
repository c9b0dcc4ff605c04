// SPDX-License-Identifier: Apache-2.0
// A position is not a sequence number.
#include "darlcore/units.hpp"

bool same(darlcore::position a, darlcore::lease_seq b) {
#ifdef BAD
    return a == b;
#else
    return a.count == b.count;
#endif
}
