// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace darlcore::http {

/// Something that happened, for people and scripts: GET /events, the status page, logs.
struct event_entry {
    std::uint64_t sequence = 0;  ///< of the journal record; notices carry that of the record before them
    double wall_s = 0;
    std::string event;
    std::string site;
    std::string text;
};

/// The newest events in memory. Older ones are in the journal (`darl journal inspect`).
class event_log {
public:
    explicit event_log(std::size_t size_max = 20'000) : size_max_(size_max) {}

    void add(event_entry e) {
        entries_.push_back(std::move(e));
        if (entries_.size() > size_max_) {
            forgotten_ = entries_.front().sequence;
            entries_.pop_front();
        }
    }
    /// Nothing at or below this sequence is kept.
    [[nodiscard]] std::uint64_t forgotten() const { return forgotten_; }
    void begin_after(std::uint64_t sequence) { forgotten_ = sequence; }

    /// At most `count` entries behind sequence `after`, up to `durable`.
    [[nodiscard]] std::vector<event_entry> after(std::uint64_t after, std::size_t count, std::uint64_t durable) const {
        std::vector<event_entry> out;
        for (const event_entry& e : entries_) {
            if (e.sequence <= after) continue;
            if (e.sequence > durable || out.size() == count) break;
            out.push_back(e);
        }
        return out;
    }
    [[nodiscard]] std::vector<event_entry> newest(std::size_t count) const {
        const std::size_t n = std::min(count, entries_.size());
        return {entries_.end() - static_cast<std::ptrdiff_t>(n), entries_.end()};
    }

private:
    std::size_t size_max_;
    std::uint64_t forgotten_ = 0;
    std::deque<event_entry> entries_;
};

}  // namespace darlcore::http
