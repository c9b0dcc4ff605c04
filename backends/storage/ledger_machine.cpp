// SPDX-License-Identifier: Apache-2.0
// The definitions of the ledger's machine and of the lease table, once for every program that links storage
// (darlcore/ledger/separate.hpp).
#define DARLCORE_LEDGER_SOURCE
#include "darlcore/ledger/machine.hpp"

namespace darlcore::lease {
template class basic_table<>;
}
