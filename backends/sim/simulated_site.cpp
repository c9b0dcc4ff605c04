// SPDX-License-Identifier: Apache-2.0
#include "backends/sim/simulated_site.hpp"

#include <algorithm>
#include <variant>

namespace darlcore::sim {
namespace {

constexpr std::int64_t call_limit_ms = 30'000;

std::string sha_of(const std::string& id) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string hex;
    for (const char c : id) {
        hex.push_back(digits[(static_cast<unsigned char>(c) >> 4U) & 15U]);
        hex.push_back(digits[static_cast<unsigned char>(c) & 15U]);
    }
    hex.resize(64, '0');
    return hex;
}

site::failure failure_of(const ledger::refusal& no) {
    return {no.code, no.context, no.retry_after_ms, no.incarnation.value_or(incarnation{})};
}

}  // namespace

simulated_site::simulated_site(surroundings around, std::uint64_t number, std::uint64_t seed)
    : around_(std::move(around)),
      number_(number),
      name_("site" + std::to_string(number)),
      random_(seed),
      me_(around_.loop, name_),
      ms_per_window_(20 + pick(200)) {}

template <class Request, class Reply>
void simulated_site::ask(const Request& request, std::int64_t limit_ms, Reply reply) {
    using outcome_type = decltype(std::declval<ledger::machine&>().handle(request, ledger_time{}));
    // the first of answer and timeout counts; a late or doubled answer finds the question closed
    auto open = std::make_shared<bool>(true);
    // a connection ends with its process: the next life does not hear the answer
    const auto once = [this, life = me_.starts(), open, reply](const outcome_type* out) {
        if (me_.starts() == life && std::exchange(*open, false)) reply(out);
    };
    me_.after(limit_ms, [once] { once(nullptr); });
    auto& around = around_;
    auto* site = &me_;
    around_.net.send(me_, around_.server.me(), [&around, site, request, once] {
        around.server.handle(request, [&around, site, once](const outcome_type& out) {
            around.net.send(around.server.me(), *site, [out, once] { once(&out); });
        });
    });
}

void simulated_site::start() {
    me_.start();
    incarnation_ = {number_ + 1, me_.starts()};
    groups_.clear();
    ++phase_;
    session_ = std::make_unique<site::session>(settings_of_session());
    act(session_->start(around_.loop.now_ms()));
    if (!me_.is_alive()) return;
    timer();
    beat();
}

site::session_settings simulated_site::settings_of_session() const {
    site::session_settings s;
    s.hello.who = {site_id{name_}, incarnation_};
    s.hello.protocol = 2;
    s.hello.digest = around_.space_digest;
    s.join.who = s.hello.who;
    s.join.pins = {ledger_node::layout(), "schedule", 1, {"f32"}};
    s.take_over = me_.starts() > 1;
    s.windows_per_step = around_.set.per_step;
    s.block_size = around_.set.block_size;
    s.groups = around_.set.groups;
    return s;
}

void simulated_site::timer() {
    me_.after(1'000, [this] {
        deliver(site::event::timer{});
        if (me_.is_alive()) timer();
    });
}

void simulated_site::beat() {
    if (const auto body = session_->beat()) {
        const std::int64_t sent = around_.loop.now_ms();
        ask(*body, 10'000, [this, sent](const auto* out) {
            if (out == nullptr) return deliver(site::event::beat_refused{{errc::timeout, "no answer", 0, {}}});
            if (out->ok())
                deliver(site::event::beat_replied{out->reply(), sent});
            else
                deliver(site::event::beat_refused{failure_of(out->refused())});
        });
    }
    me_.after(session_->beat_every_ms(), [this] { beat(); });
}

void simulated_site::deliver(const site::event_t& e) {
    if (me_.is_alive()) act(session_->on(e, around_.loop.now_ms()));
}

void simulated_site::act(const std::vector<site::action_t>& actions) {
    for (const auto& a : actions)
        if (me_.is_alive()) std::visit([&](const auto& one) { act_on(one); }, a);
}

void simulated_site::act_on(const site::action::call& a) {
    std::visit(
        [&](const auto& request) {
            ask(request, call_limit_ms, [this](const auto* out) {
                if (out == nullptr) return deliver(site::event::refused{{errc::timeout, "no answer", 0, {}}});
                if (out->ok())
                    deliver(site::event::replied{out->reply()});
                else
                    deliver(site::event::refused{failure_of(out->refused())});
            });
        },
        a.what);
}

void simulated_site::act_on(const site::action::fetch& a) {
    me_.after(1'000 + pick(2'000), [this, g = a.current] { deliver(site::event::adopted{g, 1'000}); });
}

void simulated_site::act_on(const site::action::make_first_model&) {
    me_.after(500, [this] {
        ledger::blob_verified blob{site_id{name_}, std::string(64, 'a'), ledger::blob_purpose::init, {}};
        blob.facts.bytes = 100;
        auto open = std::make_shared<bool>(true);
        const auto once = [this, life = me_.starts(), open](bool stored) {
            if (me_.starts() != life || !std::exchange(*open, false)) return;
            if (stored)
                deliver(site::event::uploaded{500});
            else
                deliver(site::event::upload_failed{{errc::timeout, "no answer", 0, {}}});
        };
        me_.after(call_limit_ms, [once] { once(false); });
        around_.net.send(me_, around_.server.me(), [this, blob, once] {
            around_.server.store_blob(blob, [this, once](const auto&) {
                around_.net.send(around_.server.me(), me_, [once] { once(true); });
            });
        });
    });
}

void simulated_site::act_on(const site::action::train_group& a) {
    const std::int64_t now_ms = around_.loop.now_ms();
    if (a.group == 0) {
        ++phase_;
        groups_.clear();
        windows_ = 0;
        busy_until_ms_ = now_ms;
    }
    groups_.push_back(around_.set.read_unreserved ? whole_grants(a.spans) : a.spans);
    std::uint64_t windows = 0;
    for (const auto& s : groups_.back()) windows += s.size() * around_.set.block_size;
    windows_ += windows;
    busy_until_ms_ = std::max(busy_until_ms_, now_ms) + static_cast<std::int64_t>(windows) * ms_per_window_;
    me_.after(busy_until_ms_ - now_ms, [this, phase = phase_, group = a.group] {
        if (phase_ == phase && !groups_.empty()) deliver(site::event::group_trained{group});
    });
}

// The mutant: everything that is held of the leases it was given a part of.
std::vector<span> simulated_site::whole_grants(const std::vector<span>& given) const {
    std::vector<span> out;
    for (const auto& s : given)
        for (const auto& h : session_->held().all())
            if (h.lease.start <= s.start && s.end <= h.lease.end) out.push_back({s.start, h.lease.end});
    return out;
}

void simulated_site::act_on(const site::action::end_phase&) {
    const std::int64_t left_ms = std::max<std::int64_t>(1, busy_until_ms_ - around_.loop.now_ms());
    me_.after(left_ms, [this, phase = phase_] { finish_phase(phase); });
}

void simulated_site::finish_phase(std::uint64_t phase) {
    if (phase_ != phase || groups_.empty()) return;
    const std::string id = name_ + "-" + std::to_string(incarnation_.low) + "-" + std::to_string(phase);
    auto& read = around_.read_record[id];
    for (const auto& group : groups_)
        for (const auto& s : group)
            for (std::uint64_t b = s.start.count; b < s.end.count; ++b) read.push_back(b);
    site::phase_done done;
    done.groups = groups_.size();
    done.id = contribution_id{id};
    done.blob = {sha_of(id), 100};
    done.codec = "f32";
    done.tokens = windows_;
    done.steps = around_.set.steps;
    done.loss_count = 1;
    done.compute_ms = static_cast<std::int64_t>(windows_) * ms_per_window_;
    uploaded_windows_ = windows_;
    groups_.clear();
    deliver(site::event::phase_finished{done});
}

void simulated_site::act_on(const site::action::drop_phase&) {
    groups_.clear();
    ++phase_;
    me_.after(10, [this] { deliver(site::event::phase_dropped{}); });
}

void simulated_site::act_on(const site::action::upload& a) {
    me_.after(1'000 + pick(3'000), [this, a] {
        const lease::caller who{site_id{name_}, incarnation_};
        ask(ledger::announce_upload{who, ledger::blob_purpose::delta, a.base}, call_limit_ms,
            [this, a, who](const auto* may) {
                if (may == nullptr) return deliver(site::event::upload_failed{{errc::timeout, "no answer", 0, {}}});
                if (!may->ok()) return deliver(site::event::upload_failed{failure_of(may->refused())});
                ledger::blob_verified blob{who.site, a.blob.sha256, ledger::blob_purpose::delta, {}};
                blob.facts.bytes = a.blob.bytes;
                blob.facts.metadata =
                    contribution_claim{around_.run_id, who.site, a.base, uploaded_windows_, around_.set.steps};
                blob.facts.scan = delta_scan{true, 1.0F, 1.0};
                auto open = std::make_shared<bool>(true);
                const auto once = [this, life = me_.starts(), open](bool stored) {
                    if (me_.starts() != life || !std::exchange(*open, false)) return;
                    if (stored)
                        deliver(site::event::uploaded{1'000});
                    else
                        deliver(site::event::upload_failed{{errc::timeout, "no answer", 0, {}}});
                };
                me_.after(call_limit_ms, [once] { once(false); });
                around_.net.send(me_, around_.server.me(), [this, blob, once] {
                    around_.server.store_blob(blob, [this, once](const auto&) {
                        around_.net.send(around_.server.me(), me_, [once] { once(true); });
                    });
                });
            });
    });
}

void simulated_site::act_on(const site::action::evaluate&) {
    me_.after(100, [this] { deliver(site::event::evaluated{}); });
}

void simulated_site::act_on(const site::action::finish& a) {
    last_note_ = "ended with " + std::to_string(a.exit_code) + ": " + a.reason;
    const auto restart_in_ms = 1'000 + pick(60'000);
    me_.kill();
    if (a.exit_code == 0)
        ended_ = true;
    else
        around_.loop.after(restart_in_ms, [this] {
            if (!me_.is_alive() && !ended_) start();
        });
}

}  // namespace darlcore::sim
