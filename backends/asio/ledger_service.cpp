// SPDX-License-Identifier: Apache-2.0
#include "backends/asio/ledger_service.hpp"

#include <algorithm>
#include <cmath>
#include <ctime>

#include <fmt/format.h>

#include "backends/asio/reply_head.hpp"
#include "backends/asio/wire_requests.hpp"

namespace darlcore::http {

namespace {

constexpr json::limits request_limits{std::size_t{1} << 20U, 32};

std::string retry_after_text(std::int64_t ms) { return std::to_string(std::max<std::int64_t>(1, (ms + 999) / 1000)); }

double since(std::chrono::steady_clock::time_point t) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - t).count();
}

}  // namespace

const std::string* api_call::parameter(std::string_view name) const {
    for (const auto& [key, value] : query)
        if (key == name) return &value;
    return nullptr;
}

reply json_reply(const json::value& body, int status) {
    reply r;
    r.status = status;
    r.body = json::dump(body);
    return r;
}

reply error_reply(errc code, std::string_view sentence, std::int64_t retry_after_ms, bool about_content) {
    json::value body = json::make_object({{"error", sentence}, {"code", word(code)}});
    if (retry_after_ms > 0) body.set("retry_after", static_cast<double>(retry_after_ms) / 1000.0);
    reply r = json_reply(body, wire::http_status(code, about_content));
    if (retry_after_ms > 0) r.headers.push_back({"Retry-After", retry_after_text(retry_after_ms)});
    return r;
}

/// The rows, in the order of docs/http-api.md.
struct route_table {
    using s = ledger_service;
    static constexpr route rows[] = {
        {"GET", "/", scope::read, false, false, &s::get_page},
        {"GET", "/status", scope::read, false, false, &s::get_status},
        {"GET", "/health", std::nullopt, false, false, &s::get_health},
        {"GET", "/metrics", scope::read, false, false, &s::get_metrics},
        {"GET", "/events", scope::read, false, false, &s::get_events},
        {"GET", "/snapshot", scope::admin, false, false, &s::get_snapshot},
        {"POST", "/snapshot", scope::admin, true, true, &s::post_snapshot},
        {"POST", "/register", scope::lease, true, true, &s::post_register},
        {"POST", "/acquire", scope::lease, true, true, &s::post_acquire},
        {"POST", "/reserve", scope::lease, true, true, &s::post_reserve},
        {"POST", "/heartbeat", scope::lease, false, true, &s::post_heartbeat},
        {"POST", "/commit", scope::lease, true, true, &s::post_commit},
        {"POST", "/release", scope::lease, true, true, &s::post_release},
        {"POST", "/advance", scope::admin, true, true, &s::post_advance},
        {"GET", "/advance", scope::lease, true, false, &s::get_advance},
        {"POST", "/round/join", scope::lease, true, true, &s::post_join},
        {"POST", "/round/poll", scope::lease, true, true, &s::post_poll},
        {"POST", "/round/contribute", scope::lease, true, true, &s::post_contribute},
        {"POST", "/round/decline", scope::lease, true, true, &s::post_decline},
        {"POST", "/round/evaluation", scope::lease, true, true, &s::post_evaluation},
        {"POST", "/round/leave", scope::lease, true, true, &s::post_leave},
        {"GET", "/round", scope::read, false, false, &s::get_round},
        {"GET", "/round/history", scope::read, false, false, &s::get_history},
        {"POST", "/round/pause", scope::admin, true, true, &s::post_pause},
        {"POST", "/round/resume", scope::admin, true, true, &s::post_resume},
        {"POST", "/round/stop", scope::admin, true, true, &s::post_stop},
    };
};

ledger_service::ledger_service(asio::io_context& loop, ledger_core& core, access_control& access,
                               service_options options)
    : loop_(loop), core_(core), access_(access), options_(std::move(options)), hub_(loop) {}

void ledger_service::stop() { hub_.stop(); }

void ledger_service::on_effect(const ledger::effect& e) {
    if (const auto* w = std::get_if<ledger::effects::wake>(&e)) {
        if (w->site)
            hub_.wake(w->site->name);
        else
            hub_.wake_all();
        hub_.wake("");  // /events
    } else if (const auto* n = std::get_if<ledger::effects::notice>(&e)) {
        core_.add_event(n->kind, n->site.name, n->text);
    }
}

wire::reply_context ledger_service::context() const {
    return {core_.epoch(), core_.term(), core_.now(), core_.wall_s(), options_.part_bytes_max, options_.poll_ms};
}

reply ledger_service::refused(const lease::refusal& why, bool about_content) {
    ++metrics_.refusals[std::string(word(why.code))];
    reply r = json_reply(wire::to_json(why), wire::http_status(why.code, about_content));
    if (r.status == 503 || r.status == 429 || r.status == 507)
        r.headers.push_back({"Retry-After", retry_after_text(std::max<std::int64_t>(
                                                why.retry_after_ms, r.status == 507 ? 60'000 : 1'000))});
    return r;
}

asio::awaitable<reply> ledger_service::when_settled(reply r) {
    if (co_await core_.settled()) co_return r;
    reply failed = error_reply(errc::restarting,
                               "the journal could not be written; the server stops and recovers by replay", 5'000);
    failed.close = true;
    co_return failed;
}

std::optional<reply> ledger_service::check_site(const api_call& call, std::string_view cluster) {
    if (access_.speaks_for(call.who, cluster)) return std::nullopt;
    return error_reply(errc::wrong_scope,
                       "this token belongs to another site; a site's own name, or a replica's NAME-suffix, is needed");
}

std::optional<reply> ledger_service::unavailable(bool mutates) {
    if (hub_.stopped())
        return error_reply(errc::restarting, "the server is stopping; try again when it is back", 5'000);
    if (!core_.degraded().empty())
        return error_reply(errc::degraded,
                           "the ledger found its books wrong and grants nothing; the operator must look (/status)",
                           60'000);
    if (mutates && core_.disk_full())
        return error_reply(errc::disk_full_ack,
                           "the server's disk is full: nothing new is accepted, leases do not expire meanwhile",
                           30'000);
    return std::nullopt;
}

std::optional<reply> ledger_service::prepare(exchange& x, std::optional<scope> needs, bool mutates, api_call& call) {
    const auto now_s = static_cast<std::int64_t>(std::time(nullptr));
    if (const auto why = access_.identify(x.head(), now_s, !needs, call.who)) {
        reply r = refusal_reply(*why);
        const std::string* accept = x.head().find("accept");
        if (why->status == 401 && accept != nullptr && accept->find("text/html") != std::string::npos)
            r.headers.push_back({"WWW-Authenticate", "Basic realm=\"darl: any user name, the token as password\""});
        return r;
    }
    if (needs && !call.who.scopes.has(*needs)) {
        reply r = error_reply(errc::wrong_scope, "this token does not allow that; the route needs another scope");
        r.close = x.head().has_body();
        return r;
    }
    if (needs && (mutates || *needs == scope::lease)) {
        if (auto r = unavailable(mutates)) return r;
    }
    auto query = parse_query(x.head().query);
    if (!query) return error_reply(errc::bad_request, "the query has a broken escape or more than 32 fields");
    call.query = std::move(*query);
    return std::nullopt;
}

std::optional<reply> ledger_service::parse_body(api_call& call, const std::string& text) {
    if (text.empty()) {
        call.body = json::object{};
        return std::nullopt;
    }
    auto parsed = json::parse(text, request_limits);
    if (!parsed)
        return error_reply(errc::bad_request,
                           "the body is not one JSON document (UTF-8, no duplicate keys, depth at most 32)");
    if (!parsed->is_object()) return error_reply(errc::bad_request, "the body must be a JSON object");
    call.body = std::move(*parsed);
    const json::value* cluster = call.body.find("cluster");
    if (cluster == nullptr || cluster->as_string() == nullptr) return std::nullopt;  // the reader of the route says so
    return check_site(call, *cluster->as_string());
}

asio::awaitable<reply> ledger_service::run_route(exchange& x, const route& r) {
    api_call call{x, {}, {}, {}, {}};
    if (auto early = prepare(x, r.needs, r.mutates, call)) co_return std::move(*early);
    const auto place = access_.admit(call.who);
    if (!place)
        co_return error_reply(errc::overloaded, "too many requests of this token at once; wait for answers", 1'000);
    if (r.reads_json) {
        const std::string text = co_await read_body(x, options_.json_bytes_max);
        if (x.wrong()) co_return reply{};
        if (auto early = parse_body(call, text)) co_return std::move(*early);
    }
    co_return co_await (this->*r.run)(call);
}

asio::awaitable<reply> ledger_service::run_extra(exchange& x, extra_routes& more, const extra_routes::found& found) {
    api_call call{x, {}, {}, {}, {}};
    if (auto early = prepare(x, found.needs, found.mutates, call)) co_return std::move(*early);
    const auto place = access_.admit(call.who);
    if (!place)
        co_return error_reply(errc::overloaded, "too many requests of this token at once; wait for answers", 1'000);
    co_return co_await more.run(call);
}

asio::awaitable<reply> ledger_service::dispatch(exchange& x, std::string& name) {
    const request_head& head = x.head();
    for (extra_routes* more : extras_) {
        if (const auto found = more->find(head)) {
            name = found->name;
            co_return co_await run_extra(x, *more, *found);
        }
    }
    const std::string_view method = head.method == "HEAD" ? std::string_view("GET") : std::string_view(head.method);
    std::string allowed;
    for (const route& r : route_table::rows) {
        if (r.path != head.path) continue;
        if (r.method == method) {
            name = fmt::format("{} {}", r.method, r.path);
            co_return co_await run_route(x, r);
        }
        allowed += (allowed.empty() ? "" : ", ") + std::string(r.method);
    }
    api_call call{x, {}, {}, {}, {}};
    if (auto early = prepare(x, scope::read, false, call)) co_return std::move(*early);  // strangers learn nothing
    if (allowed.empty()) co_return error_reply(errc::no_route, "there is no such path; docs/http-api.md lists them");
    reply r = error_reply(errc::method, "this path does not take that method; see the Allow header");
    r.headers.push_back({"Allow", allowed});
    co_return r;
}

asio::awaitable<reply> ledger_service::handle(exchange& x) {
    const auto begun = std::chrono::steady_clock::now();
    sample();
    std::string name = "other";
    reply r = co_await dispatch(x, name);
    if (x.wrong()) co_return r;
    metrics_.answered(name, r.status);
    if (name != "POST /round/poll" && name != "GET /events" && name.find("/blobs") == std::string::npos)
        metrics_.latency.add(since(begun));
    r.headers.push_back(
        {"Cache-Control", r.status == 206 || r.file ? "private, max-age=86400, immutable" : "no-store"});
    r.headers.push_back({"X-Content-Type-Options", "nosniff"});
    co_return r;
}

}  // namespace darlcore::http
