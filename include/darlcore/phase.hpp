// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "darlcore/epoch_map.hpp"
#include "darlcore/error.hpp"
#include "darlcore/phase_group.hpp"
#include "darlcore/sizing.hpp"
#include "darlcore/units.hpp"

namespace darlcore {

/// Where a phase may end: after this many of its groups, at this step count.
struct phase_end {
    std::size_t groups = 0;
    std::uint64_t steps = 0;

    friend bool operator==(const phase_end&, const phase_end&) = default;
};

/// One phase of a stream: which windows each rank trains in each step. Every window of a block reaches the model in one
/// phase, or none does: the last step is ragged, nothing is carried over and nothing dropped. Y = the groups' shuffled
/// windows, concatenated. Step s takes Y[s G, min((s + 1) G, |Y|)); in it rank r takes every W-th, from the r-th.
/// Determinism: a function of (parameters, epoch, groups, shape); equal on every rank, without any exchange of index
/// lists. Memory: O(groups); the windows themselves come from a `phase_reader`. Thread-safety: immutable. Source:
/// differs from the reference, which carried what did not divide by the ranks into the next phase.
class phase_plan {
public:
    /// Errors: errc::invalid_argument (a span outside the epoch, a group above 2^31 - 1 windows, a factor of 0),
    /// errc::overflow.
    static result<phase_plan> make(std::shared_ptr<const epoch_map> map, std::vector<phase_group> groups,
                                   const batch_shape& shape) {
        DARLCORE_ASSERT(map != nullptr);
        const auto batch = global_batch(shape);
        if (!batch) return batch.error();
        phase_plan plan(std::move(map), std::move(groups), shape, *batch);
        const auto counted = plan.count_windows();
        if (!counted) return counted.error();
        return plan;
    }

    [[nodiscard]] const epoch_map& map() const { return *map_; }
    [[nodiscard]] const std::vector<phase_group>& groups() const { return groups_; }
    [[nodiscard]] const batch_shape& shape() const { return shape_; }
    [[nodiscard]] std::uint64_t global_batch_windows() const { return global_batch_; }

    /// |Y|
    [[nodiscard]] std::uint64_t num_windows() const { return group_ends_.empty() ? 0 : group_ends_.back(); }

    /// S = ceil(|Y| / G)
    [[nodiscard]] std::uint64_t num_steps() const { return steps_for(num_windows()); }

    /// Real windows of a step, G but for the last: the divisor of its gradient sum.
    /// Preconditions (asserted): step < num_steps().
    [[nodiscard]] std::uint64_t step_windows(std::uint64_t step) const {
        DARLCORE_ASSERT_CMP(step, <, num_steps());
        return std::min(global_batch_, num_windows() - step * global_batch_);
    }

    /// Micro-batches that every rank runs in a step, whether it has windows or not: collectives stay equal in number.
    /// Preconditions (asserted): step < num_steps().
    [[nodiscard]] std::uint64_t micro_batches(std::uint64_t step) const {
        return ceil_div(ceil_div(step_windows(step), shape_.ranks), shape_.batch);
    }

    /// Groups whose last window was in one of the first `applied_steps` steps. What has been trained are exactly their
    /// blocks and, until the next allowed end, windows of groups that must still be finished.
    [[nodiscard]] std::size_t groups_trained(std::uint64_t applied_steps) const {
        const std::uint64_t used = windows_used(applied_steps);
        return static_cast<std::size_t>(std::upper_bound(group_ends_.begin(), group_ends_.end(), used) -
                                        group_ends_.begin());
    }

    /// Steps after which a group is trained.
    /// Preconditions (asserted): group < groups().size().
    [[nodiscard]] std::uint64_t group_trained_after_step(std::size_t group) const {
        DARLCORE_ASSERT_CMP(group, <, group_ends_.size());
        return steps_for(group_ends_[group]);
    }

    /// Spans that may be called trained after `applied_steps` steps, in group order: their ends are the trained
    /// watermarks of the leases they belong to.
    [[nodiscard]] std::vector<span> trained_spans(std::uint64_t applied_steps) const {
        std::vector<span> out;
        for (std::size_t g = 0; g < groups_trained(applied_steps); ++g)
            out.insert(out.end(), groups_[g].spans.begin(), groups_[g].spans.end());
        return out;
    }

    /// The earliest place where the phase may end when `applied_steps` steps were applied: no window of an unfinished
    /// group may have been in one of them. No time for it means that nothing of the phase is contributed. Preconditions
    /// (asserted): applied_steps <= num_steps().
    [[nodiscard]] phase_end earliest_end(std::uint64_t applied_steps) const {
        DARLCORE_ASSERT_CMP(applied_steps, <=, num_steps());
        const std::uint64_t used = windows_used(applied_steps);
        if (used == 0) return {};
        const auto end = std::lower_bound(group_ends_.begin(), group_ends_.end(), used);
        return {static_cast<std::size_t>(end - group_ends_.begin()) + 1, steps_for(*end)};
    }

    /// The plan that ends after the first `groups` groups: the remaining windows of the last one form its ragged step.
    /// Steps applied so far are the same in both plans up to the allowed end. Preconditions (asserted): groups <=
    /// groups().size().
    [[nodiscard]] phase_plan ended_after(std::size_t groups) const {
        DARLCORE_ASSERT_CMP(groups, <=, groups_.size());
        phase_plan plan = *this;
        plan.groups_.resize(groups);
        plan.group_ends_.resize(groups);
        return plan;
    }

    /// Group that place y of Y belongs to, and the place of its first window.
    /// Preconditions (asserted): y < num_windows(). Complexity: O(log groups).
    [[nodiscard]] std::pair<std::size_t, std::uint64_t> group_of(std::uint64_t y) const {
        DARLCORE_ASSERT_CMP(y, <, num_windows());
        const auto end = std::upper_bound(group_ends_.begin(), group_ends_.end(), y);
        const auto group = static_cast<std::size_t>(end - group_ends_.begin());
        return {group, group == 0 ? 0 : group_ends_[group - 1]};
    }

private:
    phase_plan(std::shared_ptr<const epoch_map> map, std::vector<phase_group> groups, const batch_shape& shape,
               std::uint64_t batch)
        : map_(std::move(map)), groups_(std::move(groups)), shape_(shape), global_batch_(batch) {}

    static std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }
    [[nodiscard]] std::uint64_t steps_for(std::uint64_t windows) const { return ceil_div(windows, global_batch_); }
    [[nodiscard]] std::uint64_t windows_used(std::uint64_t steps) const {
        return steps >= num_steps() ? num_windows() : steps * global_batch_;
    }

    result<void> count_windows() {
        std::uint64_t end = 0;
        for (const phase_group& group : groups_) {
            for (const span& s : group.spans)
                if (s.end.count > map_->num_blocks() || s.start > s.end)
                    return fail(errc::invalid_argument, "a span of the phase ends at position " +
                                                            std::to_string(s.end.count) + ", the epoch has " +
                                                            std::to_string(map_->num_blocks()));
            const std::uint64_t windows = window_count(*map_, group);
            if (windows > mt_shuffle_entries_max)
                return fail(errc::invalid_argument, "a group of " + std::to_string(windows) +
                                                        " windows is too large to shuffle (2^31 - 1): use more groups");
            if (windows > UINT64_MAX - end) return fail(errc::overflow, "the windows of the phase do not fit 64 bits");
            end += windows;
            group_ends_.push_back(end);
        }
        return {};
    }

    std::shared_ptr<const epoch_map> map_;
    std::vector<phase_group> groups_;
    batch_shape shape_;
    std::uint64_t global_batch_ = 1;
    std::vector<std::uint64_t> group_ends_;  // in Y, ascending
};

/// Reads the windows of a phase for one rank, lazily.
/// Memory: the order of one group at a time (4 bytes per window of it); never a list of all windows of the phase.
/// Complexity: O(1) per window when read in order; entering a group, also by a seek, costs O(windows of that group).
/// Thread-safety: none; one per thread. The plan must outlive it.
class phase_reader {
public:
    explicit phase_reader(const phase_plan& plan) : plan_(&plan) {}
    explicit phase_reader(phase_plan&&) = delete;

    /// Y[y]. Preconditions (asserted): y < num_windows().
    std::uint64_t window_at(std::uint64_t y) {
        const auto [group, first] = plan_->group_of(y);
        if (!order_ || group_ != group) {
            order_.emplace(plan_->map(), plan_->groups()[group]);
            group_ = group;
        }
        return (*order_)[y - first];
    }

    /// The windows of one micro-batch: `out` gets exactly B of them, of which the returned number are real. The rest
    /// are filler: they run with loss weight 0, so that all ranks make the same collective calls. Preconditions
    /// (asserted): rank < W, step < num_steps(), micro_batch < micro_batches(step).
    std::size_t read(std::uint64_t rank, std::uint64_t step, std::uint64_t micro_batch,
                     std::vector<std::uint64_t>& out) {
        const batch_shape& shape = plan_->shape();
        DARLCORE_ASSERT_CMP(rank, <, shape.ranks);
        DARLCORE_ASSERT_CMP(micro_batch, <, plan_->micro_batches(step));
        const std::uint64_t first = step * plan_->global_batch_windows();
        const std::uint64_t windows = plan_->step_windows(step);
        out.clear();
        for (std::uint64_t i = micro_batch * shape.batch; i < (micro_batch + 1) * shape.batch; ++i) {
            const std::uint64_t place = rank + i * shape.ranks;
            if (place >= windows) break;
            out.push_back(window_at(first + place));
        }
        const std::size_t real = out.size();
        if (real < shape.batch)
            out.resize(static_cast<std::size_t>(shape.batch), real > 0 ? out.back() : filler(first));
        return real;
    }

private:
    // Any window does; one of the group at hand costs nothing.
    std::uint64_t filler(std::uint64_t first) {
        if (order_ && order_->size() > 0) return (*order_)[0];
        return window_at(first);
    }

    const phase_plan* plan_;
    std::optional<group_order> order_;
    std::size_t group_ = 0;
};

}  // namespace darlcore
