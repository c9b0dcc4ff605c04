// SPDX-License-Identifier: Apache-2.0
#pragma once

// The ledger as one state machine: the class and the definitions of its members.
#include "darlcore/ledger/machine_class.hpp"
#include "darlcore/ledger/separate.hpp"

#if defined(DARLCORE_LEDGER_DEFINITIONS)
#include "darlcore/ledger/access.hpp"
#include "darlcore/ledger/handle_effects.hpp"
#include "darlcore/ledger/handle_leases.hpp"
#include "darlcore/ledger/handle_rounds.hpp"
#include "darlcore/ledger/snapshot.hpp"
#else
namespace darlcore::lease {
extern template class basic_table<>;
}
#endif
