// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <variant>
#include <vector>

#include "darlcore/plan/campaign.hpp"
#include "darlcore/plan/round_draft.hpp"

namespace darlcore::plan {

namespace detail {

/// The state machine of a campaign: from round to round, as many at once as nothing changes.
class campaign_engine {
public:
    campaign_engine(const campaign_model& model, const campaign_config& config)
        : m_(model), c_(config), strict_(config.rules == rule_set::strict), cursor_(model.lanes.size(), 0) {
        const double blocks = std::max(0.0, config.blocks_unassigned - config.blocks_reserve);
        left_ = static_cast<std::uint64_t>(std::floor(blocks * model.block_windows));
        attempts_ = config.num_rounds;
        if (config.target_tokens) target_windows_ = (*config.target_tokens + model.seq_len - 1) / model.seq_len;
        out_.lanes.resize(model.lanes.size());
    }

    campaign_outcome run() {
        while (t_ < c_.horizon_s && attempts_ > 0 && left_ > 0) {
            const std::uint64_t present = present_now();
            const std::uint64_t live = present & ~departed_;
            if (live == 0) {
                close_interval(interval_stop::walltime);
                const double next = present != 0 ? std::min(first_end(present), next_start()) : next_start();
                if (std::isinf(next)) return finish(end_reason::walltime);
                t_ = next;
                continue;
            }
            if (many_rounds(strict_ ? live : fitting(live))) continue;
            round_draft d = strict_ ? draft_strict(live, inner_steps()) : draft_reference(live);
            if (d.trainers() == 0) {
                close_interval(interval_stop::walltime);
                t_ = first_end(live);
                if (strict_) departed_ |= live;
                continue;
            }
            if (d.windows > left_) {
                if (!strict_) return finish(end_reason::corpus_exhausted);
                last_round(live);
                break;
            }
            if (strict_) departed_ |= live & ~d.full;
            apply(d, 1);
        }
        if (left_ == 0) return finish(end_reason::corpus_exhausted);
        if (attempts_ == 0) return finish(end_reason::attempts_exhausted);
        return finish(end_reason::horizon);
    }

private:
    [[nodiscard]] const lane_window& window(std::size_t lane) const { return m_.lanes[lane].windows[cursor_[lane]]; }
    [[nodiscard]] std::uint32_t inner_steps() const { return inner_steps_of(c_.inner_steps, round_, step_); }
    [[nodiscard]] double step_s(std::size_t lane) const {
        const member_cost& cost = m_.lanes[lane].cost;
        return static_cast<double>(cost.accumulation) * cost.step_s;
    }
    [[nodiscard]] std::uint64_t step_windows(std::size_t lane) const {
        const member_cost& cost = m_.lanes[lane].cost;
        return std::uint64_t{cost.accumulation} * cost.batch;
    }

    // Lanes with a window now. A new window of a lane begins afresh: whoever left the last one is back.
    std::uint64_t present_now() {
        std::uint64_t present = 0;
        for (std::size_t i = 0; i < m_.lanes.size(); ++i) {
            const auto& windows = m_.lanes[i].windows;
            while (cursor_[i] < windows.size() && windows[cursor_[i]].end_s <= t_) {
                ++cursor_[i];
                departed_ &= ~(std::uint64_t{1} << i);
            }
            if (cursor_[i] < windows.size() && windows[cursor_[i]].start_s <= t_) present |= std::uint64_t{1} << i;
        }
        return present;
    }

    // The next window of a lane that has not begun yet, or null.
    [[nodiscard]] const lane_window* coming(std::size_t lane) const {
        const auto& windows = m_.lanes[lane].windows;
        std::size_t k = cursor_[lane];
        if (k < windows.size() && windows[k].start_s <= t_) ++k;
        return k < windows.size() ? &windows[k] : nullptr;
    }

    [[nodiscard]] double next_start() const {
        double next = std::numeric_limits<double>::infinity();
        for (std::size_t i = 0; i < m_.lanes.size(); ++i)
            if (const lane_window* w = coming(i)) next = std::min(next, w->start_s);
        return next;
    }

    [[nodiscard]] double first_end(std::uint64_t live) const {
        double end = std::numeric_limits<double>::infinity();
        for_each_bit(live, [&](std::size_t i) { end = std::min(end, window(i).end_s); });
        return end;
    }

    void price(round_draft& d) const {
        double phase = 0;
        double others = 0;
        const auto add = [&](double o) {
            others = m_.overhead == overhead_rule::sum ? others + o : std::max(others, o);
        };
        d.windows = 0;
        for_each_bit(d.full, [&](std::size_t i) {
            phase = std::max(phase, d.inner_steps * step_s(i));
            add(m_.lanes[i].cost.overhead_s);
            d.windows += d.inner_steps * step_windows(i);
        });
        for_each_bit(d.leaving, [&](std::size_t i) {
            phase = std::max(phase, d.leaver_steps[i] * step_s(i));
            add(m_.lanes[i].cost.transfer_s);
            d.windows += d.leaver_steps[i] * step_windows(i);
        });
        for_each_bit(d.eval_only,
                     [&](std::size_t i) { add(m_.lanes[i].cost.overhead_s - m_.lanes[i].cost.transfer_s); });
        d.period_s = phase + d.stall_s + m_.merge_s + others;
    }

    // Adds who starts inside the round; true when somebody new did.
    bool add_joiners(round_draft& d) const {
        bool grew = false;
        for (std::size_t i = 0; i < m_.lanes.size(); ++i) {
            const std::uint64_t bit = std::uint64_t{1} << i;
            if (((d.full | d.eval_only) & bit) != 0) continue;
            const lane_window* w = coming(i);
            if (w == nullptr || w->start_s >= t_ + d.period_s) continue;
            d.eval_only |= bit;
            grew = true;
            if (!w->cold || ((charged_ | d.cold) & bit) != 0) continue;
            d.cold |= bit;
            d.stall_s = m_.join_stall_s;  // once, however many come at the same time
        }
        return grew;
    }

    // Rounds of `members` in which nobody comes, none of them leaves and the corpus suffices. False when there is none.
    bool many_rounds(std::uint64_t members) {
        if (members == 0) return false;
        round_draft d;
        d.full = members;
        d.inner_steps = inner_steps();
        price(d);
        const double margin = strict_ ? c_.leave_margin_s : 0;
        const double until = std::min(next_start(), first_end(members) - margin);
        const double fit = std::floor((until - t_) / d.period_s);
        if (fit < 1) return false;
        std::uint64_t n = std::min(attempts_, left_ / d.windows);
        if (fit < 9e15) n = std::min(n, static_cast<std::uint64_t>(fit));
        if (!std::holds_alternative<std::uint32_t>(c_.inner_steps)) n = std::min<std::uint64_t>(n, 1);
        if (n == 0) return false;
        apply(d, n);
        return true;
    }

    // Reference: those whose end does not come before the end of a round without stall and joiners.
    [[nodiscard]] std::uint64_t fitting(std::uint64_t live) const {
        round_draft d;
        d.full = live;
        d.inner_steps = inner_steps();
        while (d.full != 0) {
            price(d);
            const double end = t_ + d.period_s;
            std::uint64_t late = 0;
            for_each_bit(d.full, [&](std::size_t i) {
                if (window(i).end_s < end) late |= std::uint64_t{1} << i;
            });
            if (late == 0) break;
            d.full &= ~late;
        }
        return d.full;
    }

    [[nodiscard]] round_draft draft_reference(std::uint64_t live) const {
        round_draft d;
        d.full = fitting(live);
        d.inner_steps = inner_steps();
        if (d.full == 0) return d;
        price(d);
        while (add_joiners(d)) price(d);
        return d;
    }

    // Steps that a leaver can train and still upload before its end.
    [[nodiscard]] std::uint32_t leaver_steps(std::size_t i, const round_draft& d) const {
        const double room = window(i).end_s - c_.leave_margin_s - m_.lanes[i].cost.transfer_s - d.stall_s - t_;
        const double steps = std::floor(room / step_s(i));
        return steps < 1 ? 0 : static_cast<std::uint32_t>(std::min(steps, static_cast<double>(d.inner_steps)));
    }

    void split_leavers(round_draft& d, std::uint64_t live, std::uint64_t marked) const {
        d.full = live & ~marked;
        d.leaving = 0;
        for_each_bit(marked, [&](std::size_t i) {
            d.leaver_steps[i] = leaver_steps(i, d);
            if (d.leaver_steps[i] > 0) d.leaving |= std::uint64_t{1} << i;
        });
        price(d);
    }

    round_draft draft_strict(std::uint64_t live, std::uint32_t steps) const {
        std::uint64_t marked = 0;
        while (true) {
            round_draft d;
            d.inner_steps = steps;
            split_leavers(d, live, marked);
            if (d.trainers() == 0) return d;
            while (add_joiners(d)) split_leavers(d, live, marked);
            const double end = t_ + d.period_s + c_.leave_margin_s;
            std::uint64_t late = 0;
            for_each_bit(d.full, [&](std::size_t i) {
                if (window(i).end_s < end) late |= std::uint64_t{1} << i;
            });
            if (late == 0) return d;
            marked |= late;
        }
    }

    // The corpus holds less than a round: the largest H' that fits, and the rest in its last step.
    void last_round(std::uint64_t live) {
        std::uint32_t low = 1;
        std::uint32_t high = inner_steps();
        while (low < high) {
            const std::uint32_t middle = low + (high - low + 1) / 2;
            if (draft_strict(live, middle).windows <= left_)
                low = middle;
            else
                high = middle - 1;
        }
        round_draft d = draft_strict(live, low);
        ending_ = true;
        apply(d, 1);
    }

    void apply(const round_draft& d, std::uint64_t n) {
        const std::uint64_t trainers = d.trainers();
        const std::uint64_t windows = ending_ ? left_ : n * d.windows;
        std::uint64_t sites = 0;
        for_each_bit(trainers, [&](std::size_t i) { sites |= std::uint64_t{1} << m_.lanes[i].site; });
        const bool federated = std::popcount(sites) >= 2;
        open_interval(trainers);
        credit(d, n, federated);
        const auto count = static_cast<double>(n);
        if (federated) {
            if (!out_.first_federated_start_s) out_.first_federated_start_s = t_;
            out_.last_federated_start_s = t_ + (count - 1) * d.period_s;
            out_.federated_rounds += n;
        } else {
            out_.solo_rounds += n;
        }
        if (d.leaving != 0) ++out_.short_rounds;
        if (c_.collect_rounds)
            for (std::uint64_t k = 0; k < n; ++k)
                out_.rounds.push_back({t_ + static_cast<double>(k) * d.period_s, d.period_s, trainers, d.eval_only,
                                       d.inner_steps, ending_ ? left_ : d.windows});
        note_target(d, windows);
        t_ += count * d.period_s;
        left_ -= windows;
        out_.windows += windows;
        attempts_ -= n;
        round_ += n;
        step_ += n * d.inner_steps;
        charged_ |= d.cold;
        interval_.rounds += n;
        if (federated) interval_.federated += n;
        interval_.end_s = t_;
        interval_.windows_left = left_;
    }

    void credit(const round_draft& d, std::uint64_t n, bool federated) {
        std::uint64_t rest = ending_ && left_ > d.windows ? left_ - d.windows : 0;
        std::uint64_t budget = ending_ ? left_ : UINT64_MAX;
        for_each_bit(d.trainers(), [&](std::size_t i) {
            const bool leaves = (d.leaving >> i & 1U) != 0;
            const std::uint64_t steps = leaves ? d.leaver_steps[i] : d.inner_steps;
            const std::uint64_t extra = std::min(rest, step_windows(i));
            rest -= extra;
            const std::uint64_t own = std::min(n * steps * step_windows(i) + extra, budget);
            budget -= own;
            lane_outcome& lane = out_.lanes[i];
            lane.merges += n;
            if (federated) lane.federated += n;
            lane.windows += own;
            lane.compute_s += static_cast<double>(n * steps) * step_s(i);
        });
        for (auto& [mask, rounds] : out_.rounds_by_members) {
            if (mask != d.trainers()) continue;
            rounds += n;
            return;
        }
        out_.rounds_by_members.emplace_back(d.trainers(), n);
    }

    void note_target(const round_draft& d, std::uint64_t windows) {
        if (target_windows_ == 0 || out_.target_s || out_.windows + windows < target_windows_) return;
        const std::uint64_t missing = target_windows_ - out_.windows;
        const std::uint64_t rounds = d.windows == 0 ? 1 : (missing + d.windows - 1) / d.windows;
        out_.target_s = t_ + static_cast<double>(std::max<std::uint64_t>(1, ending_ ? 1 : rounds)) * d.period_s;
    }

    void open_interval(std::uint64_t members) {
        if (interval_.members == members) return;
        const bool left = (interval_.members & ~members) != 0;
        close_interval(left ? interval_stop::membership : interval_stop::joined);
        interval_ = {};
        interval_.start_s = t_;
        interval_.members = members;
    }

    void close_interval(interval_stop why) {
        if (interval_.members == 0) return;
        interval_.stop = why;
        if (c_.collect_intervals) out_.intervals.push_back(interval_);
        interval_.members = 0;
    }

    campaign_outcome finish(end_reason why) {
        out_.ended_by = why;
        out_.run_end_s = t_;
        out_.windows_left = left_;
        switch (why) {
            case end_reason::corpus_exhausted:
                out_.corpus_exhausted_s = t_;
                close_interval(interval_stop::corpus_exhausted);
                break;
            case end_reason::attempts_exhausted:
                out_.attempts_exhausted_s = t_;
                close_interval(interval_stop::attempts_exhausted);
                break;
            case end_reason::walltime:
                close_interval(interval_stop::walltime);
                break;
            case end_reason::horizon:
                close_interval(interval_stop::horizon);
                break;
        }
        return std::move(out_);
    }

    const campaign_model& m_;
    const campaign_config& c_;
    const bool strict_;
    std::vector<std::size_t> cursor_;
    double t_ = 0;
    std::uint64_t left_ = 0;
    std::uint64_t attempts_ = 0;
    std::uint64_t step_ = 0;
    std::uint64_t round_ = 0;
    std::uint64_t charged_ = 0;
    std::uint64_t departed_ = 0;  // left in their present window; out until the next one
    std::uint64_t target_windows_ = 0;
    bool ending_ = false;
    campaign_interval interval_;
    campaign_outcome out_;
};

}  // namespace detail

/// Simulates a campaign round by round, with a barrier, link ends, late joiners and a finite corpus; rounds in which
/// nothing changes are taken at once. `model` must have been made with `config`. Units: seconds since the plan's zero.
/// Determinism: a pure function. Complexity: O(changes of membership * lanes), plus the rounds when they are collected
/// or H changes by round. Source: paper section 4; differs under rule_set::strict: leavers upload what they can, the
/// last blocks are trained in one short round, jobs end when the corpus is drained (docs/placement.md).
inline campaign_outcome simulate(const campaign_model& model, const campaign_config& config) {
    return detail::campaign_engine(model, config).run();
}

}  // namespace darlcore::plan
