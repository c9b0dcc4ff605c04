// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "darlcore/plan/round_cost.hpp"

namespace plan_test {

/// Site a with one job of 4 GPUs and site b, slower, with one of 8: rates of the paper's Table 4.
inline darlcore::plan::calibration two_sites() {
    darlcore::plan::calibration c;
    c.merge_s = 17;
    c.transfer_s = {{"a", 33.5}, {"b", 64.2}};
    c.eval_fixed_s = {{"a", 23.6}, {"b", 34.7}};
    c.join_stall_s = 378;
    c.seq_len = 2048;
    c.block_windows = 1024;
    c.geometries = {{"a@4", {89.8, 32}}, {"b@8", {38.2, 64}}};
    c.regimes = {{"a@4", darlcore::plan::quality::identified},
                 {"b@8", darlcore::plan::quality::identified},
                 {"a@4+b@8", darlcore::plan::quality::identified}};
    return c;
}

}  // namespace plan_test
