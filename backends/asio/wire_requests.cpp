// SPDX-License-Identifier: Apache-2.0
#include "backends/asio/wire_requests.hpp"

#include <algorithm>

#include "backends/asio/wire_fields.hpp"

namespace darlcore::wire {

namespace {

constexpr std::size_t short_text = 256;

lease::caller read_caller(field_reader& in) { return {in.site("cluster"), in.incarnation("incarnation")}; }

lease::site_report read_report(field_reader& in) {
    return {in.number("ttl"), in.number("macro_step_s"), in.number("rtt_s")};
}

template <class Enum, std::size_t N>
Enum read_word(field_reader& in, std::string_view name, const Enum (&all)[N], Enum fallback) {
    const std::string text = in.text(name, 64);
    if (text.empty()) return fallback;
    std::string words;
    for (const Enum e : all) {
        if (text == word(e)) return e;
        words.append(words.empty() ? "" : ", ").append(word(e));
    }
    in.fail(name, "one of " + words);
    return fallback;
}

constexpr round::site_activity activities[] = {round::site_activity::idle, round::site_activity::training,
                                               round::site_activity::uploading, round::site_activity::waiting};
constexpr round::decline_reason decline_reasons[] = {round::decline_reason::no_data, round::decline_reason::not_finite,
                                                     round::decline_reason::local_error};

}  // namespace

result<ledger::register_request> read_register(const json::value& body) {
    field_reader in(body);
    ledger::register_request r;
    r.who = read_caller(in);
    r.protocol = static_cast<std::uint32_t>(in.whole("protocol", 1, 1'000'000));
    r.digest = in.text("digest", short_text);
    r.ranks = static_cast<std::uint32_t>(in.whole("ranks", 0, 1'000'000'000));
    if (in.member("num_samples") != nullptr) r.num_samples = in.whole("num_samples", 0);
    if (in.member("block_size") != nullptr) r.block_size = in.whole("block_size", 0);
    if (in.member("take_over") != nullptr) r.take_over = in.incarnation("take_over");
    r.corpus = in.text("corpus", short_text);
    r.corpus_content = in.text("corpus_content", short_text);
    if (in.ok() && r.protocol >= 2 && r.who.incarnation.is_none()) in.fail("incarnation", "given with protocol 2");
    return in.finish(std::move(r));
}

result<ledger::acquire_request> read_acquire(const json::value& body) {
    field_reader in(body);
    ledger::acquire_request r;
    r.who = read_caller(in);
    r.want = std::max<std::uint64_t>(1, in.whole("blocks", 1, std::uint64_t{1} << 40U));
    r.max_spans = static_cast<std::uint32_t>(in.whole("max_spans", 4, 1'000'000));
    if (r.max_spans < 1 || r.max_spans > spans_max) in.fail("max_spans", "between 1 and 64");
    r.report = read_report(in);
    r.request_id = in.text("request_id", 64);
    return in.finish(std::move(r));
}

result<ledger::reserve_request> read_reserve(const json::value& body) {
    field_reader in(body);
    ledger::reserve_request r;
    r.who = read_caller(in);
    const auto lease = in.lease("lease", "token");
    if (!lease) in.fail("lease", "given");
    r.lease = lease.value_or(lease::lease_ref{});
    r.through = position{in.whole("through", 0, INT64_MAX, true)};
    return in.finish(std::move(r));
}

namespace {

/// The entry of a lease in a heartbeat; nothing when the id is unreadable or there are too many.
lease::beat* beat_of(heartbeat_message& m, field_reader& in, const std::string& id) {
    const auto ref = lease::parse_lease_id(id);
    if (!ref) {
        if (std::find(m.unreadable.begin(), m.unreadable.end(), id) == m.unreadable.end() &&
            m.unreadable.size() < map_entries_max)
            m.unreadable.push_back(id);
        return nullptr;
    }
    auto& all = m.request.leases;
    const auto same = [&](const lease::beat& b) {
        return b.lease.seq == ref->seq && b.lease.start == ref->start && b.lease.epoch == ref->epoch;
    };
    const auto found = std::find_if(all.begin(), all.end(), same);
    if (found != all.end()) return &*found;
    if (all.size() == map_entries_max) {
        in.fail("progress", "about at most 256 leases, together with reserve and tokens");
        return nullptr;
    }
    all.push_back({*ref, std::nullopt, std::nullopt});
    return &all.back();
}

void read_positions(heartbeat_message& m, field_reader& in, std::string_view name,
                    std::optional<position> lease::beat::*into) {
    const json::object* entries = in.map(name, map_entries_max);
    if (entries == nullptr) return;
    for (const auto& [id, value] : *entries) {
        const auto n = whole_number(value, true);
        if (!n) in.fail(name, "whole numbers by lease id");
        lease::beat* b = beat_of(m, in, id);
        if (b != nullptr && n) b->*into = position{*n};
    }
}

}  // namespace

result<heartbeat_message> read_heartbeat(const json::value& body) {
    field_reader in(body);
    heartbeat_message m;
    m.request.who = read_caller(in);
    m.request.report = read_report(in);
    read_positions(m, in, "progress", &lease::beat::trained);
    read_positions(m, in, "reserve", &lease::beat::reserve_through);
    if (const json::object* tokens = in.map("tokens", map_entries_max)) {
        for (const auto& [id, value] : *tokens) {
            const auto token = value.as_string() == nullptr ? std::nullopt : lease::parse_token(*value.as_string());
            if (!token) in.fail("tokens", "lease tokens by lease id");
            lease::beat* b = beat_of(m, in, id);
            if (b != nullptr) b->lease.token = token;
        }
    }
    return in.finish(std::move(m));
}

result<ledger::commit_request> read_commit(const json::value& body) {
    field_reader in(body);
    ledger::commit_request r;
    r.who = read_caller(in);
    const auto lease = in.lease("lease", "token");
    if (!lease) in.fail("lease", "given");
    r.lease = lease.value_or(lease::lease_ref{});
    r.through = position{in.whole("through", 0, INT64_MAX, true)};
    return in.finish(std::move(r));
}

result<ledger::release_request> read_release(const json::value& body) {
    field_reader in(body);
    ledger::release_request r;
    r.who = read_caller(in);
    r.lease = in.lease("lease", "token");
    r.keep_reserved = in.flag("keep_reserved");
    return in.finish(std::move(r));
}

result<ledger::advance_request> read_advance(const json::value& body) {
    field_reader in(body);
    return in.finish(ledger::advance_request{in.flag("force")});
}

result<ledger::join_request> read_join(const json::value& body) {
    field_reader in(body);
    ledger::join_request r;
    r.who = read_caller(in);
    r.run_id = in.text("run_id", 64);
    r.pins.layout_digest = in.text("layout_digest", short_text);
    r.pins.schedule_digest = in.text("schedule_digest", short_text);
    r.pins.seq_len = in.whole("seq_len", 0);
    r.software = in.text("software", short_text);
    if (const json::array* codecs = in.list("codecs", 16)) {
        for (const json::value& c : *codecs) {
            if (c.as_string() == nullptr || c.as_string()->size() > 32)
                in.fail("codecs", "a list of words");
            else
                r.pins.codecs.push_back(*c.as_string());
        }
        std::sort(r.pins.codecs.begin(), r.pins.codecs.end());
    }
    return in.finish(std::move(r));
}

result<ledger::poll_request> read_poll(const json::value& body) {
    field_reader in(body);
    ledger::poll_request r;
    r.who = read_caller(in);
    r.have = generation{in.whole("have_generation", 0)};
    r.activity = read_word(in, "state", activities, round::site_activity::idle);
    r.steps_done = in.whole("steps_done", 0);
    r.eta_ms = in.seconds_as_ms("eta_s");
    return in.finish(std::move(r));
}

namespace {

void read_claims(field_reader& in, ledger::contribute_request& r) {
    const json::array* leases = in.list("leases", map_entries_max);
    if (leases == nullptr) return;
    for (const json::value& item : *leases) {
        field_reader entry(item);
        const auto lease = entry.lease("lease", "token");
        if (!lease) entry.fail("lease", "given");
        const std::uint64_t from = entry.whole("from", 0, INT64_MAX, true);
        const std::uint64_t through = entry.whole("through", 0, INT64_MAX, true);
        if (!entry.ok()) {
            in.fail("leases", "a list of {lease, token, from, through} as granted");
            return;
        }
        r.leases.push_back({*lease, position{from}, position{through}});
    }
}

void check_metrics(field_reader& in) {
    const json::object* metrics = in.map("metrics", metrics_max);
    if (metrics == nullptr) return;
    for (const auto& [name, value] : *metrics)
        if (!value.is_number() || name.size() > 64) in.fail("metrics", "numbers by short names");
}

}  // namespace

result<ledger::contribute_request> read_contribute(const json::value& body) {
    field_reader in(body);
    ledger::contribute_request r;
    r.who = read_caller(in);
    r.id = {in.text("id", 128, true)};
    if (in.ok() && r.id.text.empty()) in.fail("id", "given");
    r.base = generation{in.whole("base_generation", 0, INT64_MAX, true)};
    r.tokens = in.whole("tokens", 0, INT64_MAX, true);
    if (r.tokens > 0 || in.member("sha256") != nullptr) r.sha256 = in.sha256("sha256");
    r.codec = in.text("codec", 32);
    r.steps = in.whole("steps", 0);
    r.loss_sum = in.number("loss_sum");
    r.loss_count = in.whole("loss_count", 0);
    r.phase_ms = in.seconds_as_ms("phase_s");
    r.transfer_ms = in.seconds_as_ms("transfer_s");
    read_claims(in, r);
    check_metrics(in);
    return in.finish(std::move(r));
}

result<ledger::decline_request> read_decline(const json::value& body) {
    field_reader in(body);
    ledger::decline_request r;
    r.who = read_caller(in);
    r.base = generation{in.whole("base_generation", 0, INT64_MAX, true)};
    r.reason = read_word(in, "reason", decline_reasons, round::decline_reason::no_data);
    r.detail = in.text("detail", 200);
    return in.finish(std::move(r));
}

result<ledger::evaluation_request> read_evaluation(const json::value& body) {
    field_reader in(body);
    ledger::evaluation_request r;
    r.who = read_caller(in);
    r.generation = generation{in.whole("generation", 0, INT64_MAX, true)};
    r.loss_sum = in.number("loss_sum");
    r.tokens = in.whole("tokens", 0);
    r.windows = in.whole("windows", 0);
    if (in.ok() && r.loss_sum < 0) in.fail("loss_sum", "not negative");
    return in.finish(std::move(r));
}

result<ledger::leave_request> read_leave(const json::value& body) {
    field_reader in(body);
    ledger::leave_request r;
    r.who = read_caller(in);
    r.reason = in.text("reason", 200);
    return in.finish(std::move(r));
}

result<ledger::pause_request> read_pause(const json::value& body) {
    field_reader in(body);
    return in.finish(ledger::pause_request{in.text("reason", 200)});
}

result<announce_message> read_announce(const json::value& body) {
    field_reader in(body);
    announce_message m;
    m.request.who = read_caller(in);
    const std::string purpose = in.text("purpose", 16, true);
    if (in.ok() && purpose != "delta" && purpose != "init") in.fail("purpose", "delta or init");
    m.request.purpose = purpose == "init" ? ledger::blob_purpose::init : ledger::blob_purpose::delta;
    m.request.base = generation{in.whole("base_generation", 0)};
    m.sha256 = in.sha256("sha256");
    m.bytes = in.whole("bytes", 0, INT64_MAX, true);
    if (in.ok() && m.bytes == 0) in.fail("bytes", "above 0");
    m.codec = in.text("codec", 32);
    return in.finish(std::move(m));
}

}  // namespace darlcore::wire
