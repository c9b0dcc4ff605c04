// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "darlcore/interval_set.hpp"
#include "darlcore/ledger/machine_class.hpp"
#include "darlcore/ledger/records.hpp"

namespace darlcore::ledger {

/// True when the records replayed so far end with the one that made this generation; later records may follow it.
inline bool has_reached(const machine& m, generation g) {
    return m.rounds().durable().has_model && m.rounds().current() == g;
}

/// The records behind a cut, as far as they can be read: what they gave out, and what reached a model in them.
/// Use: replay a journal until `has_reached`, make a `left_out` of that state, add every later record.
/// Thread-safety: none.
class left_out {
public:
    explicit left_out(const machine& kept)
        : newest_(kept.rounds().current()), next_seq_(kept.leases().next_seq()), epoch_(kept.epoch()) {
        for (const auto number : kept.leases().pledging()) {
            const auto& pledge = *kept.leases().pledge_of(number);
            pledged_[pledge.id] = pledge.spans;
        }
    }

    void add(const record& r) {
        std::visit([&](const auto& fact) { take(fact); }, r);
    }
    /// Records that nothing readable holds: each may have given out as many leases as one answer can.
    void add_unreadable(std::uint64_t records) { next_seq_ += records * leases_per_record; }
    /// A generation that is known from elsewhere, such as the files of the model.
    void add_generation(generation g) { newest_ = std::max(newest_, g); }

    /// Highest number that was ever used.
    [[nodiscard]] generation newest() const { return newest_; }
    /// Above every sequence that was ever given out.
    [[nodiscard]] std::uint64_t next_seq() const { return next_seq_; }
    /// Blocks that reached a model, or under the policy on_checkpoint were committed; ascending by epoch.
    [[nodiscard]] std::vector<records::blocks_of_epoch> trained() const {
        std::vector<records::blocks_of_epoch> all;
        for (const auto& [epoch, blocks] : trained_) {
            all.push_back({epoch, {}});
            for (const auto& run : blocks.intervals()) all.back().spans.push_back(make_span(run.begin, run.end));
        }
        return all;
    }

private:
    static constexpr std::uint64_t leases_per_record = 64;

    template <class Fact>
    void take(const Fact&) {}
    void take(const lease::events::granted& fact) {
        for (const auto& l : fact.leases) next_seq_ = std::max(next_seq_, l.seq.count + 1);
    }
    void take(const lease::events::epoch_advanced& fact) { epoch_ = fact.to; }
    void take(const records::pledged& fact) {
        if (fact.leases) pledged_[fact.leases->id] = fact.leases->spans;
    }
    void take(const records::committed& fact) { note(fact.leases.from, fact.leases.through); }
    void take(const records::merge_commit& fact) {
        newest_ = std::max(newest_, fact.model.next);
        if (!fact.leases) return;
        for (const auto& id : fact.leases->merged)
            for (const auto& p : pledged_[id]) note(p.span.start, p.span.end);
        pledged_.clear();
    }
    void take(const records::rolled_back& fact) {
        newest_ = std::max(newest_, fact.model.next);
        next_seq_ = std::max(next_seq_, fact.leases.next_seq);
        pledged_.clear();
    }
    void note(position from, position through) { trained_[epoch_].insert({from.count, through.count}); }

    generation newest_;
    std::uint64_t next_seq_;
    epoch_index epoch_;
    std::map<contribution_id, std::vector<lease::pledged_span>> pledged_;
    std::map<epoch_index, interval_set> trained_;
};

/// The record that follows a cut: the model of the current generation of `kept` under a number that was never used, no
/// lease, pledge or process of before. Replaying it on `kept` gives the state to go on from.
/// `files`: those of the generation under its new number. `gone`: everything behind the cut.
/// Promises: numbers of generations and leases only rise over the whole history of a run, so that whatever a process
/// from before still sends names nothing that exists.
/// Preconditions (asserted): `kept` has a model.
inline records::rolled_back go_back(const machine& kept, const left_out& gone, const round::model_files& files) {
    DARLCORE_ASSERT(kept.rounds().durable().has_model);
    const generation next{gone.newest().count + 1};
    return {{next, gone.next_seq()}, {kept.rounds().current(), next, files}, gone.trained()};
}

}  // namespace darlcore::ledger
