// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <ostream>
#include <vector>

#include "darlcore/assert.hpp"

namespace darlcore {

/// Half-open range [begin, end) of plain numbers.
struct interval {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;

    [[nodiscard]] constexpr std::uint64_t size() const { return end - begin; }
    [[nodiscard]] constexpr bool empty() const { return begin == end; }
    friend constexpr bool operator==(const interval&, const interval&) = default;
    friend std::ostream& operator<<(std::ostream& out, const interval& i) {
        return out << '[' << i.begin << ", " << i.end << ')';
    }
};

/// A set of numbers kept as disjoint, non-touching intervals in ascending order; for sets that are mostly runs.
/// Complexity: n = intervals held; insert and erase O(log n + intervals swallowed), queries O(log n).
/// Thread-safety: a value.
class interval_set {
public:
    /// Adds [i.begin, i.end); returns how many numbers are new.
    /// Preconditions (asserted): i.begin <= i.end.
    std::uint64_t insert(interval i) {
        DARLCORE_ASSERT_CMP(i.begin, <=, i.end);
        if (i.empty()) return 0;
        const std::uint64_t before = count_;
        auto it = first_touching(i.begin);
        while (it != runs_.end() && it->first <= i.end) {
            i.begin = std::min(i.begin, it->first);
            i.end = std::max(i.end, it->second);
            count_ -= it->second - it->first;
            it = runs_.erase(it);
        }
        runs_.emplace_hint(it, i.begin, i.end);
        count_ += i.size();
        return count_ - before;
    }

    /// Takes out [i.begin, i.end); returns how many numbers were there.
    /// Preconditions (asserted): i.begin <= i.end.
    std::uint64_t erase(interval i) {
        DARLCORE_ASSERT_CMP(i.begin, <=, i.end);
        if (i.empty()) return 0;
        const std::uint64_t before = count_;
        auto it = first_touching(i.begin);
        while (it != runs_.end() && it->first < i.end) {
            const interval run{it->first, it->second};
            it = runs_.erase(it);
            count_ -= run.size();
            if (run.begin < i.begin) put(it, {run.begin, std::min(run.end, i.begin)});
            if (run.end > i.end) put(it, {std::max(run.begin, i.end), run.end});
        }
        return before - count_;
    }

    [[nodiscard]] bool contains(std::uint64_t x) const { return x != UINT64_MAX && covers({x, x + 1}); }

    /// True when every number of the interval is in the set.
    [[nodiscard]] bool covers(interval i) const {
        if (i.empty()) return true;
        auto it = runs_.upper_bound(i.begin);
        if (it == runs_.begin()) return false;
        return std::prev(it)->second >= i.end;
    }

    /// True when some number of the interval is in the set.
    [[nodiscard]] bool intersects(interval i) const {
        if (i.empty()) return false;
        const auto it = runs_.lower_bound(i.end);
        return it != runs_.begin() && std::prev(it)->second > i.begin;
    }

    /// The stretches of `within` that are not in the set, ascending.
    [[nodiscard]] std::vector<interval> gaps(interval within) const {
        std::vector<interval> out;
        std::uint64_t from = within.begin;
        for (auto it = first_touching(within.begin); it != runs_.end() && it->first < within.end; ++it) {
            if (it->first > from) out.push_back({from, it->first});
            from = std::max(from, it->second);
        }
        if (from < within.end) out.push_back({from, within.end});
        return out;
    }

    [[nodiscard]] std::vector<interval> intervals() const {
        std::vector<interval> out;
        out.reserve(runs_.size());
        for (const auto& [begin, end] : runs_) out.push_back({begin, end});
        return out;
    }

    /// Numbers in the set.
    [[nodiscard]] std::uint64_t count() const { return count_; }
    /// Intervals held.
    [[nodiscard]] std::size_t run_count() const { return runs_.size(); }
    [[nodiscard]] bool empty() const { return runs_.empty(); }
    void clear() {
        runs_.clear();
        count_ = 0;
    }

    friend bool operator==(const interval_set& a, const interval_set& b) { return a.runs_ == b.runs_; }

private:
    using run_map = std::map<std::uint64_t, std::uint64_t>;

    // First run whose end is at or beyond x.
    template <class Map>
    static auto first_touching_in(Map& runs, std::uint64_t x) {
        auto it = runs.upper_bound(x);
        if (it != runs.begin() && std::prev(it)->second >= x) --it;
        return it;
    }
    run_map::iterator first_touching(std::uint64_t x) { return first_touching_in(runs_, x); }
    [[nodiscard]] run_map::const_iterator first_touching(std::uint64_t x) const { return first_touching_in(runs_, x); }

    void put(run_map::iterator hint, interval i) {
        if (i.empty()) return;
        runs_.emplace_hint(hint, i.begin, i.end);
        count_ += i.size();
    }

    run_map runs_;
    std::uint64_t count_ = 0;
};

/// What an audit finds in a range that should be covered once.
struct coverage_report {
    std::uint64_t covered = 0;  ///< numbers of the range seen at least once
    std::vector<interval> missing;
    std::vector<interval> duplicated;  ///< seen twice or more
    std::uint64_t missing_count = 0;
    std::uint64_t duplicate_count = 0;  ///< surplus sightings: a number seen three times counts two
    std::uint64_t outside_count = 0;    ///< sightings outside the range

    [[nodiscard]] bool exactly_once() const { return missing_count == 0 && duplicate_count == 0 && outside_count == 0; }
};

/// Counts how often each number was seen; made for "every sample exactly once" audits from the sites' own records.
/// Complexity: add O(log borders); report O(borders).
class coverage_audit {
public:
    /// Preconditions (asserted): i.begin <= i.end.
    void add(interval i) {
        DARLCORE_ASSERT_CMP(i.begin, <=, i.end);
        if (i.empty()) return;
        ++borders_[i.begin];
        --borders_[i.end];
    }

    [[nodiscard]] coverage_report report(interval range) const {
        coverage_report out;
        std::uint64_t from = range.begin;
        std::int64_t depth = 0;
        std::uint64_t last = 0;
        for (const auto& [at, change] : borders_) {
            note_outside(out, range, {last, at}, depth);
            const std::uint64_t until = std::min(std::max(at, range.begin), range.end);
            note(out, {from, until}, depth);
            from = until;
            last = at;
            depth += change;
        }
        note(out, {from, range.end}, 0);
        return out;
    }

private:
    static void append(std::vector<interval>& list, interval i) {
        if (!list.empty() && list.back().end == i.begin)
            list.back().end = i.end;
        else
            list.push_back(i);
    }
    static void note(coverage_report& out, interval i, std::int64_t depth) {
        if (i.empty()) return;
        if (depth == 0) {
            append(out.missing, i);
            out.missing_count += i.size();
            return;
        }
        out.covered += i.size();
        if (depth == 1) return;
        append(out.duplicated, i);
        out.duplicate_count += i.size() * static_cast<std::uint64_t>(depth - 1);
    }
    static void note_outside(coverage_report& out, interval range, interval i, std::int64_t depth) {
        if (depth == 0) return;
        const std::uint64_t below = i.begin < range.begin ? std::min(i.end, range.begin) - i.begin : 0;
        const std::uint64_t above = i.end > range.end ? i.end - std::max(i.begin, range.end) : 0;
        out.outside_count += (below + above) * static_cast<std::uint64_t>(depth);
    }

    std::map<std::uint64_t, std::int64_t> borders_;
};

}  // namespace darlcore
