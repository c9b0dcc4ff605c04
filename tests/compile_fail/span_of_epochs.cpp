// SPDX-License-Identifier: Apache-2.0
// Numbers become positions only by name.
#include "darlcore/units.hpp"

#ifdef BAD
darlcore::span whole{0, 10};
#else
darlcore::span whole = darlcore::make_span(0, 10);
#endif
