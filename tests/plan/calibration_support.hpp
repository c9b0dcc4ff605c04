// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "darlcore/plan/round_cost.hpp"
#include "tests/plan/vector_support.hpp"

namespace plan_test {

/// The calibration of planner.json, with the regimes that were measured.
inline darlcore::plan::calibration calibration_of_vectors() {
    using darlcore::plan::quality;
    const json::value& v = planner().at("calibration");
    darlcore::plan::calibration c;
    c.merge_s = number(v, "merge_s");
    c.eval_windows = number(v, "eval_windows");
    c.eval_speedup = number(v, "eval_speedup");
    c.join_stall_s = number(v, "join_stall_s");
    c.seq_len = static_cast<std::uint32_t>(*v.at("seq_len").as_u64());
    c.block_windows = static_cast<std::uint32_t>(*v.at("block_windows").as_u64());
    for (const auto& [site, s] : *v.at("transfer_s").as_object()) c.transfer_s[site] = *s.as_double();
    for (const auto& [site, s] : *v.at("eval_fixed_s").as_object()) c.eval_fixed_s[site] = *s.as_double();
    for (const auto& [key, g] : *v.at("geometry").as_object())
        c.geometries[key] = {number(g, "seq_per_s"), static_cast<std::uint32_t>(*g.at("batch").as_u64())};
    c.regimes = {{"snellius@4", quality::identified},
                 {"lumi@8+snellius@4", quality::derived_by_subtraction},
                 {"snellius@1", quality::identified}};
    return c;
}

inline darlcore::plan::member_cost member_of(const darlcore::plan::calibration& c, const std::string& key) {
    const auto at = key.find('@');
    return *cost_of(c, key.substr(0, at), static_cast<std::uint32_t>(std::stoul(key.substr(at + 1))));
}

}  // namespace plan_test
