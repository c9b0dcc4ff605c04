// SPDX-License-Identifier: Apache-2.0
// A failure cannot be dropped by accident.
#include "darlcore/error.hpp"

darlcore::result<void> save();

void caller() {
#ifdef BAD
    save();
#else
    (void)save();
#endif
}
