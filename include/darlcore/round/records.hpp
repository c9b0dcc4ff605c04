// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "darlcore/round/types.hpp"

namespace darlcore::round {

// Facts of the rounds, as they stand in the journal. Each leads by itself from one valid state to another.

struct joined {
    site_id site;
    darlcore::incarnation incarnation;
    pins site_pins;
    std::string software;
    friend bool operator==(const joined&, const joined&) = default;
};

struct left {
    site_id site;
    std::string reason;
    friend bool operator==(const left&, const left&) = default;
};

/// A member was answered `train`.
struct obliged {
    site_id site;
    darlcore::generation base;
    round_time start;
    round_time due;
    std::optional<std::int64_t> budget_ms;
    bool waited = true;  // false: a second try in the same round, which nobody waits for
    bool evaluate = false;
    friend bool operator==(const obliged&, const obliged&) = default;
};

struct declined {
    site_id site;
    darlcore::generation base;
    decline_reason reason = decline_reason::no_data;
    std::string detail;
    friend bool operator==(const declined&, const declined&) = default;
};

struct overdue {
    site_id site;
    darlcore::generation base;
    friend bool operator==(const overdue&, const overdue&) = default;
};

/// The incarnation of a member was replaced: what the old one owed is over, what it pledged stands.
struct replaced {
    site_id site;
    friend bool operator==(const replaced&, const replaced&) = default;
};

struct accepted {
    pledge contribution;
    friend bool operator==(const accepted&, const accepted&) = default;
};

/// A content fault, found at contribute or at a merge that used nothing.
struct rejected {
    site_id site;
    contribution_id id;
    darlcore::generation base;
    errc reason = errc::not_finite;
    friend bool operator==(const rejected&, const rejected&) = default;
};

struct initialised {
    std::optional<site_id> by;  // none: from a file at the start
    std::string layout_digest;
    model_files files;
    friend bool operator==(const initialised&, const initialised&) = default;
};

struct rejected_at_merge {
    contribution_id id;
    site_id site;
    errc reason = errc::not_finite;
    friend bool operator==(const rejected_at_merge&, const rejected_at_merge&) = default;
};

struct used_contribution {
    contribution_id id;
    site_id site;
    friend bool operator==(const used_contribution&, const used_contribution&) = default;
};

/// Figures of a merge, for people.
struct merge_figures {
    std::int64_t merge_ms = 0;
    std::uint64_t bytes = 0;
    double drift_mean = 0;
    double drift_max = 0;
    double agreement = 0;
    friend bool operator==(const merge_figures&, const merge_figures&) = default;
};

/// The model moved on: generation `next` exists.
struct merged {
    darlcore::generation next;
    model_files files;
    std::vector<used_contribution> used;          // ascending by site
    std::vector<rejected_at_merge> rejected_ids;  // ascending by site
    std::uint64_t global_step = 0;
    merge_figures figures;
    friend bool operator==(const merged&, const merged&) = default;
};

struct evaluated {
    site_id site;
    darlcore::generation scored;
    double loss_sum = 0;
    std::uint64_t tokens = 0;
    std::uint64_t windows = 0;
    friend bool operator==(const evaluated&, const evaluated&) = default;
};

struct paused {
    std::string reason;
    friend bool operator==(const paused&, const paused&) = default;
};
struct resumed {
    friend bool operator==(const resumed&, const resumed&) = default;
};
struct stopped {
    stop_reason reason = stop_reason::site_operator;
    friend bool operator==(const stopped&, const stopped&) = default;
};

/// The run went back to the model of `target`, which is generation `next` from now on: a number above all that were
/// ever used.
struct rolled_back {
    darlcore::generation target;
    darlcore::generation next;
    model_files files;
    friend bool operator==(const rolled_back&, const rolled_back&) = default;
};

using record = std::variant<joined, left, obliged, declined, overdue, replaced, accepted, rejected, initialised, merged,
                            evaluated, paused, resumed, stopped, rolled_back>;

}  // namespace darlcore::round
