// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "darlcore/lease/requests.hpp"
#include "darlcore/lease/settings.hpp"
#include "darlcore/lease/ttl.hpp"

namespace darlcore::testing {

namespace detail {

/// What the twin knows and how it changes; the requests are in lease_twin.hpp.
struct lease_twin_world {
    lease_twin_world(std::uint64_t num_blocks, lease::settings rules) : rules_(rules), blocks_(num_blocks) {}

    using lease_record = lease::lease_record;
    using block_state = lease::block_state;
    using close_reason = lease::close_reason;

    struct history {
        std::set<std::uint32_t> sites;
        std::uint32_t losses = 0;
        std::uint64_t lost_run = 0;
        bool last_chance = false;
        friend bool operator==(const history&, const history&) = default;
    };
    struct block {
        block_state state = block_state::unassigned;
        history past;
    };
    struct held_lease {
        lease_record r;
        std::optional<close_reason> closed;
        ledger_time written;  // deadline as of the last event or tick
        std::int64_t written_ttl = 0;
        bool beaten = false;
    };
    struct said {  // what a site told of itself
        ledger_time seen = never;
        std::int64_t macro = 0, rtt = 0;
    };
    struct site {
        std::string name;
        incarnation process;
        lease::site_mode mode = lease::site_mode::full;
        std::set<incarnation> gone;
        std::uint32_t processes = 1, fruitless = 0, ranks = 0;
        said live, written;
        std::uint64_t rate = 0, sample = 0, cursor = 0;
        bool sampling = false, ever_counted = false;
        ledger_time opened, last, draining = never;
        lease::acquire_reason answer = lease::acquire_reason::none;
        std::uint64_t useful = 0, counted = 0;
        std::vector<std::pair<std::string, std::vector<lease_seq>>> requests;
        std::map<std::string, lease::pledge_reply> answers;
        std::optional<lease::pledge> pledged;
        std::vector<span> pledged_spans;
    };
    static constexpr ledger_time never{-(std::int64_t{1} << 62)};

    // --- looking -------------------------------------------------------------------------------------------------
    std::uint64_t count(block_state s) const {
        return static_cast<std::uint64_t>(
            std::count_if(blocks_.begin(), blocks_.end(), [&](const block& b) { return b.state == s; }));
    }
    std::uint64_t held(std::uint32_t n) const {
        std::uint64_t sum = 0;
        for (const auto& [seq, l] : leases_)
            if (!l.closed && l.r.site.count == n) sum += l.r.at_risk().size();
        return sum;
    }
    std::uint64_t reserved(std::uint32_t n) const {
        std::uint64_t sum = 0;
        for (const auto& [seq, l] : leases_)
            if (!l.closed && l.r.site.count == n) sum += l.r.maybe_read().size();
        return sum;
    }
    std::uint64_t pledged(std::uint32_t n) const {
        std::uint64_t sum = 0;
        for (const span s : sites_[n].pledged_spans) sum += s.size();
        return sum;
    }
    std::uint64_t open_leases(std::optional<std::uint32_t> n = {}) const {
        std::uint64_t sum = 0;
        for (const auto& [seq, l] : leases_) sum += !l.closed && (!n || l.r.site.count == *n) ? 1U : 0U;
        return sum;
    }
    bool second_chance_open() const {
        return rules_.quarantine_second_chance && !chance_used_ && count(block_state::quarantined) > 0;
    }
    bool complete() const {
        return count(block_state::committed) + count(block_state::quarantined) == blocks_.size() &&
               !second_chance_open();
    }
    bool is_live(std::uint32_t n) const {
        return open_leases(n) > 0 ||
               sites_[n].live.seen.ms >= now_.ms - lease::live_window_ms(rules_, sites_[n].live.rtt);
    }
    std::uint64_t rate_of(std::uint32_t n) const {
        if (sites_[n].rate != 0) return sites_[n].rate;
        std::uint64_t sum = 0, measured = 0;
        for (const site& s : sites_) {
            sum += s.rate;
            measured += s.rate != 0 ? 1U : 0U;
        }
        return measured == 0 ? 1000000 : std::max<std::uint64_t>(sum / measured, 1);
    }
    std::uint32_t check_caller(const lease::caller& who) const {
        if (!is_valid_name(who.site.name)) throw errc::bad_request;
        for (std::uint32_t n = 0; n < sites_.size(); ++n) {
            if (sites_[n].name != who.site.name) continue;
            const bool unchecked = sites_[n].mode == lease::site_mode::legacy && who.incarnation.is_none();
            if (!unchecked && who.incarnation != sites_[n].process) throw errc::fenced;
            return n;
        }
        throw errc::unknown_site;
    }
    held_lease& named(const lease::lease_ref& ref, std::uint32_t n) {
        const auto it = leases_.find(ref.seq.count);
        if (ref.epoch != epoch_ || it == leases_.end() || it->second.r.start != ref.start) throw errc::lease_gone;
        held_lease& l = it->second;
        const auto remembered = {close_reason::released, close_reason::dropped};
        if (l.closed && std::find(remembered.begin(), remembered.end(), *l.closed) != remembered.end())
            throw errc::lease_gone;
        if (l.r.site.count != n) throw errc::not_owner;
        if (ref.token && *ref.token != l.r.token()) throw errc::fenced;
        return l;
    }
    held_lease& open(const lease::lease_ref& ref, std::uint32_t n) {
        held_lease& l = named(ref, n);
        if (l.closed) throw errc::lease_gone;
        return l;
    }
    bool all(span s, block_state state) const {
        for (position p = s.start; p < s.end; ++p.count)
            if (blocks_[p.count].state != state) return false;
        return true;
    }

    // --- changing ------------------------------------------------------------------------------------------------
    void set(span s, block_state state) {
        for (position p = s.start; p < s.end; ++p.count) blocks_[p.count].state = state;
    }
    void forget(span s) {
        for (position p = s.start; p < s.end; ++p.count) blocks_[p.count].past = {};
    }
    void lose(span s, std::uint32_t n) {
        for (position p = s.start; p < s.end; ++p.count) {
            block& b = blocks_[p.count];
            b.past.sites.insert(n);
            ++b.past.losses;
            b.past.lost_run = s.size();
            if (rules_.max_attempts == 0) continue;
            if (b.past.sites.size() >= rules_.max_attempts || b.past.losses >= rules_.max_losses || b.past.last_chance)
                b.state = block_state::quarantined;
        }
    }
    void fruitless(std::uint32_t n, std::uint64_t grant) {
        site& s = sites_[n];
        if (grant != 0 && (grant == s.useful || grant == s.counted)) return;
        s.counted = grant;
        ++s.fruitless;
    }
    void seen(std::uint32_t n) { sites_[n].live.seen = sites_[n].written.seen = now_; }
    void touch(std::uint32_t n, const lease::site_report& r = {}) {
        said& live = sites_[n].live;
        live.seen = now_;
        if (const auto ms = lease::claimed_ms(r.macro_step_s, 86400); ms > 0) live.macro = ms;
        if (const auto ms = lease::claimed_ms(r.rtt_s, 60); ms > 0) live.rtt = ms;
    }
    ledger_time hold(std::uint32_t n) const { return now_ + lease::hold_limit_ms(rules_, sites_[n].live.macro); }
    // Busy rate: open with the first reservation, closed when nothing reserved is left or at the next reserve or grant.
    void close_sample(site& s) {
        s.sampling = false;
        if (s.sample == 0) return;
        const auto ms = static_cast<std::uint64_t>(std::max<std::int64_t>(s.last - s.opened, 1000));
        const std::uint64_t r = std::max<std::uint64_t>(s.sample * 1000000000 / ms, 1);
        s.rate = s.rate == 0 ? r : std::max<std::uint64_t>((7 * s.rate + 3 * r) / 10, 1);
        s.sample = 0;
    }
    void before_work(std::uint32_t n) {
        site& s = sites_[n];
        if (!s.sampling || s.sample == 0) return;
        close_sample(s);
        s.sampling = reserved(n) > 0;
        s.opened = s.last = now_;
    }
    void after_change(std::uint32_t n, std::uint64_t before) {
        site& s = sites_[n];
        if (before == 0 && reserved(n) > 0) {
            s.sampling = true;
            s.opened = s.last = now_;
            s.sample = 0;
        } else if (reserved(n) == 0 && s.sampling) {
            close_sample(s);
        }
    }
    void contributed(std::uint32_t n, std::uint64_t blocks) {
        sites_[n].ever_counted = true;
        if (!sites_[n].sampling || blocks == 0) return;
        sites_[n].sample += blocks;
        sites_[n].last = now_;
    }
    void drop(held_lease& l, close_reason reason) {
        const std::uint32_t n = l.r.site.count;
        const std::uint64_t before = reserved(n);
        set(l.r.at_risk(), block_state::unassigned);
        lose(l.r.maybe_read(), n);
        fruitless(n, l.r.grant.count);
        l.closed = reason;
        after_change(n, before);
    }
    void expire() {
        for (auto& [seq, l] : leases_)
            if (!l.closed && std::min(l.r.deadline, l.r.hold_deadline) < now_) drop(l, close_reason::expired);
    }
    void next_epoch() {
        epoch_.count += 1;
        for (std::uint32_t n = 0; n < sites_.size(); ++n) {
            if (sites_[n].sampling) close_sample(sites_[n]);
            sites_[n].cursor = 0;
            sites_[n].draining = never;
            sites_[n].answer = lease::acquire_reason::none;
        }
        leases_.clear();
        blocks_.assign(blocks_.size(), {});
        chance_used_ = false;
    }
    void advance_done_end(held_lease& l, position through, ledger_time hold_deadline) {
        l.r.done_end = through;
        l.r.hold_deadline = hold_deadline;
        l.r.seen_in_term = true;
        sites_[l.r.site.count].useful = std::max(sites_[l.r.site.count].useful, l.r.grant.count);
    }

    lease::settings rules_;
    std::vector<block> blocks_;
    std::vector<site> sites_;
    std::map<std::uint64_t, held_lease> leases_;  // of this epoch, closed ones too
    ledger_time now_;
    epoch_index epoch_;
    generation generation_;
    term term_;
    std::uint64_t next_seq_ = 1;
    bool chance_used_ = false;
    std::string corpus_;
};

}  // namespace detail

}  // namespace darlcore::testing
