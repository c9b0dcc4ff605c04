// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Where the definitions of the ledger's machine are compiled.
/// Nothing defined: in every unit that includes machine.hpp, as inline functions.
/// DARLCORE_LEDGER_SEPARATE defined for a whole program: in the one unit that also defines DARLCORE_LEDGER_SOURCE and
/// includes machine.hpp; everywhere else machine.hpp declares only. `darlcore::storage` does so for whoever links it.
#if defined(DARLCORE_LEDGER_SEPARATE)
#define DARLCORE_LEDGER_INLINE
#else
#define DARLCORE_LEDGER_INLINE inline
#endif

#if !defined(DARLCORE_LEDGER_SEPARATE) || defined(DARLCORE_LEDGER_SOURCE)
/// This unit has the definitions.
#define DARLCORE_LEDGER_DEFINITIONS
#endif
