// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "darlcore/lease/table.hpp"
#include "darlcore/testing/lease_audit.hpp"
#include "darlcore/testing/lease_history.hpp"
#include "darlcore/testing/lease_twin.hpp"

namespace darlcore::testing {

/// A table, its twin, and a third table that only replays the events: run the same history and are compared after each
/// command. `fault` says what broke first.
template <class Table = lease::table>
class lease_model {
public:
    /// Preconditions: settings and geometry pass their checks; sites 1..6.
    lease_model(Table fresh, std::uint32_t sites)
        : table_(fresh),
          mirror_(fresh),
          twin_(fresh.geometry().num_blocks, fresh.rules()),
          audit_(fresh.geometry().num_blocks),
          processes_(sites, 1) {}

    [[nodiscard]] const std::optional<std::string>& fault() const { return fault_; }
    [[nodiscard]] const lease_history_classes& classes() const { return classes_; }
    [[nodiscard]] const Table& table() const { return table_; }
    [[nodiscard]] ledger_time now() const { return now_; }

    /// Runs one command; false as soon as something is wrong.
    bool step(const lease_command& c) {
        if (fault_) return false;
        flavour_ = c.flavour;
        const auto site = static_cast<std::uint32_t>(c.site % processes_.size());
        switch (c.kind % 32) {
            case 0:
            case 1:
            case 2:
            case 3:
            case 4:
                ask(c, site);
                break;
            case 5:
            case 6:
            case 7:
            case 8:
            case 9:
                reserve(c, site);
                break;
            case 10:
            case 11:
            case 12:
            case 13:
            case 14:
                contribute(c, site);
                break;
            case 15:
            case 16:
            case 17:
                merge(c);
                break;
            case 18:
            case 19:
                beat(c, site);
                break;
            case 20:
                give_back(c, site);
                break;
            case 21:
            case 22:
                enter(c, site);
                break;
            case 23:
            case 24:
            case 25:
                pass_time(c);
                break;
            case 26:
                call(lease::expire{});
                break;
            case 27:
                call(lease::tick{});
                break;
            case 28:
                restart(c);
                break;
            case 29:
                advance(c);
                break;
            default:
                repeat_last();
                break;
        }
        return !fault_;
    }
    /// Sends any request to table and twin and compares.
    template <class Request>
    auto call(const Request& request) {
        const std::uint64_t before = table_.digest();
        const epoch_index epoch = table_.epoch();
        auto out = table_.apply(request, now_);
        const auto expected = twin_.apply(request, now_);
        compare(out, expected);
        if (out.events.empty() && table_.digest() != before) fail("the state changed without an event");
        classes_.note(out, table_);
        replay(out.events);
        if (table_.epoch() != epoch) check_epoch_end(out.events);
        if (auto wrong = audit_.reply(request, out, table_)) fail(*wrong);
        check_state();
        last_ = request;
        last_acted_ = out.ok() && acted(out.events);
        return out;
    }

private:
    void fail(const std::string& what) {
        if (!fault_) fault_ = what + " (at " + std::to_string(now_.ms) + " ms)";
    }
    template <class Reply>
    void compare(const lease::outcome<Reply>& out, const std::variant<Reply, lease::refusal>& expected) {
        if (out.ok() != (expected.index() == 0)) {
            fail(std::string("table and twin disagree: ") +
                 (out.ok() ? "table accepts, twin says " + std::string(word(std::get<1>(expected).code))
                           : "table says " + std::string(word(out.refused().code)) + ", twin " +
                                 (expected.index() == 0 ? "accepts" : "")));
        } else if (!out.ok()) {
            classes_.refusals[static_cast<std::size_t>(out.refused().code)] = true;
            if (out.refused().code != std::get<1>(expected).code)
                fail("table refuses with " + std::string(word(out.refused().code)) + ", twin with " +
                     std::string(word(std::get<1>(expected).code)));
            for (const auto& e : out.events)
                if (!std::holds_alternative<lease::events::expired>(e)) fail("a refused input changed something");
        } else if (!(out.reply() == std::get<0>(expected))) {
            fail("replies of table and twin differ: " + describe_reply(out.reply()) + " and " +
                 describe_reply(std::get<0>(expected)));
        }
    }
    void replay(const std::vector<lease::event>& events) {
        for (const auto& e : events) {
            if (auto ok = mirror_.replay(e, now_); !ok) fail("replay: " + to_text(ok.error()));
            if (auto wrong = audit_.event(e)) fail(*wrong);
        }
        if (mirror_.digest() != table_.digest()) fail("replaying the events gives another state");
    }
    void check_state() {
        if (const auto ok = table_.verify(); !ok) return fail(to_text(ok.error()));
        for (std::uint64_t p = 0; p < table_.geometry().num_blocks; ++p)
            if (table_.state_of(position{p}) != twin_.state_of(p))
                return fail("block " + std::to_string(p) + " is " + std::string(word(table_.state_of(position{p}))) +
                            ", the twin says " + std::string(word(twin_.state_of(p))));
        for (const auto& l : table_.all_leases()) {
            ledger_time& last = deadlines_[l.seq.count];
            if (l.deadline < last) return fail("a deadline moved down");
            last = l.deadline;
        }
    }
    void check_epoch_end(const std::vector<lease::event>& events) {
        classes_.epoch_advanced = true;
        for (const auto& e : events)
            if (const auto* end = std::get_if<lease::events::epoch_advanced>(&e)) {
                const auto& v = table_.verdicts().back();
                if (!end->forced && v.committed + v.quarantined != table_.geometry().num_blocks)
                    fail("an epoch ended with blocks left");
                if (!end->forced && v.quarantined > 0) classes_.epoch_end_by_quarantine = true;
            }
        deadlines_.clear();
    }
    // --- from commands to requests -------------------------------------------------------------------------------
    [[nodiscard]] bool odd(std::uint8_t which) const { return flavour_ >= 200 && flavour_ % 8 == which; }
    [[nodiscard]] lease::caller who(std::uint32_t site) const {
        const std::string name(1, static_cast<char>('a' + site));
        if (odd(0)) return {site_id{name}, incarnation{7, processes_[site] + 9}};
        if (odd(1)) return {site_id{odd_name_ ? "not a name" : "zz"}, incarnation{7, 1}};
        if (is_legacy(site)) return {site_id{name}, {}};
        return {site_id{name}, incarnation{7, processes_[site]}};
    }
    /// Under on_checkpoint every third site is a legacy one.
    [[nodiscard]] bool is_legacy(std::uint32_t site) const {
        return table_.rules().commit_policy == lease::commit_policy::on_checkpoint && site % 3 == 2;
    }
    /// One of the site's leases, open or not; with an odd flavour somebody else's or none at all.
    std::optional<lease::lease_record> lease_of(std::uint32_t site, std::uint8_t pick) {
        if (odd(2)) {
            lease::lease_record nobody;
            nobody.seq = lease_seq{table_.next_seq() + pick};
            return nobody;
        }
        std::vector<lease::lease_record> mine;
        for (const auto& l : known_)
            if ((l.site.count == index_of(site)) != odd(3)) mine.push_back(l);
        if (mine.empty()) return std::nullopt;
        // mostly one of the newest: those are open
        const std::size_t back = pick % (pick < 200 ? std::min<std::size_t>(mine.size(), 3) : mine.size());
        lease::lease_record l = mine[mine.size() - 1 - back];
        if (const auto open = table_.find_lease(l.seq)) l = *open;
        return l;
    }
    [[nodiscard]] std::uint32_t index_of(std::uint32_t site) const {
        const auto n = table_.find_site(std::string(1, static_cast<char>('a' + site)));
        return n ? n->count : ~0U;
    }
    [[nodiscard]] lease::lease_ref ref(const lease::lease_record& l) const {
        lease::lease_ref r = ref_to(l);
        if (odd(4)) r.token = fencing_token{l.term, l.seq.count + 1};
        if (odd(5)) r.token.reset();
        if (odd(6)) ++r.epoch.count;
        return r;
    }
    [[nodiscard]] lease::site_report report(const lease_command& c) const {
        lease::site_report r;
        if (c.amount % 3 == 0) r.macro_step_s = c.amount % 700;
        if (c.amount % 5 == 0) r.rtt_s = c.amount % 90;
        if (c.amount % 11 == 0) r.ttl_s = c.amount % 2000;
        if (odd(7)) r = {-1, 1e300, -0.0};
        return r;
    }
    void join_first(std::uint32_t site) {
        if (index_of(site) == ~0U && !odd(1)) enter({}, site);
    }

    void ask(const lease_command& c, std::uint32_t site) {
        join_first(site);
        lease::acquire in;
        in.who = who(site);
        in.want = c.pick % 3 == 0 ? table_.geometry().num_blocks : c.amount % (table_.geometry().num_blocks + 3);
        in.max_spans = odd(6) ? c.pick : 1 + c.pick % 4;
        in.report = report(c);
        if (c.pick % 4 != 0) in.request_id = "r" + std::to_string(c.pick < 240 ? ++requests_ : c.amount % 9);
        if (odd(7)) in.request_id = std::string(70, 'x');
        const auto out = call(in);
        if (!out.ok()) return;
        for (const auto& l : out.reply().leases) known_.push_back(l);
        if (known_.size() > 64) known_.erase(known_.begin(), known_.begin() + 32);
    }
    void reserve(const lease_command& c, std::uint32_t site) {
        const auto l = lease_of(site, c.pick);
        if (!l) return ask(c, site);
        call(lease::reserve{who(site), ref(*l),
                            position{l->reserved_end.count + std::uint64_t{c.amount} % (l->unread().size() + 2)}});
    }
    void contribute(const lease_command& c, std::uint32_t site) {
        const auto l = lease_of(site, c.pick);
        if (!l) return ask(c, site);
        if ((table_.rules().commit_policy == lease::commit_policy::on_checkpoint) != (c.pick == 255)) {
            const std::uint64_t most = odd(7) ? l->end.count + 1 : l->reserved_end.count;
            call(lease::commit{who(site), ref(*l), position{most - std::min<std::uint64_t>(c.amount % 4, most)}});
            return;
        }
        lease::pledge in;
        in.who = who(site);
        in.id = {"c" + std::to_string(odd(5) ? 1 + c.amount % 20 : ++contributions_)};
        in.base = odd(6) ? generation{std::uint64_t{c.amount} % 3} : table_.generation();
        if (c.amount % 8 == 1) in.fault = errc::norm_outlier;
        for (const auto& open : c.amount % 2 == 0 ? table_.all_leases() : std::vector<lease::lease_record>{*l}) {
            if (open.site != l->site || open.maybe_read().empty()) continue;
            in.claims.push_back({ref(open), open.done_end, open.reserved_end});
            if (c.amount % 16 >= 12 && open.maybe_read().size() > 1) --in.claims.back().through.count;
            if (odd(7)) ++in.claims.back().from.count;
        }
        if (!in.claims.empty() || c.flavour > 240) call(in);
    }
    void merge(const lease_command& c) {
        lease::resolve in;
        in.base = table_.generation();
        if (odd(0) && in.base.count > 0) --in.base.count;
        if (odd(1)) ++in.base.count;
        std::uint32_t bit = 0;
        for (const auto n : table_.pledging()) {
            const auto& id = table_.pledge_of(n)->id;
            constexpr std::array<errc, 4> reasons{errc::not_finite, errc::growth, errc::layout_mismatch,
                                                  errc::norm_outlier};
            if (((c.amount >> bit) & 3U) == 3U)
                in.rejected.push_back({id, reasons[c.pick % 4]});
            else if (!odd(2))
                in.merged.push_back(id);
            bit += 2;
        }
        if (odd(3)) in.merged.push_back({"nobody's"});
        if (in.merged.empty() && in.rejected.empty() && c.flavour < 200) return;
        call(in);
    }
    void beat(const lease_command& c, std::uint32_t site) {
        join_first(site);
        lease::heartbeat in;
        in.who = who(site);
        in.report = report(c);
        for (std::uint8_t i = 0; i < 1 + c.pick % 3; ++i) {
            const auto l = lease_of(site, static_cast<std::uint8_t>(c.pick + i));
            if (!l) continue;
            lease::beat b{ref(*l), {}, {}};
            if (c.amount % 4 == 0) b.reserve_through = position{l->reserved_end.count + 1};
            in.leases.push_back(b);
        }
        call(in);
    }
    void give_back(const lease_command& c, std::uint32_t site) {
        lease::release in;
        in.who = who(site);
        in.keep_reserved = c.amount % 2 == 0;
        if (c.pick % 4 != 0) {
            const auto l = lease_of(site, c.pick);
            if (!l) return;
            in.lease = ref(*l);
        }
        call(in);
    }
    void enter(const lease_command& c, std::uint32_t site) {
        odd_name_ = c.pick % 2 == 0;
        lease::register_site in;
        in.who = who(site);
        in.ranks = c.amount % 3;
        in.corpus = odd(2) ? "other" : "text";
        if (is_legacy(site)) in.mode = lease::site_mode::legacy;
        const bool replace = c.pick % 4 == 1 && !is_legacy(site);
        if (replace) {
            in.take_over = incarnation{7, odd(4) ? 77 : processes_[site]};
            in.who.incarnation.low += 100;
        }
        if (odd(5)) in.mode = lease::site_mode::legacy;
        const auto out = call(in);
        if (out.ok() && replace) processes_[site] += 100;
    }
    void pass_time(const lease_command& c) {
        std::optional<std::int64_t> due;
        for (const auto& l : table_.all_leases())
            due = std::min(due.value_or(INT64_MAX), std::min(l.deadline, l.hold_deadline) - now_);
        constexpr std::array<std::int64_t, 6> steps{0, 1, 1000, 30000, 100000, 86400000};
        if (c.pick % 3 == 0 && due)
            now_.ms += *due + static_cast<std::int64_t>(c.amount % 3) - 1;
        else
            now_.ms += steps[c.amount % steps.size()];
        now_.ms = std::max(now_.ms, last_now_.ms);
        last_now_ = now_;
    }
    void restart(const lease_command& c) {
        if (c.pick % 2 == 0 && !odd(0)) {
            auto copy = Table::import_state(table_.export_state(), table_.mutation());
            if (!copy) return fail("import: " + to_text(copy.error()));
            if (copy.value().digest() != table_.digest()) return fail("an imported state has another digest");
            table_ = *std::move(copy);
        }
        deadlines_.clear();
        call(lease::restart{term{table_.term().count + (odd(0) ? 0 : 1)}});
    }
    void advance(const lease_command& c) {
        lease::advance_epoch in;
        in.force = c.pick % 16 == 0;
        if (c.amount % 4 == 0) in.from = epoch_index{table_.epoch().count + c.amount % 3};
        call(in);
    }
    void repeat_last() {
        if (!last_) return;
        const bool acted_before = last_acted_;
        std::visit(
            [&](const auto& request) {
                using request_type = std::decay_t<decltype(request)>;
                constexpr bool may_act =
                    std::is_same_v<request_type, lease::tick> || std::is_same_v<request_type, lease::advance_epoch>;
                const auto out = call(request_type(request));
                if constexpr (std::is_same_v<request_type, lease::acquire>) {
                    if (request.request_id.empty() || !out.ok()) return;
                    const bool granted = out.reply().status == lease::acquire_status::granted;
                    classes_.replayed_request = classes_.replayed_request || (granted && !acted(out.events));
                    if (granted && acted_before && acted(out.events)) fail("a repeated acquire gave more");
                } else if (!may_act && acted_before && acted(out.events)) {
                    fail("a repeated request changed something");
                }
            },
            lease::request(*last_));
    }

    Table table_;
    Table mirror_;
    lease_twin twin_;
    lease_audit audit_;
    ledger_time now_{1000000};
    ledger_time last_now_{1000000};
    std::vector<std::uint64_t> processes_;
    std::vector<lease::lease_record> known_;
    std::map<std::uint64_t, ledger_time> deadlines_;
    std::optional<lease::request> last_;
    bool last_acted_ = false;
    std::uint64_t requests_ = 0;
    std::uint64_t contributions_ = 0;
    std::uint8_t flavour_ = 0;
    bool odd_name_ = false;
    std::optional<std::string> fault_;
    lease_history_classes classes_;
};

}  // namespace darlcore::testing
