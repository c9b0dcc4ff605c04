// SPDX-License-Identifier: Apache-2.0
#include "backends/sim/simulated_site.hpp"

#include <algorithm>
#include <variant>

#include "backends/storage/sha256.hpp"

namespace darlcore::sim {
namespace {

constexpr std::int64_t call_limit_ms = 30'000;
constexpr std::int64_t timer_ms = 2'000;

site::failure failure_of(const ledger::refusal& no) {
    return {no.code, no.context, no.retry_after_ms, no.incarnation.value_or(incarnation{})};
}

}  // namespace

simulated_site::simulated_site(surroundings around, std::uint64_t number, std::uint64_t seed, bool is_twin)
    : around_(std::move(around)),
      number_(number),
      name_("site" + std::to_string(number)),
      is_twin_(is_twin),
      random_(seed),
      me_(around_.loop, name_ + (is_twin ? "-twin" : "")),
      ms_per_window_(around_.set.ms_per_window / 2 + pick(around_.set.ms_per_window * 3 / 2 + 1)) {}

template <class Answer, class AtServer, class Reply>
void simulated_site::ask(std::int64_t limit_ms, AtServer at_server, Reply reply) {
    // the first of answer and timeout counts; a late or doubled answer finds the question closed
    auto open = std::make_shared<bool>(true);
    // a connection ends with its process: the next life does not hear the answer
    const auto once = [this, life = me_.starts(), open, reply](const Answer* answer) {
        if (me_.starts() == life && std::exchange(*open, false)) reply(answer);
    };
    me_.after(limit_ms, [once] { once(nullptr); });
    auto* around = &around_;
    auto* site = &me_;
    around_.net.send(me_, around_.server.me(), [around, site, at_server, once] {
        at_server([around, site, once](const Answer& answer) {
            around->net.send(around->server.me(), *site, [answer, once] { once(&answer); });
        });
    });
}

template <class Request, class Reply>
void simulated_site::ask_ledger(const Request& request, std::int64_t limit_ms, Reply reply) {
    using outcome_type = decltype(std::declval<ledger::machine&>().handle(request, ledger_time{}));
    auto* server = &around_.server;
    ask<outcome_type>(
        limit_ms, [server, request](auto answer) { server->handle(request, answer); }, std::move(reply));
}

void simulated_site::start() { start(me_.starts() > 0); }

void simulated_site::start(bool take_over) {
    me_.start();
    incarnation_ = {number_ + 1 + (is_twin_ ? 1'000 : 0), me_.starts()};
    groups_.clear();
    ++phase_;
    session_ = std::make_unique<site::session>(settings_of_session(take_over));
    act(session_->start(me_.monotonic_ms()));
    if (!me_.is_alive()) return;
    timer();
    beat();
}

site::session_settings simulated_site::settings_of_session(bool take_over) const {
    site::session_settings s;
    s.hello.who = caller();
    s.hello.protocol = 2;
    s.hello.digest = around_.space_digest;
    s.join.who = s.hello.who;
    s.join.pins = {ledger_node::layout(), "schedule", 1, {"f32"}};
    s.take_over = take_over;
    s.windows_per_step = around_.set.per_step;
    s.block_size = around_.set.block_size;
    s.groups = around_.set.groups;
    return s;
}

void simulated_site::timer() {
    me_.after(timer_ms, [this] {
        deliver(site::event::timer{});
        if (me_.is_alive()) timer();
    });
}

void simulated_site::beat() {
    if (const auto body = session_->beat()) {
        const std::int64_t sent = me_.monotonic_ms();
        ask_ledger(*body, 10'000, [this, sent](const auto* out) {
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
    if (me_.is_alive()) act(session_->on(e, me_.monotonic_ms()));
}

void simulated_site::act(const std::vector<site::action_t>& actions) {
    for (const auto& a : actions)
        if (me_.is_alive()) std::visit([&](const auto& one) { act_on(one); }, a);
}

void simulated_site::act_on(const site::action::call& a) {
    std::visit(
        [&](const auto& request) {
            ask_ledger(request, call_limit_ms, [this](const auto* out) {
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
    const auto failed = [this](errc code, const std::string& why) {
        deliver(site::event::fetch_failed{{code, why, 0, {}}});
    };
    me_.after(1'000 + pick(2'000), [this, a, failed] {
        auto* server = &around_.server;
        ask<result<std::string>>(
            call_limit_ms, [server, a, name = name_](auto answer) { server->fetch(a.wire.sha256, name, answer); },
            [this, a, failed](const auto* bytes) {
                if (bytes == nullptr) return failed(errc::timeout, "no answer");
                if (!*bytes) return failed(bytes->error().code, bytes->error().context);
                if (storage::sha256_hex(**bytes) != a.wire.sha256) return failed(errc::digest_mismatch, "damaged");
                base_ = a.current;
                deliver(site::event::adopted{a.current, 1'000});
            });
    });
}

void simulated_site::act_on(const site::action::make_first_model&) {
    me_.after(500, [this] {
        const std::string bytes = "the first weights, made by " + name_;
        announce({storage::sha256_hex(bytes),
                  bytes.size(),
                  storage::blob_purpose::init,
                  "f32",
                  0,
                  name_,
                  to_text(incarnation_),
                  {}},
                 bytes);
    });
}

// --- the trainer -----------------------------------------------------------------------------------------------------

void simulated_site::act_on(const site::action::train_group& a) {
    const std::int64_t now_ms = around_.loop.now_ms();
    if (a.group == 0) {
        ++phase_;
        groups_.clear();
        windows_ = trained_ = 0;
        busy_until_ms_ = now_ms;
    }
    groups_.push_back({a.epoch, around_.set.plant == planted::reserve ? whole_grants(a.spans) : a.spans, 0});
    std::uint64_t windows = 0;
    for (const auto& s : groups_.back().spans) windows += s.size() * around_.set.block_size;
    windows_ += windows;
    groups_.back().end = windows_;
    busy_until_ms_ = std::max(busy_until_ms_, now_ms) + static_cast<std::int64_t>(windows) * ms_per_window_;
    if (is_hung_) return;
    // Steps straddle groups: one is trained when the step with its last window has all its windows.
    const std::uint64_t step = around_.set.per_step;
    for (; trained_ < groups_.size() && (groups_[trained_].end + step - 1) / step * step <= windows_; ++trained_)
        me_.after(busy_until_ms_ - now_ms, [this, phase = phase_, number = trained_] {
            if (phase_ == phase && !groups_.empty()) deliver(site::event::group_trained{number});
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
    if (is_hung_) return;
    const std::int64_t left_ms = std::max<std::int64_t>(1, busy_until_ms_ - around_.loop.now_ms());
    me_.after(left_ms, [this, phase = phase_] { finish_phase(phase); });
}

void simulated_site::finish_phase(std::uint64_t phase) {
    if (phase_ != phase || groups_.empty()) return;
    counting_delta delta;
    delta.id = me_.name() + "-" + std::to_string(incarnation_.low) + "-" + std::to_string(phase);
    delta.site = name_;
    delta.base = base_.count;
    delta.tokens = windows_;
    delta.steps = (windows_ + around_.set.per_step - 1) / around_.set.per_step;
    delta.counters.assign(around_.set.blocks * around_.set.epochs, '\0');
    auto& read = around_.read_record[delta.id];
    for (const auto& one : groups_)
        for (const auto& s : one.spans)
            for (std::uint64_t b = s.start.count; b < s.end.count; ++b)
                read.push_back(one.epoch.count * around_.set.blocks + b);
    if (around_.set.plant == planted::lost_block) read.pop_back();
    for (const std::uint64_t counter : read) ++delta.counters.at(counter);
    const std::string bytes = encode(delta);
    site::phase_done done;
    done.groups = groups_.size();
    done.id = contribution_id{delta.id};
    done.blob = {storage::sha256_hex(bytes), bytes.size()};
    done.codec = "f32";
    done.tokens = windows_;
    done.steps = delta.steps;
    done.loss_count = 1;
    done.compute_ms = static_cast<std::int64_t>(windows_) * ms_per_window_;
    files_.clear();
    files_[done.blob.sha256] = bytes;
    groups_.clear();
    deliver(site::event::phase_finished{done});
}

void simulated_site::act_on(const site::action::drop_phase&) {
    groups_.clear();
    ++phase_;
    me_.after(10, [this] { deliver(site::event::phase_dropped{}); });
}

// --- uploads ---------------------------------------------------------------------------------------------------------

void simulated_site::act_on(const site::action::upload& a) {
    me_.after(1'000 + pick(3'000), [this, a] {
        const auto file = files_.find(a.blob.sha256);
        if (file == files_.end()) return upload_failed(errc::not_found, "the file is gone");
        announce({a.blob.sha256,
                  a.blob.bytes,
                  storage::blob_purpose::delta,
                  a.codec,
                  a.base.count,
                  name_,
                  to_text(incarnation_),
                  {}},
                 file->second);
    });
}

void simulated_site::announce(const storage::blob_facts& facts, const std::string& bytes) {
    const auto purpose =
        facts.purpose == storage::blob_purpose::init ? ledger::blob_purpose::init : ledger::blob_purpose::delta;
    const ledger::announce_upload may{caller(), purpose, generation{facts.generation}};
    auto* server = &around_.server;
    ask<result<storage::announced>>(
        call_limit_ms, [server, may, facts](auto answer) { server->announce(may, facts, answer); },
        [this, facts, bytes](const auto* begun) {
            if (begun == nullptr) return upload_failed(errc::timeout, "no answer");
            if (!*begun) return upload_failed(begun->error().code, begun->error().context);
            if ((*begun)->stored) return deliver(site::event::uploaded{1'000});
            send_part((*begun)->upload, facts, bytes);
        });
}

void simulated_site::send_part(const storage::upload_status& at, const storage::blob_facts& facts,
                               const std::string& bytes) {
    const std::uint64_t left = bytes.size() - std::min<std::uint64_t>(at.offset, bytes.size());
    const std::string part = bytes.substr(at.offset, 1 + random_.below(left + 10));
    auto* server = &around_.server;
    ask<result<storage::part_accepted>>(
        call_limit_ms,
        [server, who = caller(), at, facts, part](auto answer) {
            server->take_part(who, at, facts.sha256, part, answer);
        },
        [this, at, facts, bytes](const auto* taken) {
            if (taken == nullptr) return upload_failed(errc::timeout, "no answer");
            if (!*taken) return upload_failed(taken->error().code, taken->error().context);
            if ((*taken)->stored) return deliver(site::event::uploaded{1'000});
            auto next = at;
            next.offset = (*taken)->offset;
            send_part(next, facts, bytes);
        });
}

void simulated_site::act_on(const site::action::evaluate&) {
    me_.after(100, [this] { deliver(site::event::evaluated{}); });
}

void simulated_site::act_on(const site::action::finish& a) {
    last_note_ = "ended with " + std::to_string(a.exit_code) + ": " + a.reason;
    const auto restart_in_ms = 1'000 + pick(60'000);
    me_.kill();
    if (is_twin_) return;
    if (a.exit_code == 0)
        ended_ = true;
    else
        around_.loop.after(restart_in_ms, [this] {
            if (!me_.is_alive() && !ended_) start();
        });
}

}  // namespace darlcore::sim
