// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "backends/sim/event_loop.hpp"
#include "backends/sim/process.hpp"
#include "backends/sim/rng.hpp"

namespace darlcore::sim {

/// How one direction between two processes behaves. Delays are drawn per message, so messages overtake each other.
struct link_settings {
    std::int64_t delay_min_ms = 1;
    std::int64_t delay_max_ms = 5;
    double loss = 0;
    double duplication = 0;
    /// Chance of a delay ten times as long as the longest.
    double straggler = 0;
};

struct network_counts {
    std::uint64_t sent = 0;
    std::uint64_t delivered = 0;
    std::uint64_t lost = 0;
    std::uint64_t duplicated = 0;
    std::uint64_t delayed = 0;
    std::uint64_t blocked = 0;
    std::uint64_t to_the_dead = 0;
};

/// Messages between simulated processes: delay, loss, duplication, reordering, partitions of one direction or both.
/// Thread-safety: none. Determinism: a function of the seed and the order of the calls.
class network {
public:
    network(event_loop& loop, std::uint64_t seed) : loop_(loop), random_(seed) {}

    void set_default(const link_settings& settings) { default_ = settings; }
    void set_link(const process& from, const process& to, const link_settings& settings) {
        links_[{from.name(), to.name()}] = settings;
    }
    void clear_link(const process& one, const process& other) {
        links_.erase({one.name(), other.name()});
        links_.erase({other.name(), one.name()});
    }
    void clear_links() { links_.clear(); }
    /// Nothing passes in this direction any more; what is under way still arrives.
    void cut(const process& from, const process& to) { cuts_.insert({from.name(), to.name()}); }
    void heal(const process& from, const process& to) { cuts_.erase({from.name(), to.name()}); }
    void heal_all() { cuts_.clear(); }
    [[nodiscard]] bool is_cut(const process& from, const process& to) const {
        return cuts_.contains({from.name(), to.name()});
    }

    /// Runs `arrive` in the process `to` when (and if) the message gets there; twice if it is duplicated. A process
    /// that died meanwhile gets nothing, nor does its successor.
    void send(const process& from, process& to, std::function<void()> arrive) {
        ++counts_.sent;
        if (is_cut(from, to)) {
            ++counts_.blocked;
            return;
        }
        const auto link = links_.find({from.name(), to.name()});
        const link_settings& settings = link != links_.end() ? link->second : default_;
        if (random_.unit() < settings.loss) {
            ++counts_.lost;
            return;
        }
        const bool twice = random_.unit() < settings.duplication;
        deliver(settings, to, arrive);
        if (!twice) return;
        ++counts_.duplicated;
        deliver(settings, to, std::move(arrive));
    }

    [[nodiscard]] const network_counts& counts() const { return counts_; }

private:
    void deliver(const link_settings& settings, process& to, std::function<void()> arrive) {
        const auto width =
            static_cast<std::uint64_t>(std::max<std::int64_t>(settings.delay_max_ms - settings.delay_min_ms, 0));
        std::int64_t delay_ms = settings.delay_min_ms + static_cast<std::int64_t>(random_.below(width + 1));
        if (random_.unit() < settings.straggler) {
            delay_ms = settings.delay_max_ms * 10;
            ++counts_.delayed;
        }
        if (!to.is_alive()) {
            ++counts_.to_the_dead;
            return;
        }
        loop_.after(delay_ms, to.guarded([this, arrive = std::move(arrive)] {
            ++counts_.delivered;
            arrive();
        }));
    }

    event_loop& loop_;
    rng random_;
    link_settings default_;
    std::map<std::pair<std::string, std::string>, link_settings> links_;
    std::set<std::pair<std::string, std::string>> cuts_;
    network_counts counts_;
};

}  // namespace darlcore::sim
