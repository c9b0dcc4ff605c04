// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "darlcore/ledger/access.hpp"
#include "darlcore/ledger/machine_class.hpp"
#include "darlcore/ledger/separate.hpp"

#if defined(DARLCORE_LEDGER_DEFINITIONS)

namespace darlcore::ledger {

DARLCORE_LEDGER_INLINE machine::machine(run_settings settings)
    : settings_(std::move(settings)),
      leases_([this] {
          DARLCORE_ASSERT(check(settings_).has_value());
          return lease::table::create({block_count(settings_.space), {}}, settings_.lease).value();
      }()),
      rounds_(settings_.round),
      space_(block_space::make(settings_.space).value()) {
    map_ = block_space::build(settings_.space, epoch_index{0}).value();
    space_digest_ = to_hex(map_->digest());
    epoch_digest_ = space_digest_;
    books_.outer = settings_.outer;
    books_.pinned = {settings_.corpus, settings_.corpus_content};
}

DARLCORE_LEDGER_INLINE result<void> machine::replay(const record& r, ledger_time at) {
    if (const auto* created = std::get_if<records::run_created>(&r)) {
        if (created->settings != settings_)
            return fail(errc::refused,
                        "the journal belongs to run " + created->settings.run_id + ", not to " + settings_.run_id);
        access::apply_kept(*this, r, at);
        return {};
    }
    if (const auto* told = std::get_if<records::state_digest>(&r); told != nullptr && told->digest != digest())
        return fail(errc::corrupt, "the replayed state differs from the recorded digest");
    if (auto done = access::apply_leases(*this, r, at); !done) return done;
    access::apply_kept(*this, r, at);
    return {};
}

DARLCORE_LEDGER_INLINE void machine::adopt(std::shared_ptr<const epoch_map> prepared) {
    DARLCORE_ASSERT(prepared != nullptr && prepared->parameters() == settings_.space);
    if (prepared->epoch() == leases_.epoch())
        map_ = std::move(prepared);
    else if (prepared->epoch().count == leases_.epoch().count + 1)
        next_map_ = std::move(prepared);
}

DARLCORE_LEDGER_INLINE epoch_index machine::epoch() const { return leases_.epoch(); }

DARLCORE_LEDGER_INLINE const std::string& machine::epoch_digest() const {
    if (epoch_digest_.empty()) epoch_digest_ = to_hex(access::map(*this).digest());
    return epoch_digest_;
}

DARLCORE_LEDGER_INLINE round::lease_facts machine::facts(const site_id* asker) const {
    const auto counts = leases_.counts();
    round::lease_facts f;
    f.unassigned = counts.unassigned;
    // Nothing is out and the run is not over: the next acquire brings the second chance or the next epoch, so there
    // must be one.
    const bool more_epochs = leases_.epoch().count + 1 < settings_.lease.max_epochs;
    if (counts.unassigned == 0 && counts.leased == 0 && counts.pledged == 0 &&
        (more_epochs || !leases_.epoch_complete()))
        f.unassigned = std::max<std::uint64_t>(1, counts.quarantined);
    std::uint64_t held_by_pledging = 0;
    for (const auto number : leases_.pledging()) held_by_pledging += leases_.site(number, {}).held;
    f.held_unpledged = counts.leased > held_by_pledging;
    f.epoch_complete = leases_.epoch_complete() && counts.pledged == 0 && leases_.open_leases() == 0 &&
                       leases_.epoch().count + 1 >= settings_.lease.max_epochs;
    if (asker == nullptr) return f;
    const auto number = leases_.find_site(asker->name);
    if (!number) return f;
    f.asker_holds = leases_.site(*number, {}).held > 0;
    if (f.unassigned > 0 || !settings_.lease.allow_stealing) return f;
    for (const auto& lease : leases_.all_leases())
        if (lease.site != *number && lease.mode == lease::site_mode::full &&
            lease.unread().size() >= 2 * settings_.lease.steal_min_blocks)
            f.stealable = true;
    return f;
}

DARLCORE_LEDGER_INLINE round::status_report machine::round_status(ledger_time now) const {
    return round::report(rounds_, facts(), now);
}

DARLCORE_LEDGER_INLINE digest16 machine::digest() const {
    blake2b hash(16);
    books kept = books_;
    kept.since_digest = 0;
    hash.update(encode_value(kept));
    hash.update(encode_value(rounds_.durable()));
    hash.update(encode_value(leases_.digest()));
    return finish_digest<16>(hash);
}

DARLCORE_LEDGER_INLINE result<void> machine::verify() const {
    if (auto ok = leases_.verify(); !ok) return ok;
    if (!settings_.rounds || settings_.lease.commit_policy != lease::commit_policy::on_merge) return {};
    const auto corrupt = [](std::string text) { return fail(errc::corrupt, std::move(text)); };
    if (leases_.generation() != rounds_.current())
        return corrupt("the leases are at generation " + std::to_string(leases_.generation().count) +
                       ", the rounds at " + std::to_string(rounds_.current().count));
    const auto& pledges = rounds_.durable().pledges;
    if (leases_.pledging().size() != pledges.size()) return corrupt("leases and rounds count different pledges");
    for (const auto number : leases_.pledging()) {
        const auto site = leases_.site(number, {}).id;
        const auto found = pledges.find(site);
        if (found == pledges.end() || found->second.id != leases_.pledge_of(number)->id)
            return corrupt("the pledge of " + site.name + " differs between leases and rounds");
        if (found->second.base != rounds_.current()) return corrupt("the pledge of " + site.name + " is stale");
    }
    return {};
}

DARLCORE_LEDGER_INLINE std::optional<ledger_time> machine::next_tick(ledger_time now) const {
    std::optional<ledger_time> next;
    if (settings_.rounds) next = rounds_.next_tick(facts(), now);
    if (const auto in_ms = leases_.next_deadline_in_ms(now)) {
        const ledger_time deadline = now + std::max<std::int64_t>(0, *in_ms) + 1;
        if (!next || deadline < *next) next = deadline;
    }
    return next;
}

/// First byte of a snapshot; a later format has another.
inline constexpr std::uint8_t snapshot_format = 2;

/// All that a restart keeps, as a copy that another thread may encode and verify.
struct frozen {
    run_settings settings;
    books kept;
    round::durable_state rounds;
    lease::book leases;
};

/// Complexity: O(sites + pages of the lease table).
inline frozen freeze(const machine& m) { return {m.settings(), m.kept(), m.rounds().durable(), m.leases().snapshot()}; }

inline std::string encode(const frozen& state) {
    writer w;
    w.byte(snapshot_format);
    w.value(state.settings);
    w.value(state.kept);
    w.value(state.rounds);
    w.value(lease::export_state(state.leases));
    return w.take();
}

DARLCORE_LEDGER_INLINE std::string machine::snapshot() const { return encode(freeze(*this)); }

DARLCORE_LEDGER_INLINE result<machine> machine::from_snapshot(std::string_view bytes, ledger_time now) {
    reader in(bytes);
    if (in.byte() != snapshot_format || !in.ok())
        return fail(errc::unsupported, "snapshot format is not " + std::to_string(snapshot_format));
    run_settings settings;
    in.value(settings);
    if (!in.ok()) return fail(errc::corrupt, "snapshot settings at byte " + std::to_string(in.offset()));
    if (auto ok = check(settings); !ok) return fail(errc::corrupt, "snapshot settings: " + ok.error().context);
    machine m(std::move(settings));
    round::durable_state rounds;
    lease::exported_state leases;
    in.value(m.books_);
    in.value(rounds);
    in.value(leases);
    if (!in.finished()) return fail(errc::corrupt, "snapshot is not canonical at byte " + std::to_string(in.offset()));
    auto table = lease::table::import_state(leases);
    if (!table) return table.error();
    m.leases_ = std::move(*table);
    m.rounds_ = round::machine(m.settings_.round, std::move(rounds), now);
    if (m.leases_.epoch() != epoch_index{0}) {
        m.map_.reset();
        m.epoch_digest_.clear();
    }
    return m;
}

}  // namespace darlcore::ledger

#endif
