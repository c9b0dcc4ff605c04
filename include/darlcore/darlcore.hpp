// SPDX-License-Identifier: Apache-2.0
#pragma once

// Everything of the core in one include. Programs that use one part include that part's headers.

// base
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
