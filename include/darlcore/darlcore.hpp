// SPDX-License-Identifier: Apache-2.0
#pragma once

// The base headers in one include. The layers above have headers of their own (lease/table.hpp, round/machine.hpp,
// merge/outer_policy.hpp, plan/waterfill.hpp, ledger/machine.hpp, site/session.hpp): each costs compile time.
#include "darlcore/assert.hpp"
#include "darlcore/blake2b.hpp"
#include "darlcore/block_space.hpp"
#include "darlcore/clock.hpp"
#include "darlcore/corpus.hpp"
#include "darlcore/digest.hpp"
#include "darlcore/epoch_map.hpp"
#include "darlcore/error.hpp"
#include "darlcore/feistel.hpp"
#include "darlcore/hex.hpp"
#include "darlcore/interval_set.hpp"
#include "darlcore/metrics.hpp"
#include "darlcore/permutation.hpp"
#include "darlcore/phase.hpp"
#include "darlcore/phase_group.hpp"
#include "darlcore/random.hpp"
#include "darlcore/sha2.hpp"
#include "darlcore/sizing.hpp"
#include "darlcore/units.hpp"
