// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "darlcore/plan/campaign.hpp"

namespace darlcore::testing {

struct plain_outcome {
    std::uint64_t federated = 0;
    std::uint64_t solo = 0;
    std::uint64_t windows = 0;
    double end_s = 0;
};

/// Twin of `simulate` under the strict rules, for fixed inner steps: one round at a time, sets of lane numbers, every
/// window looked at every time.
class plain_campaign {
public:
    plain_campaign(const plan::campaign_model& m, const plan::campaign_config& c)
        : m_(m), c_(c), h_(std::get<std::uint32_t>(c.inner_steps)) {}

    plain_outcome run() {
        auto left = static_cast<std::uint64_t>(
            std::floor(std::max(0.0, c_.blocks_unassigned - c_.blocks_reserve) * m_.block_windows));
        plain_outcome out;
        for (std::uint64_t attempt = 0; t_ < c_.horizon_s && left > 0 && attempt < c_.num_rounds;) {
            std::set<std::size_t> live;
            for (std::size_t i = 0; i < m_.lanes.size(); ++i)
                if (window_at(i) && !gone(i)) live.insert(i);
            if (live.empty()) {
                if (!advance()) break;
                continue;
            }
            round r = plan_round(live, h_);
            if (r.full.empty() && r.leavers.empty()) {
                double end = std::numeric_limits<double>::infinity();
                for (const std::size_t i : live) {
                    end = std::min(end, window_at(i)->end_s);
                    leave(i);
                }
                t_ = end;
                continue;
            }
            if (r.windows > left) {
                std::uint32_t best = 1;
                for (std::uint32_t h = 1; h <= h_; ++h)
                    if (plan_round(live, h).windows <= left) best = h;
                r = plan_round(live, best);
                r.windows = left;
            }
            std::set<std::uint32_t> sites;
            for (const std::size_t i : r.full) sites.insert(m_.lanes[i].site);
            for (const auto& [i, steps] : r.leavers) sites.insert(m_.lanes[i].site);
            ++(sites.size() > 1 ? out.federated : out.solo);
            for (const std::size_t i : live)
                if (r.full.count(i) == 0) leave(i);
            for (const std::size_t i : r.cold) charged_.insert(i);
            out.windows += r.windows;
            left -= r.windows;
            t_ += r.period;
            ++attempt;
        }
        out.end_s = t_;
        return out;
    }

private:
    struct round {
        std::set<std::size_t> full;
        std::vector<std::pair<std::size_t, std::uint32_t>> leavers;
        std::set<std::size_t> eval_only, cold;
        double period = 0;
        std::uint64_t windows = 0;
    };

    [[nodiscard]] const plan::lane_window* window_at(std::size_t i) const {
        for (const auto& w : m_.lanes[i].windows)
            if (w.start_s <= t_ && t_ < w.end_s) return &w;
        return nullptr;
    }
    void leave(std::size_t i) { gone_.insert({i, window_at(i)->start_s}); }
    [[nodiscard]] bool gone(std::size_t i) const { return gone_.count({i, window_at(i)->start_s}) > 0; }

    bool advance() {
        double next = std::numeric_limits<double>::infinity();
        for (const auto& lane : m_.lanes) {
            for (const auto& w : lane.windows) {
                if (w.start_s > t_) next = std::min(next, w.start_s);
                if (w.start_s <= t_ && w.end_s > t_) next = std::min(next, w.end_s);
            }
        }
        if (std::isinf(next)) return false;
        t_ = next;
        return true;
    }

    void price(round& r, std::uint32_t h) const {
        double phase = 0, overhead = m_.merge_s;
        r.windows = 0;
        for (const std::size_t i : r.full) {
            const auto& k = m_.lanes[i].cost;
            phase = std::max(phase, h * k.accumulation * k.step_s);
            overhead += k.overhead_s;
            r.windows += std::uint64_t{h} * k.accumulation * k.batch;
        }
        for (const auto& [i, steps] : r.leavers) {
            const auto& k = m_.lanes[i].cost;
            phase = std::max(phase, steps * k.accumulation * k.step_s);
            overhead += k.transfer_s;
            r.windows += std::uint64_t{steps} * k.accumulation * k.batch;
        }
        for (const std::size_t i : r.eval_only) overhead += m_.lanes[i].cost.overhead_s - m_.lanes[i].cost.transfer_s;
        r.period = phase + (r.cold.empty() ? 0 : m_.join_stall_s) + overhead;
    }

    [[nodiscard]] round plan_round(const std::set<std::size_t>& live, std::uint32_t h) const {
        std::set<std::size_t> marked;
        while (true) {
            round r;
            for (bool grew = true; grew;) {
                grew = false;
                r.full.clear();
                r.leavers.clear();
                for (const std::size_t i : live) {
                    if (marked.count(i) == 0) {
                        r.full.insert(i);
                        continue;
                    }
                    const auto& k = m_.lanes[i].cost;
                    const double room = window_at(i)->end_s - c_.leave_margin_s - k.transfer_s -
                                        (r.cold.empty() ? 0 : m_.join_stall_s) - t_;
                    const double steps = std::floor(room / (k.accumulation * k.step_s));
                    if (steps >= 1) r.leavers.emplace_back(i, static_cast<std::uint32_t>(std::min<double>(steps, h)));
                }
                price(r, h);
                if (r.full.empty() && r.leavers.empty()) return r;
                const double end = t_ + r.period;
                for (std::size_t i = 0; i < m_.lanes.size(); ++i) {
                    if (r.full.count(i) + r.eval_only.count(i) > 0) continue;
                    for (const auto& w : m_.lanes[i].windows) {
                        if (w.start_s <= t_ || w.start_s >= end || r.eval_only.count(i) > 0) continue;
                        r.eval_only.insert(i);
                        if (w.cold && charged_.count(i) == 0) r.cold.insert(i);
                        grew = true;
                    }
                }
            }
            const std::size_t before = marked.size();
            for (const std::size_t i : r.full)
                if (window_at(i)->end_s < t_ + r.period + c_.leave_margin_s) marked.insert(i);
            if (marked.size() == before) return r;
        }
    }

    const plan::campaign_model& m_;
    const plan::campaign_config& c_;
    std::uint32_t h_;
    double t_ = 0;
    std::set<std::pair<std::size_t, double>> gone_;
    std::set<std::size_t> charged_;
};

}  // namespace darlcore::testing
