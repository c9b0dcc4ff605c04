// SPDX-License-Identifier: Apache-2.0
#include "backends/asio/probe_routes.hpp"

#include <cmath>
#include <cstdlib>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "backends/asio/on_pool.hpp"
#include "backends/slurm/durable_file.hpp"

namespace darlcore::http {

namespace {

constexpr std::size_t piece_bytes = std::size_t{64} << 10U;
constexpr std::size_t rows_shown_max = 64;
constexpr double shown_for_s = 5;

reply of_error(const error& e) {
    if (e.code == errc::no_space)
        return error_reply(errc::disk_full_ack, "the server's disk is full; records stay in the spool", 60'000);
    if (e.code == errc::io_error)
        return error_reply(errc::overloaded, "the server cannot use its probe files; records stay in the spool",
                           60'000);
    return error_reply(e.code, e.context);
}

// Of a parameter: nothing when it is not given; NaN when it is no finite number.
std::optional<double> number_of(const api_call& call, std::string_view name) {
    const std::string* text = call.parameter(name);
    if (text == nullptr) return std::nullopt;
    char* end = nullptr;
    const double v = std::strtod(text->c_str(), &end);
    const bool plain = text->find_first_not_of("0123456789.+-eE") == std::string::npos;
    return !text->empty() && *end == '\0' && plain && std::isfinite(v) ? v : std::nan("");
}

result<slurm::probe_query> query_of(const api_call& call) {
    slurm::probe_query q;
    for (const auto& [name, into] : {std::pair{"site", &q.site}, {"shape", &q.shape}}) {
        const std::string* text = call.parameter(name);
        if (text == nullptr) continue;
        if (!is_valid_name(*text))
            return fail(errc::bad_request, fmt::format("{} must match [A-Za-z0-9][A-Za-z0-9._-]{{0,63}}", name));
        *into = *text;
    }
    q.since_s = number_of(call, "since_s");
    if (q.since_s && std::isnan(*q.since_s)) return fail(errc::bad_request, "since_s must be epoch seconds");
    if (const std::string* text = call.parameter("limit")) {
        const auto n = parse_decimal(*text);
        if (!n || *n == 0) return fail(errc::bad_request, "limit must be a whole number, 1 to 10000");
        q.limit = static_cast<std::size_t>(*n);
    }
    return q;
}

// {"records": [...], "truncated": b} in pieces: ten thousand rows are more than a reply in one may hold.
reply streamed(slurm::probe_store::selection found) {
    struct state {
        slurm::probe_store::selection found;
        std::size_t next = 0;
        bool begun = false, ended = false;
    };
    auto s = std::make_shared<state>();
    s->found = std::move(found);
    reply r;
    r.pieces = [s]() -> std::string {
        if (s->ended) return {};
        std::string piece = s->begun ? "" : "{\"records\":[";
        s->begun = true;
        for (; s->next < s->found.lines.size() && piece.size() < piece_bytes; ++s->next)
            piece += (s->next == 0 ? "" : ",") + s->found.lines[s->next];
        if (s->next == s->found.lines.size()) {
            piece += fmt::format("],\"truncated\":{}}}", s->found.truncated);
            s->ended = true;
        }
        return piece;
    };
    return r;
}

bool wants_html(const api_call& call) {
    const std::string* accept = call.x.head().find("accept");
    return accept != nullptr && accept->find("text/html") != std::string::npos;
}

}  // namespace

probe_routes::probe_routes(asio::thread_pool& pool, ledger_service& service, std::string folder, plan_renderer render)
    : pool_(pool), service_(service), folder_(std::move(folder)), render_(std::move(render)) {
    const double now_s = service_.core().wall_s();
    asio::post(pool_, [this, now_s] {
        const std::lock_guard held(mutex_);
        (void)open(now_s);  // a failure is told, and tried again, with the first call
    });
}

result<void> probe_routes::open(double now_s) {
    if (store_) return {};
    auto opened = slurm::probe_store::open(folder_, now_s);
    if (!opened) return opened.error();
    store_.emplace(std::move(*opened));
    return {};
}

std::optional<extra_routes::found> probe_routes::find(const request_head& head) const {
    const std::string_view path = head.path;
    const bool read = head.method == "GET" || head.method == "HEAD";
    if (path == "/probes" && head.method == "POST") return found{"POST /probes", scope::probe, true};
    if (path == "/plan" && head.method == "PUT") return found{"PUT /plan", scope::probe, true};
    if (path == "/probes") return found{read ? "GET /probes" : "other", scope::read, false};
    if (path == "/usage") return found{read ? "GET /usage" : "other", scope::read, false};
    if (path == "/estimates") return found{read ? "GET /estimates" : "other", scope::read, false};
    if (path == "/plan") return found{read ? "GET /plan" : "other", scope::read, false};
    return std::nullopt;
}

asio::awaitable<reply> probe_routes::run(api_call& call) {
    const request_head& head = call.x.head();
    if (head.method == "POST" && head.path == "/probes") co_return co_await post_probes(call);
    if (head.method == "PUT" && head.path == "/plan") co_return co_await put_plan(call);
    if (head.method != "GET" && head.method != "HEAD") {
        reply r = error_reply(errc::method, "this path does not take that method; see the Allow header");
        const bool writes = head.path == "/probes" || head.path == "/plan";
        r.headers.push_back({"Allow", !writes ? "GET" : head.path == "/probes" ? "GET, POST" : "GET, PUT"});
        r.close = head.has_body();
        co_return r;
    }
    if (head.path == "/probes") co_return co_await get_records(call, "probe");
    if (head.path == "/usage") co_return co_await get_records(call, "usage");
    if (head.path == "/estimates") co_return co_await get_estimates(call);
    co_return co_await get_plan(call);
}

// `work` on the pool, alone with the store; what it returns is the reply.
template <class Work>
asio::awaitable<reply> probe_routes::with_store(Work work) {
    const double now_s = service_.core().wall_s();
    const auto held = [this, &work, now_s]() -> reply {
        const std::lock_guard lock(mutex_);
        if (auto ok = open(now_s); !ok) return of_error(ok.error());
        return work(*store_, now_s);
    };
    co_return co_await on_pool(pool_, held);
}

asio::awaitable<reply> probe_routes::post_probes(api_call& call) {
    const std::string text = co_await read_body(call.x, service_.options().json_bytes_max);
    if (call.x.wrong()) co_return reply{};
    auto body = json::parse(text, {static_cast<std::size_t>(service_.options().json_bytes_max), 32});
    if (!body || !body->is_object())
        co_return error_reply(
            errc::bad_request,
            "the body must be {\"records\": [...]} (JSON, UTF-8, no duplicate keys, depth at most 32)");
    // asked here: tokens may be reloaded while the pool works
    std::set<std::string, std::less<>> allowed;
    if (const json::value* records = body->find("records"); records != nullptr && records->is_array())
        for (const json::value& r : *records->as_array())
            if (const json::value* site = r.find("site"); site != nullptr && site->as_string() != nullptr)
                if (service_.access().speaks_for(call.who, *site->as_string())) allowed.insert(*site->as_string());
    const auto work = [&](slurm::probe_store& store, double now_s) {
        const auto may = [&](std::string_view site) { return allowed.find(site) != allowed.end(); };
        const auto made = store.post(*body, may, now_s);
        if (!made) return of_error(made.error());
        accepted_ += made->at("accepted").as_u64().value_or(0);
        duplicate_ += made->at("duplicate").as_u64().value_or(0);
        rejected_ += made->at("rejected").size();
        shown_s_ = 0;
        return json_reply(*made);
    };
    co_return co_await with_store(work);
}

asio::awaitable<reply> probe_routes::get_records(api_call& call, std::string_view type) {
    const auto q = query_of(call);
    if (!q) co_return error_reply(q.error().code, q.error().context);
    const auto work = [&](slurm::probe_store& store, double now_s) { return streamed(store.select(type, *q, now_s)); };
    co_return co_await with_store(work);
}

asio::awaitable<reply> probe_routes::get_estimates(api_call& call) {
    const auto strength = number_of(call, "strength");
    if (strength && !(*strength >= 0 && *strength <= 1))
        co_return error_reply(errc::bad_request, "strength must be a number between 0 and 1");
    const auto work = [&](slurm::probe_store& store, double now_s) {
        return json_reply(store.estimates(now_s, strength.value_or(0.5)));
    };
    co_return co_await with_store(work);
}

asio::awaitable<reply> probe_routes::put_plan(api_call& call) {
    const std::string text = co_await read_body(call.x, service_.options().json_bytes_max);
    if (call.x.wrong()) co_return reply{};
    const auto document = json::parse(text, {static_cast<std::size_t>(service_.options().json_bytes_max), 32});
    if (!document) co_return error_reply(errc::bad_request, "the body must be a plan document (JSON)");
    if (const auto page = render_(*document); !page) co_return error_reply(errc::bad_request, page.error().context);
    const auto work = [&](slurm::probe_store&, double now_s) {
        const json::value kept = json::make_object({{"stored_s", now_s}, {"plan", *document}});
        if (auto ok = slurm::replace_durably(folder_, "plan.json", json::dump(kept)); !ok) return of_error(ok.error());
        return json_reply(json::make_object({{"stored", true}}));
    };
    co_return co_await with_store(work);
}

asio::awaitable<reply> probe_routes::get_plan(api_call& call) {
    const bool html = wants_html(call);
    const auto work = [&](slurm::probe_store&, double) {
        const auto kept = json::parse(slurm::read_whole(folder_ + "/plan.json"), {std::size_t{2} << 20U, 34});
        if (!kept || !kept->contains("plan"))
            return error_reply(errc::not_found,
                               "no plan is stored; darl plan campaign --server URL --publish makes one");
        if (!html) return json_reply(kept->at("plan"));
        const auto page = render_(kept->at("plan"));
        if (!page) return error_reply(errc::not_found, page.error().context);
        reply r;
        r.content_type = "text/html; charset=utf-8";
        r.body = *page;
        r.headers.push_back({"Content-Security-Policy",
                             "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"});
        r.headers.push_back({"Referrer-Policy", "no-referrer"});
        return r;
    };
    co_return co_await with_store(work);
}

// The estimates of a few seconds ago while the store is busy.
void probe_routes::add_status(json::value& status) const {
    const double now_s = service_.core().wall_s();
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock.owns_lock() && store_ && now_s - shown_s_ > shown_for_s) {
        const json::value all = store_->estimates(now_s);
        json::value rows = json::array{}, scores = json::array{};
        for (const json::value& e : *all.at("estimates").as_array()) {
            if (rows.size() == rows_shown_max) break;
            json::value row = json::object{};
            for (const char* key : {"site", "shape", "class", "wait_s", "wait_raw_s", "wait_p50_s", "wait_p90_s",
                                    "discounted", "gamma", "age_s", "reason"})
                row.set(key, e.at(key));
            rows.push_back(std::move(row));
        }
        for (const json::value& s : *all.at("scores").as_array()) {
            if (scores.size() == rows_shown_max) break;
            json::value row = json::object{};
            for (const char* key : {"site", "partition", "pairs", "bias_s", "spread_s", "within_p50", "within_p90"})
                row.set(key, s.at(key));
            scores.push_back(std::move(row));
        }
        shown_ = json::make_object({{"records", store_->records()},
                                    {"estimates", std::move(rows)},
                                    {"scores", std::move(scores)},
                                    {"truncated", all.at("estimates").size() > rows_shown_max}});
        shown_s_ = now_s;
    }
    if (lock.owns_lock() || !shown_.is_null()) status.set("probes", shown_.is_null() ? json::object{} : shown_);
}

void probe_routes::add_metrics(std::string& text) const {
    text += "# HELP darl_probe_records_total Probe records received.\n# TYPE darl_probe_records_total counter\n";
    for (const auto& [outcome, n] :
         {std::pair{"accepted", &accepted_}, {"duplicate", &duplicate_}, {"rejected", &rejected_}})
        fmt::format_to(std::back_inserter(text), "darl_probe_records_total{{outcome=\"{}\"}} {}\n", outcome, n->load());
}

}  // namespace darlcore::http
