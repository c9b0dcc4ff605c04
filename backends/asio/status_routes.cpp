// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>

#include <fmt/format.h>
#include <asio/post.hpp>

#include "backends/asio/ledger_service.hpp"
#include "backends/asio/status_page.hpp"
#include "backends/asio/wire_fields.hpp"
#include "darlcore/ledger/machine.hpp"

namespace darlcore::http {

namespace {

constexpr std::size_t leases_shown_max = 256;
constexpr std::size_t sites_shown_max = 512;
constexpr std::size_t recent_events_max = 50;
constexpr std::size_t events_per_page_max = 1'000;

json::value event_json(const event_entry& e) {
    json::value out =
        json::make_object({{"seq", wire::count(e.sequence)}, {"t", e.wall_s}, {"event", e.event}, {"cluster", e.site}});
    if (!e.text.empty()) out.set("text", e.text);
    return out;
}

json::value events_json(const std::vector<event_entry>& events) {
    json::value out = json::array{};
    for (const event_entry& e : events) out.push_back(event_json(e));
    return out;
}

json::value lease_json(const lease::table& table, const lease::lease_record& l, const wire::reply_context& c) {
    json::value out = wire::to_json(l, table.site(l.site, c.now).id, c);
    out.set("progress_end", wire::count(std::max(l.done_end, table.trained_end(l.seq)).count));
    return out;
}

json::value site_json(const lease::site_view& v, const wire::reply_context& c) {
    const auto wall = [&c](ledger_time t) { return c.wall_s + wire::seconds(t - c.now); };
    return json::make_object(
        {{"cluster_id", v.id.name},
         {"joined_at", wall(v.first_seen)},
         {"last_seen", wall(v.last_seen)},
         {"ranks", v.ranks},
         {"grants", wire::count(v.counters.grants)},
         {"blocks_granted", wire::count(v.counters.granted)},
         {"blocks_committed", wire::count(v.counters.committed)},
         {"blocks_lost", wire::count(v.counters.lost)},
         {"blocks_stolen_from", wire::count(v.counters.stolen_from)},
         {"blocks_stolen_by", wire::count(v.counters.stolen_by)},
         {"expiries", wire::count(v.counters.expiries)},
         {"macro_step_s", v.macro_step_s},
         {"rtt_s", v.rtt_s},
         {"rate", v.rate_blocks_per_s},
         {"cursor", wire::count(v.cursor.count)},
         {"incarnation", v.incarnation.is_none() ? std::string() : to_text(v.incarnation).substr(0, 8)},
         {"incarnations", v.incarnations},
         {"mode", lease::word(v.mode)},
         {"promise", v.mode == lease::site_mode::legacy ? "site" : "ledger"},
         {"live", v.live},
         {"held", wire::count(v.held)},
         {"reserved", wire::count(v.reserved)},
         {"pledged", wire::count(v.pledged)},
         {"blocks_pledged", wire::count(v.counters.pledged)},
         {"rejected", wire::count(v.counters.rejected)}});
}

}  // namespace

// At most once a second of ledger time: progress for the rate, and what the server itself waits for.
void ledger_service::sample() {
    const ledger_time now = core_.now();
    if (sampled_ms_ != 0 && now.ms - sampled_ms_ < 1'000) return;
    sampled_ms_ = now.ms;
    const lease::table& table = core_.machine().leases();
    const auto counts = table.counts();
    rate_.sample(now.ms, table.open_leases() > 0, counts.committed + counts.pledged);
    own_waits_.tell("server", core_.disk_full() ? "disk space: nothing new is accepted, leases do not expire" : "",
                    now);
    own_waits_.tell("everybody", core_.degraded().empty() ? "" : "the operator: " + core_.degraded(), now);
    own_waits_.tell("round", round::word(core_.machine().rounds().state()), now);
}

void ledger_service::add_sites(json::value& out, std::size_t sites_max, bool& truncated) const {
    const lease::table& table = core_.machine().leases();
    json::value clusters = json::object{};
    const auto c = context();
    for (std::uint32_t i = 0; i < table.num_sites(); ++i) {
        if (i == sites_max) {
            truncated = true;
            break;
        }
        const auto view = table.site(lease::site_number{i}, c.now);
        json::value site = site_json(view, c);
        const auto told = core_.machine().kept().told.find(view.id);
        const bool verified = told != core_.machine().kept().told.end() && !told->second.content.empty();
        site.set("corpus", verified ? "verified" : "unverified");
        clusters.set(view.id.name, std::move(site));
    }
    out.set("clusters", std::move(clusters));
}

void ledger_service::add_waiting(json::value& out) const {
    json::value waiting = json::array{};
    const ledger_time now = core_.now();
    const auto add = [&](std::string_view who, std::string_view what, std::int64_t since_ms) {
        waiting.push_back(json::make_object({{"who", who}, {"for", what}, {"since_s", wire::seconds(since_ms)}}));
    };
    std::int64_t in_state_ms = 0;
    own_waits_.each(now, [&](const std::string& who, const wait_board::wait& w) {
        if (who == "round")
            in_state_ms = now - w.since;
        else
            add(who, w.what, now - w.since);
    });
    std::size_t shown = 0;
    waits_.each(now, [&](const std::string& who, const wait_board::wait& w) {
        if (++shown <= sites_shown_max) add(who, w.what, now - w.since);
    });
    if (core_.machine().settings().rounds) {
        const auto report = core_.machine().round_status(now);
        const bool is_open = report.state == round::phase::open;
        if (!report.waiting_for.empty()) add("round", report.waiting_for, is_open ? report.open_ms : in_state_ms);
    }
    out.set("waiting", std::move(waiting));
}

void ledger_service::add_storage(json::value& out) const {
    const auto figures = core_.figures();
    json::value storage = json::make_object({{"records_since_snapshot", wire::count(core_.records_since_snapshot())},
                                             {"batches", wire::count(figures.batches)},
                                             {"records", wire::count(figures.records)},
                                             {"last_fsync_ms", figures.last_sync_s * 1000.0},
                                             {"disk_full", core_.disk_full()}});
    const auto& snap = core_.snapshots();
    storage.set(
        "last_snapshot",
        json::make_object({{"sequence", wire::count(snap.sequence)}, {"at", snap.wall_s}, {"failure", snap.failure}}));
    out.set("storage", std::move(storage));
    for (const extra_routes* more : extras_) more->add_status(out);
}

json::value ledger_service::status(bool with_leases) const {
    const ledger::machine& m = core_.machine();
    const lease::table& table = m.leases();
    const auto counts = table.counts();
    const auto c = context();
    const std::uint64_t blocks = table.geometry().num_blocks;
    const double rate = rate_.blocks_per_s();
    const std::uint64_t left = blocks - std::min(blocks, counts.committed + counts.quarantined);
    bool truncated = false;
    json::value out = json::make_object({
        {"epoch", c.epoch.count},
        {"max_epochs", table.rules().max_epochs},
        {"epochs_completed", std::uint64_t{c.epoch.count} + (table.epoch_complete() ? 1U : 0U)},
        {"num_blocks", wire::count(blocks)},
        {"committed", wire::count(counts.committed)},
        {"leased", wire::count(counts.leased)},
        {"unassigned", wire::count(counts.unassigned)},
        {"pledged", wire::count(counts.pledged)},
        {"quarantined", wire::count(counts.quarantined)},
        {"fragments", wire::count(table.fragments())},
        {"epoch_complete", table.epoch_complete()},
        {"progress", blocks == 0 ? 1.0 : static_cast<double>(counts.committed) / static_cast<double>(blocks)},
        {"blocks_per_s", rate},
        {"eta_s", rate > 0 ? static_cast<double>(left) / rate : 0.0},
        {"digest", m.space_digest()},
        {"active_leases", wire::count(table.open_leases())},
        {"requests", wire::count(server_ != nullptr ? server_->counters().requests : 0)},
        {"term", c.term.count},
        {"run_id", m.settings().run_id},
        {"uptime_s", std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count()},
        {"ledger_s", wire::seconds(c.now.ms)},
        {"commit_policy", lease::word(table.rules().commit_policy)},
        {"generation", wire::count(m.rounds().current().count)},
        {"degraded", core_.degraded()},
    });
    const std::string_view verdict = !table.epoch_complete()   ? "running"
                                     : counts.quarantined == 0 ? "complete"
                                                               : "complete_except";
    out.set("verdict", counts.quarantined > 0 && table.epoch_complete()
                           ? fmt::format("complete_except {}", counts.quarantined)
                           : std::string(verdict));
    json::value positions = json::array{};
    for (const span& s : table.quarantined()) {
        if (positions.size() == leases_shown_max) break;
        positions.push_back(json::value(json::array{wire::count(s.start.count), wire::count(s.end.count)}));
    }
    out.set("quarantined_positions", std::move(positions));
    if (m.settings().rounds) out.set("round", round_json());
    add_storage(out);
    add_waiting(out);
    out.set("recent_events", events_json(core_.events().newest(recent_events_max)));
    if (with_leases) {
        add_sites(out, sites_shown_max, truncated);
        json::value leases = json::array{};
        truncated = truncated || table.open_leases() > leases_shown_max;
        const auto all = table.all_leases();
        for (std::size_t i = 0; i < std::min(all.size(), leases_shown_max); ++i)
            leases.push_back(lease_json(table, all[i], c));
        out.set("leases", std::move(leases));
        out.set("truncated", truncated);
    }
    return out;
}

// Everything, a piece per lease batch: memory holds the records (copied now), never the whole text.
piece_source ledger_service::full_status_pieces() const {
    struct state {
        std::string head;
        std::vector<std::pair<lease::lease_record, site_id>> leases;
        std::vector<std::pair<std::string, std::string>> sites;
        wire::reply_context context;
        std::size_t lease = 0;
        int stage = 0;
    };
    auto s = std::make_shared<state>();
    const lease::table& table = core_.machine().leases();
    s->context = context();
    s->head = json::dump(status(false));
    s->head.back() = ',';  // the closing brace; members follow
    json::value sites = json::object{};
    bool truncated = false;
    add_sites(sites, SIZE_MAX, truncated);
    s->head += "\"clusters\":" + json::dump(sites.at("clusters")) + ",\"truncated\":false,\"leases\":[";
    for (const auto& l : table.all_leases()) s->leases.emplace_back(l, table.site(l.site, s->context.now).id);
    return [s]() -> std::string {
        if (s->stage == 0) {
            s->stage = 1;
            return std::move(s->head);
        }
        if (s->stage == 2) return {};
        std::string piece;
        for (std::size_t n = 0; n < leases_shown_max && s->lease < s->leases.size(); ++n, ++s->lease) {
            if (s->lease > 0) piece += ',';
            piece += json::dump(wire::to_json(s->leases[s->lease].first, s->leases[s->lease].second, s->context));
        }
        if (s->lease == s->leases.size()) {
            s->stage = 2;
            piece += "]}";
        }
        return piece;
    };
}

asio::awaitable<reply> ledger_service::get_status(api_call& call) {
    const std::string* full = call.parameter("full");
    if (full != nullptr && *full != "0") {
        reply r;
        r.pieces = full_status_pieces();
        co_return co_await when_settled(std::move(r));
    }
    {
        reply told = json_reply(status(true));
        co_return co_await when_settled(std::move(told));
    }
}

asio::awaitable<reply> ledger_service::get_snapshot(api_call&) {
    reply r;
    r.pieces = full_status_pieces();
    co_return co_await when_settled(std::move(r));
}

asio::awaitable<reply> ledger_service::post_snapshot(api_call&) {
    const std::uint64_t before = core_.snapshots().sequence;
    if (!core_.begin_snapshot())
        co_return error_reply(errc::disk_full_ack, "a snapshot is under way, or the disk is full; try again", 5'000);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(25);
    while (core_.snapshots().running && std::chrono::steady_clock::now() < until)
        co_await hub_.wait("", std::chrono::milliseconds(50));
    const auto& snap = core_.snapshots();
    if (snap.running || (!snap.failure.empty() && snap.sequence == before))
        co_return error_reply(errc::disk_full_ack, "the snapshot was not written; /status tells why, nothing is lost",
                              30'000);
    json::value body;
    body.set("snapshot", "journal/" + storage::snapshot_name(snap.sequence));
    co_return json_reply(body);
}

reply ledger_service::health(bool with_details) const {
    const bool degraded = !core_.degraded().empty();
    const bool stopping = hub_.stopped();
    json::value body = json::make_object({{"ok", !degraded && !stopping},
                                          {"epoch", core_.machine().epoch().count},
                                          {"term", core_.machine().term().count}});
    if (degraded)
        body.set("code", "degraded");
    else if (stopping)
        body.set("code", "restarting");
    if (with_details) {  // details only for those with a token
        body.set("generation", wire::count(core_.machine().rounds().current().count));
        body.set("disk_full", core_.disk_full());
        if (degraded) body.set("error", core_.degraded());
    }
    reply r = json_reply(body, degraded || stopping ? 503 : 200);
    if (r.status == 503) r.headers.push_back({"Retry-After", "10"});
    return r;
}

asio::awaitable<reply> ledger_service::get_health(api_call& call) {
    {
        reply told = health(call.who.scopes.bits != 0);
        co_return co_await when_settled(std::move(told));
    }
}

asio::awaitable<reply> ledger_service::get_events(api_call& call) {
    const std::string* after_text = call.parameter("after");
    const std::string* limit_text = call.parameter("limit");
    const auto after =
        after_text == nullptr ? std::optional<std::uint64_t>(core_.events().forgotten()) : parse_decimal(*after_text);
    const auto limit =
        limit_text == nullptr ? std::optional<std::uint64_t>(events_per_page_max) : parse_decimal(*limit_text);
    if (!after || !limit || *limit == 0)
        co_return error_reply(errc::bad_request, "after and limit must be whole numbers, limit above 0");
    if (*after < core_.events().forgotten())
        co_return error_reply(errc::gone, "events that old are in the journal only; ask without after");
    const std::size_t most = std::min<std::uint64_t>(*limit, events_per_page_max);
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(options_.poll_ms);
    for (;;) {
        const auto events = core_.events().after(*after, most, core_.durable_sequence());
        if (!events.empty() || hub_.stopped() || std::chrono::steady_clock::now() >= until) {
            const std::uint64_t next = events.empty() ? *after : events.back().sequence;
            json::value body;
            body.set("events", events_json(events));
            body.set("next", wire::count(next));
            co_return json_reply(body);
        }
        co_await hub_.wait("", std::chrono::milliseconds(250));
    }
}

asio::awaitable<reply> ledger_service::get_metrics(api_call&) {
    reply r;
    r.content_type = "text/plain; version=0.0.4; charset=utf-8";
    r.body = metrics_text();
    co_return co_await when_settled(std::move(r));
}

reply ledger_service::page(bool html) const {
    reply r;
    const json::value now = status(true);
    if (html) {
        r.content_type = "text/html; charset=utf-8";
        r.body = status_page(now);
        r.headers.push_back({"Content-Security-Policy",
                             "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"});
        r.headers.push_back({"Referrer-Policy", "no-referrer"});
    } else {
        r.content_type = "text/plain; charset=utf-8";
        r.body = status_text(now);
    }
    return r;
}

asio::awaitable<reply> ledger_service::get_page(api_call& call) {
    const std::string* accept = call.x.head().find("accept");
    {
        reply told = page(accept != nullptr && accept->find("text/html") != std::string::npos);
        co_return co_await when_settled(std::move(told));
    }
}

}  // namespace darlcore::http
