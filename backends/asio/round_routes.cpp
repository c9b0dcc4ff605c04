// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cmath>

#include "backends/asio/ledger_service.hpp"
#include "backends/asio/wire_fields.hpp"
#include "backends/asio/wire_requests.hpp"
#include "darlcore/ledger/machine.hpp"

namespace darlcore::http {

namespace {

constexpr std::int64_t look_again_ms = 1'000;

reply bad_request(const error& why) { return error_reply(why.code, why.context); }

/// A wait that may be held back until something changes. A site that says it trains, or that is asked to score, goes at
/// once.
bool may_be_held(const ledger::poll_reply& r) {
    return r.action == round::poll_action::wait && !r.evaluate && r.reason != round::wait_reason::in_phase;
}

/// What a site waits for after this answer.
std::string_view waits_for(const ledger::poll_reply& r) {
    if (r.action != round::poll_action::wait) return "";
    switch (r.reason) {
        case round::wait_reason::initialising:
            return "the first weights, which another site makes";
        case round::wait_reason::contributed:
            return "the merge of its contribution";
        case round::wait_reason::paused:
            return "the operator: the rounds are paused";
        case round::wait_reason::stopping:
            return "the end of the run";
        case round::wait_reason::merging:
            return "the merge that is under way";
        case round::wait_reason::no_data:
            return "blocks: all are leased or done";
        case round::wait_reason::failed_phase:
            return "its next try after a phase that failed";
        case round::wait_reason::next_round:
            return "the next round: it came too late for this one";
        case round::wait_reason::in_phase:
        case round::wait_reason::none:
            break;
    }
    return "";
}

json::value figures_json(const round::merge_figures& f) {
    json::value out = json::object{};
    out.set("seconds", wire::seconds(f.merge_ms));
    out.set("drift_mean", f.drift_mean);
    out.set("drift_max", f.drift_max);
    out.set("agreement", f.agreement);
    out.set("bytes", wire::count(f.bytes));
    return out;
}

json::value history_json(const round::history_entry& h) {
    json::value out = json::make_object({{"generation", wire::count(h.next.count)},
                                         {"global_step", wire::count(h.global_step)},
                                         {"tokens", wire::count(h.tokens)}});
    json::value used = json::array{};
    for (const auto& u : h.used) used.push_back(json::make_object({{"site", u.site.name}, {"id", u.id.text}}));
    out.set("used", std::move(used));
    json::value rejected = json::array{};
    for (const auto& b : h.rejected_ids)
        rejected.push_back(json::make_object({{"site", b.site.name}, {"id", b.id.text}, {"reason", word(b.reason)}}));
    out.set("rejected", std::move(rejected));
    out.set("figures", figures_json(h.figures));
    return out;
}

}  // namespace

asio::awaitable<reply> ledger_service::post_join(api_call& call) {
    const auto in = wire::read_join(call.body);
    if (!in) co_return bad_request(in.error());
    const auto out = core_.apply(*in);
    reply r = out.ok() ? json_reply(wire::to_json(out.reply(), context())) : refused(out.refused());
    co_return co_await when_settled(std::move(r));
}

asio::awaitable<reply> ledger_service::post_poll(api_call& call) {
    const auto in = wire::read_poll(call.body);
    if (!in) co_return bad_request(in.error());
    wire::field_reader fields(call.body);
    const double wait_s = std::clamp(fields.number("wait_s", static_cast<double>(options_.poll_ms) / 1000.0), 0.0,
                                     static_cast<double>(options_.poll_ms) / 1000.0);
    if (!fields.ok()) co_return bad_request(fields.fault());
    const auto begun = std::chrono::steady_clock::now();
    const auto until = begun + std::chrono::milliseconds(static_cast<std::int64_t>(wait_s * 1000.0));
    for (bool held = false;; held = true) {
        auto out = core_.apply(*in);
        if (!out.ok()) {
            reply told = refused(out.refused());
            co_return co_await when_settled(std::move(told));
        }
        waits_.tell(in->who.site.name, waits_for(out.reply()), core_.now());
        const auto now = std::chrono::steady_clock::now();
        if (!may_be_held(out.reply()) || hub_.stopped() || now >= until) {
            ledger::poll_reply answer = out.reply();
            if (held) answer.retry_after_ms = 0;  // it has waited here
            {
                reply told = json_reply(wire::to_json(answer, context()));
                co_return co_await when_settled(std::move(told));
            }
        }
        if (!co_await core_.settled()) co_return co_await when_settled({});
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(until - now) + std::chrono::milliseconds(1);
        co_await hub_.wait(in->who.site.name, std::min(left, std::chrono::milliseconds(look_again_ms)));
    }
}

asio::awaitable<reply> ledger_service::post_contribute(api_call& call) {
    const auto in = wire::read_contribute(call.body);
    if (!in) co_return bad_request(in.error());
    const auto out = core_.apply(*in);
    reply r = out.ok() ? json_reply(wire::to_json(out.reply(), context())) : refused(out.refused(), true);
    co_return co_await when_settled(std::move(r));
}

asio::awaitable<reply> ledger_service::post_decline(api_call& call) {
    const auto in = wire::read_decline(call.body);
    if (!in) co_return bad_request(in.error());
    const auto out = core_.apply(*in);
    reply r = out.ok() ? json_reply(wire::to_json(out.reply(), context())) : refused(out.refused());
    co_return co_await when_settled(std::move(r));
}

asio::awaitable<reply> ledger_service::post_evaluation(api_call& call) {
    const auto in = wire::read_evaluation(call.body);
    if (!in) co_return bad_request(in.error());
    const auto out = core_.apply(*in);
    reply r = out.ok() ? json_reply(wire::to_json(out.reply(), context())) : refused(out.refused());
    co_return co_await when_settled(std::move(r));
}

asio::awaitable<reply> ledger_service::post_leave(api_call& call) {
    const auto in = wire::read_leave(call.body);
    if (!in) co_return bad_request(in.error());
    const auto out = core_.apply(*in);
    if (out.ok()) waits_.tell(in->who.site.name, "", core_.now());
    reply r = out.ok() ? json_reply(wire::to_json(out.reply(), context())) : refused(out.refused());
    co_return co_await when_settled(std::move(r));
}

asio::awaitable<reply> ledger_service::post_pause(api_call& call) {
    const auto in = wire::read_pause(call.body);
    if (!in) co_return bad_request(in.error());
    const auto out = core_.apply(*in);
    {
        reply told = json_reply(wire::to_json(out.reply(), context()));
        co_return co_await when_settled(std::move(told));
    }
}

asio::awaitable<reply> ledger_service::post_resume(api_call&) {
    const auto out = core_.apply(ledger::resume_request{});
    {
        reply told = json_reply(wire::to_json(out.reply(), context()));
        co_return co_await when_settled(std::move(told));
    }
}

asio::awaitable<reply> ledger_service::post_stop(api_call&) {
    const auto out = core_.apply(ledger::stop_request{});
    {
        reply told = json_reply(wire::to_json(out.reply(), context()));
        co_return co_await when_settled(std::move(told));
    }
}

json::value ledger_service::round_json() const {
    const auto report = core_.machine().round_status(core_.now());
    json::value out = json::make_object({{"state", round::word(report.state)},
                                         {"generation", wire::count(report.current.count)},
                                         {"term", core_.machine().term().count},
                                         {"global_step", wire::count(report.global_step)},
                                         {"round_open_s", wire::seconds(report.open_ms)},
                                         {"pledged", report.pledged},
                                         {"quorum", report.quorum},
                                         {"waiting_for", report.waiting_for}});
    json::value participants = json::array{};
    for (const auto& p : report.participants) {
        json::value line = json::make_object({{"site", p.site.name},
                                              {"status", p.status},
                                              {"started_s_ago", wire::seconds(p.started_ago_ms)},
                                              {"eta_s", wire::seconds(p.eta_ms)},
                                              {"due_in_s", wire::seconds(p.due_in_ms)},
                                              {"upload_percent", p.upload_percent}});
        line.set("budget_s", p.budget_ms ? json::value(wire::seconds(*p.budget_ms)) : json::value(nullptr));
        participants.push_back(std::move(line));
    }
    out.set("participants", std::move(participants));
    json::value members = json::array{};
    for (const auto& m : report.members) {
        json::value line = json::make_object({{"site", m.site.name},
                                              {"live", m.live},
                                              {"last_seen_s", wire::seconds(m.last_seen_ms)},
                                              {"generation", wire::count(m.have.count)},
                                              {"lagging", m.lagging},
                                              {"contributed", wire::count(m.contributed)},
                                              {"rejected", wire::count(m.rejected)},
                                              {"refused", wire::count(m.refused)},
                                              {"tokens_total", wire::count(m.tokens_total)}});
        if (m.last_refusal) line.set("last_refusal", word(*m.last_refusal));
        members.push_back(std::move(line));
    }
    out.set("members", std::move(members));
    if (report.last_merge) out.set("last_merge", history_json(*report.last_merge));
    if (report.evaluated && report.evaluated_loss)
        out.set("evaluation", json::make_object({{"generation", wire::count(report.evaluated->count)},
                                                 {"loss", *report.evaluated_loss},
                                                 {"perplexity", std::exp(*report.evaluated_loss)}}));
    out.set("stop_reason", report.stop ? json::value(round::word(*report.stop)) : json::value(nullptr));
    return out;
}

asio::awaitable<reply> ledger_service::get_round(api_call&) {
    json::value out = round_json();
    for (const extra_routes* more : extras_) more->add_status(out);
    {
        reply told = json_reply(out);
        co_return co_await when_settled(std::move(told));
    }
}

reply ledger_service::rounds_since(generation first, std::uint32_t most) const {
    json::value list = json::array{};
    for (const auto& h : round::history(core_.machine().rounds(), first, most)) list.push_back(history_json(h));
    json::value body;
    body.set("rounds", std::move(list));
    return json_reply(body);
}

asio::awaitable<reply> ledger_service::get_history(api_call& call) {
    const std::string* from = call.parameter("from");
    const std::string* number = call.parameter("count");
    const auto first = from == nullptr ? std::optional<std::uint64_t>(0) : parse_decimal(*from);
    const auto most = number == nullptr ? std::optional<std::uint64_t>(100) : parse_decimal(*number);
    if (!first || !most) co_return error_reply(errc::bad_request, "from and count must be whole numbers");
    {
        reply told = rounds_since(generation{*first}, static_cast<std::uint32_t>(std::min<std::uint64_t>(*most, 100)));
        co_return co_await when_settled(std::move(told));
    }
}

}  // namespace darlcore::http
