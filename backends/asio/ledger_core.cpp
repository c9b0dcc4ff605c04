// SPDX-License-Identifier: Apache-2.0
#include "backends/asio/ledger_core.hpp"

#include <algorithm>
#include <type_traits>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/post.hpp>

#include "backends/storage/snapshot_store.hpp"
#include "darlcore/ledger/machine.hpp"

namespace darlcore::http {

namespace {

constexpr int hops_per_turn = 4;

std::int64_t monotone_ms() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

/// The site a record speaks of, where it names one; lease events name it by number.
template <class Fact>
std::string site_of(const Fact& fact, const lease::table& leases) {
    if constexpr (requires { fact.contribution.contribution.site.name; }) {
        return fact.contribution.contribution.site.name;
    } else if constexpr (requires { fact.contribution.site.name; }) {
        return fact.contribution.site.name;
    } else if constexpr (requires { fact.member.site.name; }) {
        return fact.member.site.name;
    } else if constexpr (requires { fact.site.name.name; }) {
        return fact.site.name.name;
    } else if constexpr (requires { fact.site.name; }) {
        return fact.site.name;
    } else if constexpr (requires { fact.leases.site.count; }) {
        return leases.site(fact.leases.site, {}).id.name;
    } else if constexpr (requires { fact.site.count; }) {
        return leases.site(fact.site, {}).id.name;
    } else {
        return {};
    }
}

}  // namespace

ledger_core::ledger_core(asio::io_context& loop, asio::thread_pool& background, storage::ledger_store& store,
                         std::unique_ptr<ledger::machine> machine, ledger_time now, const core_options& options)
    : loop_(loop),
      background_(background),
      store_(store),
      machine_(std::move(machine)),
      clock_(now),
      options_(options),
      gate_(loop, store.batches().durable_position().sequence),
      timer_(loop),
      applied_sequence_(store.batches().last_sequence()),
      last_tick_(now) {
    snapshot_.sequence = store.recovered().snapshot_sequence;
    events_.begin_after(applied_sequence_);
    // both callbacks come from the commit thread; they may still be in the queue when this object is gone
    const auto post = [this, alive = std::weak_ptr<bool>(alive_)](auto action) {
        asio::post(loop_, [alive, action] {
            if (alive.lock()) action();
        });
    };
    commit_ = std::make_unique<storage::commit_thread>(
        store_, [this, post](std::uint64_t sequence) { post([this, sequence] { on_durable(sequence); }); },
        [this, post](const error& e) {
            post([this, e] {
                gate_.fail();
                if (on_fatal_) on_fatal_(e);
            });
        });
}

ledger_core::~ledger_core() {
    alive_.reset();
    commit_.reset();
}

void ledger_core::start(std::vector<ledger::effect> wanted, effect_handler on_effect, fatal_handler on_fatal) {
    on_effect_ = std::move(on_effect);
    on_fatal_ = std::move(on_fatal);
    clock_.turn(monotone_ms());
    for (ledger::effect& e : wanted) effects_.emplace_back(applied_sequence_, std::move(e));
    asio::post(loop_, [this] { on_durable(gate_.durable()); });
    asio::co_spawn(
        loop_, [this] { return turn_loop(); }, asio::detached);
}

void ledger_core::stop() {
    stopping_ = true;
    timer_.cancel();
}

double ledger_core::wall_s() const {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

template <class Request>
auto ledger_core::handle(const Request& in) {
    auto out = machine_->handle(in, clock_.now());
    take(std::move(out.records), std::move(out.effects));
    return out;
}

ledger::outcome<ledger::register_reply> ledger_core::apply(const ledger::register_request& in) { return handle(in); }
ledger::outcome<ledger::acquire_reply> ledger_core::apply(const ledger::acquire_request& in) { return handle(in); }
ledger::outcome<ledger::reserve_reply> ledger_core::apply(const ledger::reserve_request& in) { return handle(in); }
ledger::outcome<ledger::heartbeat_reply> ledger_core::apply(const ledger::heartbeat_request& in) { return handle(in); }
ledger::outcome<ledger::commit_reply> ledger_core::apply(const ledger::commit_request& in) { return handle(in); }
ledger::outcome<ledger::release_reply> ledger_core::apply(const ledger::release_request& in) { return handle(in); }
ledger::outcome<ledger::advance_reply> ledger_core::apply(const ledger::advance_request& in) { return handle(in); }
ledger::outcome<ledger::join_reply> ledger_core::apply(const ledger::join_request& in) { return handle(in); }
ledger::outcome<ledger::poll_reply> ledger_core::apply(const ledger::poll_request& in) { return handle(in); }
ledger::outcome<ledger::contribute_reply> ledger_core::apply(const ledger::contribute_request& in) {
    return handle(in);
}
ledger::outcome<ledger::ok_reply> ledger_core::apply(const ledger::decline_request& in) { return handle(in); }
ledger::outcome<ledger::evaluation_reply> ledger_core::apply(const ledger::evaluation_request& in) {
    return handle(in);
}
ledger::outcome<ledger::ok_reply> ledger_core::apply(const ledger::leave_request& in) { return handle(in); }
ledger::outcome<ledger::state_reply> ledger_core::apply(const ledger::pause_request& in) { return handle(in); }
ledger::outcome<ledger::state_reply> ledger_core::apply(const ledger::resume_request& in) { return handle(in); }
ledger::outcome<ledger::state_reply> ledger_core::apply(const ledger::stop_request& in) { return handle(in); }
ledger::outcome<ledger::ok_reply> ledger_core::apply(const ledger::announce_upload& in) { return handle(in); }
ledger::outcome<ledger::ok_reply> ledger_core::apply(const ledger::upload_progress& in) { return handle(in); }
ledger::outcome<ledger::ok_reply> ledger_core::apply(const ledger::blob_verified& in) { return handle(in); }
ledger::outcome<ledger::ok_reply> ledger_core::apply(const ledger::blob_gone& in) { return handle(in); }
ledger::outcome<ledger::ok_reply> ledger_core::apply(const ledger::model_initialised& in) { return handle(in); }
ledger::outcome<ledger::ok_reply> ledger_core::apply(const ledger::init_failed& in) { return handle(in); }
ledger::outcome<ledger::ok_reply> ledger_core::apply(const ledger::merge_done& in) { return handle(in); }
ledger::outcome<ledger::ok_reply> ledger_core::apply(const ledger::merge_failed& in) { return handle(in); }
ledger::outcome<ledger::ok_reply> ledger_core::apply(const ledger::tick_input& in) { return handle(in); }

epoch_index ledger_core::epoch() const { return machine_->epoch(); }
darlcore::term ledger_core::term() const { return machine_->term(); }
void ledger_core::adopt(std::shared_ptr<const epoch_map> prepared) { machine_->adopt(std::move(prepared)); }

void ledger_core::take(std::vector<ledger::record> records, std::vector<ledger::effect> effects) {
    for (const ledger::record& r : records) {
        const std::string payload = ledger::encode(r);
        applied_sequence_ = commit_->append(ledger::type_number(r), clock_.now().ms, payload);
        bytes_since_snapshot_ += payload.size() + storage::record_header_bytes;
        note_event(r, applied_sequence_);
    }
    for (ledger::effect& e : effects) effects_.emplace_back(applied_sequence_, std::move(e));
    if (!records.empty() && !kick_posted_) {  // one batch per turn of the loop: what is ready now goes together
        kick_posted_ = true;
        asio::post(loop_, [this] {
            kick_posted_ = false;
            commit_->kick();
        });
    }
    if (!effects.empty() && applied_sequence_ <= gate_.durable())
        asio::post(loop_, [this] { on_durable(gate_.durable()); });
}

void ledger_core::note_event(const ledger::record& r, std::uint64_t sequence) {
    if (std::holds_alternative<lease::events::tick>(r) || std::holds_alternative<ledger::records::state_digest>(r) ||
        std::holds_alternative<lease::events::reserved>(r))
        return;  // bookkeeping
    const std::string site = std::visit([this](const auto& fact) { return site_of(fact, machine_->leases()); }, r);
    events_.add({sequence, wall_s(), std::string(ledger::type_name(r)), site, {}});
}

void ledger_core::add_event(std::string event, std::string site, std::string text) {
    events_.add({applied_sequence_, wall_s(), std::move(event), std::move(site), std::move(text)});
}

void ledger_core::on_durable(std::uint64_t sequence) {
    gate_.release(sequence);
    while (!effects_.empty() && effects_.front().first <= gate_.durable()) {
        const ledger::effect e = std::move(effects_.front().second);
        effects_.pop_front();
        if (on_effect_) on_effect_(e);
    }
}

asio::awaitable<void> ledger_core::turn_loop() {
    const std::weak_ptr<bool> alive = alive_;
    while (!stopping_) {
        asio::error_code ignored;
        timer_.expires_after(std::chrono::milliseconds(options_.turn_ms));
        co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
        // what had arrived before this turn is handled with the time before it: go behind what is ready already
        for (int hop = 0; hop < hops_per_turn; ++hop) co_await asio::post(loop_, asio::use_awaitable);
        if (!alive.lock() || stopping_) co_return;
        turn();
    }
}

void ledger_core::turn() {
    disk_full_ = !commit_->has_room(options_.room_bytes);
    clock_.hold(disk_full_ || gate_.failed());
    const ledger_time now = clock_.turn(monotone_ms());
    if (disk_full_ || gate_.failed() || !degraded_.empty()) return;
    const auto due = machine_->next_tick(now);
    if ((due && now >= *due) || now - last_tick_ >= 1'000) {
        last_tick_ = now;
        apply(ledger::tick_input{});
    }
    if (records_since_snapshot() >= options_.snapshot_records || bytes_since_snapshot_ >= options_.snapshot_bytes)
        begin_snapshot();
}

bool ledger_core::begin_snapshot() {
    if (snapshot_.running || gate_.failed() || disk_full_ || applied_sequence_ == 0) return false;
    snapshot_.running = true;
    bytes_since_snapshot_ = 0;
    auto copy = std::make_shared<const ledger::machine>(*machine_);
    const std::weak_ptr<bool> alive = alive_;
    commit_->snapshot_after_this([this, copy, alive](result<storage::snapshot_info> head) {
        asio::post(background_, [this, copy, alive, head = std::move(head)]() mutable {
            if (alive.lock()) finish_snapshot(std::move(copy), std::move(head));
        });
    });
    commit_->kick();
    return true;
}

// On a background thread.
void ledger_core::finish_snapshot(std::shared_ptr<const ledger::machine> copy, result<storage::snapshot_info> head) {
    result<void> outcome;
    bool contradiction = false;
    std::uint64_t sequence = 0;
    if (!head) {
        outcome = head.error();
    } else {
        sequence = head->sequence;
        outcome = copy->verify();
        contradiction = !outcome;
        if (outcome) outcome = storage::write_snapshot(store_.state(), *head, copy->snapshot());
        if (outcome) outcome = storage::remove_superseded(store_.state());
    }
    const std::weak_ptr<bool> alive = alive_;
    asio::post(loop_, [this, alive, sequence, outcome, contradiction] {
        if (alive.lock()) snapshot_ended(sequence, outcome, contradiction);
    });
}

void ledger_core::snapshot_ended(std::uint64_t sequence, result<void> outcome, bool contradiction) {
    snapshot_.running = false;
    if (outcome) {
        snapshot_ = {false, sequence, wall_s(), {}};
        return;
    }
    snapshot_.failure = to_text(outcome.error());
    add_event("snapshot_failed", {}, snapshot_.failure);
    if (contradiction) degraded_ = snapshot_.failure;
}

}  // namespace darlcore::http
