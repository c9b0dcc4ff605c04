// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "darlcore/lease/requests.hpp"
#include "darlcore/units.hpp"

namespace darlcore::testing {

/// A well-behaved site in a few lines: beats with every step, gathers leases for a phase, ends the phase short when it
/// is told to drain, contributes what it holds, and waits only with empty hands. Works under both commit policies.
/// Every position it reads is recorded with its phase, so that the sites' own records can be audited.
class lease_site {
public:
    struct phase_record {
        std::string contribution;  // empty: lost or refused, so trained for nothing
        std::vector<span> read;
    };

    lease_site(std::string name, std::uint64_t phase_blocks, std::uint64_t process = 1)
        : who_{site_id{std::move(name)}, incarnation{11, process}}, phase_blocks_(phase_blocks) {}

    /// One step of the site; `sink` gets the events. Returns how long it would wait now. Units: milliseconds.
    template <class Table, class Sink>
    std::int64_t step(Table& table, ledger_time now, Sink&& sink) {
        if (!joined_) return join(table, now, sink);
        beat(table, now, sink);
        if (waiting_for_merge(table)) return 1000;
        if (!claims_.empty()) return contribute(table, now, sink);
        const auto mine = table.leases_of(*table.find_site(who_.site.name));
        std::uint64_t held = 0;
        for (const auto& l : mine) held += l.at_risk().size();
        if (held < phase_blocks_ && !draining_) return gather(table, now, sink, phase_blocks_ - held);
        draining_ = false;
        return read(table, now, sink, mine);
    }
    [[nodiscard]] bool finished() const noexcept { return finished_; }
    [[nodiscard]] const std::vector<phase_record>& phases() const noexcept { return phases_; }
    [[nodiscard]] const lease::caller& who() const noexcept { return who_; }
    /// The process dies: what it read stays in its record, and the next step is that of a new process, which names the
    /// old one to the table if `requeued`.
    void crash(bool requeued = false) {
        end_phase();
        if (requeued) take_over_ = who_.incarnation;
        ++who_.incarnation.low;
        joined_ = false;
        draining_ = false;
    }

private:
    template <class Table, class Sink, class Request>
    auto call(Table& table, ledger_time now, Sink& sink, const Request& in) {
        auto out = table.apply(in, now);
        for (const auto& e : out.events) sink(e);
        return out;
    }
    template <class Table, class Sink>
    std::int64_t join(Table& table, ledger_time now, Sink& sink) {
        lease::register_site in;
        in.who = who_;
        in.take_over = take_over_;
        const auto out = call(table, now, sink, in);
        joined_ = out.ok();
        take_over_.reset();
        return joined_ ? 0 : std::max<std::int64_t>(out.refused().retry_after_ms, 1000);
    }
    template <class Table, class Sink>
    void beat(Table& table, ledger_time now, Sink& sink) {
        lease::heartbeat in;
        in.who = who_;
        for (const auto& l : table.leases_of(*table.find_site(who_.site.name)))
            in.leases.push_back({ref_to(l), {}, {}});
        call(table, now, sink, in);
    }
    template <class Table>
    bool waiting_for_merge(const Table& table) const {
        return table.rules().commit_policy == lease::commit_policy::on_merge &&
               table.pledge_of(*table.find_site(who_.site.name)) != nullptr;
    }
    template <class Table, class Sink>
    std::int64_t gather(Table& table, ledger_time now, Sink& sink, std::uint64_t want) {
        lease::acquire in;
        in.who = who_;
        in.want = want;
        in.request_id = who_.site.name + std::to_string(who_.incarnation.low) + "-" + std::to_string(++requests_);
        const auto out = call(table, now, sink, in);
        if (!out.ok()) {
            draining_ = out.refused().code == errc::overloaded;  // holds as much as it may: work on it
            joined_ = draining_;
            return 1000;
        }
        finished_ = out.reply().status == lease::acquire_status::epoch_complete;
        if (out.reply().status == lease::acquire_status::granted) return 0;
        draining_ = out.reply().outstanding_mine > 0;
        return draining_ ? 0 : out.reply().retry_after_ms;
    }
    /// Reserves everything it holds and reads it; the contribution follows with the next step.
    template <class Table, class Sink>
    std::int64_t read(Table& table, ledger_time now, Sink& sink, const std::vector<lease::lease_record>& mine) {
        phase_ = {};
        for (const auto& l : mine) {
            const auto out = call(table, now, sink, lease::reserve{who_, ref_to(l), l.end});
            if (!out.ok()) continue;
            const position through = out.reply().reserved_end;
            phase_.read.push_back({l.done_end, through});
            claims_.push_back({ref_to(l), l.done_end, through});
        }
        return 0;
    }
    template <class Table, class Sink>
    std::int64_t contribute(Table& table, ledger_time now, Sink& sink) {
        const std::string id =
            who_.site.name + "-" + std::to_string(who_.incarnation.low) + "-" + std::to_string(++contributions_);
        if (table.rules().commit_policy == lease::commit_policy::on_checkpoint) {
            for (const auto& c : claims_) call(table, now, sink, lease::commit{who_, c.lease, c.through});
            phase_.contribution = id;
        } else {
            lease::pledge in;
            in.who = who_;
            in.id = {id};
            in.base = table.generation();
            in.claims = claims_;
            if (call(table, now, sink, in).ok()) phase_.contribution = id;  // else trained for nothing
        }
        end_phase();
        return 0;
    }
    void end_phase() {
        if (!phase_.read.empty()) phases_.push_back(std::move(phase_));
        phase_ = {};
        claims_.clear();
    }

    lease::caller who_;
    std::uint64_t phase_blocks_;
    std::optional<incarnation> take_over_;
    phase_record phase_;  // read, not contributed yet
    std::vector<lease::claim> claims_;
    std::vector<phase_record> phases_;
    std::uint64_t requests_ = 0;
    std::uint64_t contributions_ = 0;
    bool joined_ = false;
    bool draining_ = false;
    bool finished_ = false;
};

}  // namespace darlcore::testing
