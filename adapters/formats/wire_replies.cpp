// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/wire_replies.hpp"

#include <algorithm>

#include "adapters/formats/wire_fields.hpp"

namespace darlcore::wire {

namespace {

json::value with_common(const reply_context& c) {
    return json::make_object({{"epoch", c.epoch.count}, {"term", c.term.count}});
}

json::value spans_json(const std::vector<span>& spans) {
    json::value out = json::array{};
    for (const span& s : spans) {
        json::value pair = json::array{};
        pair.push_back(count(s.start.count));
        pair.push_back(count(s.end.count));
        out.push_back(std::move(pair));
    }
    return out;
}

std::string_view word(lease::acquire_status s) {
    constexpr std::string_view words[] = {"granted", "drain", "epoch_complete"};
    return words[static_cast<std::size_t>(s)];
}
std::string_view word(lease::acquire_reason r) {
    constexpr std::string_view words[] = {
        "", "pool_empty", "pledges_outstanding", "answered_before", "after_others", "complete", "finish_phase"};
    return words[static_cast<std::size_t>(r)];
}

template <class Enum, class Word>
Enum enum_of(field_reader& in, std::string_view name, Enum last, Word word_of) {
    const std::string text = in.text(name, 64);
    for (std::size_t i = 0; i <= static_cast<std::size_t>(last); ++i)
        if (word_of(static_cast<Enum>(i)) == text) return static_cast<Enum>(i);
    if (!text.empty()) in.fail(name, "a word that this version knows");
    return Enum{};
}

std::optional<errc> errc_of(field_reader& in, std::string_view name) {
    const std::string text = in.text(name, 64);
    if (text.empty()) return std::nullopt;
    return errc_from_word(text).value_or(errc::internal);
}

/// Replies of the server that cannot be read are no fault of a request.
template <class T>
result<T> finished(const field_reader& in, T value) {
    if (!in.ok()) return fail(errc::parse_error, "the server's answer: " + in.fault().context);
    return value;
}

}  // namespace

json::value to_json(const lease::lease_record& l, const site_id& cluster, const reply_context& c) {
    const auto wall = [&c](ledger_time t) { return c.wall_s + seconds(t - c.now); };
    return json::make_object({{"lease_id", lease::lease_id(l)},
                              {"cluster", cluster.name},
                              {"epoch", l.epoch.count},
                              {"start", count(l.start.count)},
                              {"end", count(l.end.count)},
                              {"committed_end", count(l.done_end.count)},
                              {"progress_end", count(l.done_end.count)},
                              {"reserved_end", count(l.reserved_end.count)},
                              {"token", lease::to_text(l.token())},
                              {"granted_at", wall(l.granted_at)},
                              {"deadline", wall(l.deadline)},
                              {"ttl", seconds(std::max<std::int64_t>(0, l.deadline - c.now))},
                              {"stolen", l.stolen ? 1 : 0}});
}

json::value to_json(const ledger::register_reply& r, const reply_context& c) {
    json::value out = with_common(c);
    out.set("cluster", r.cluster.name);
    out.set("num_blocks", count(r.num_blocks));
    out.set("digest", r.digest);
    out.set("epoch_digest", r.epoch_digest);
    out.set("heartbeat_divisor", r.heartbeat_divisor);
    out.set("committed", count(r.committed));
    json::value known = json::array{};
    for (const site_id& s : r.known_clusters) known.push_back(s.name);
    out.set("known_clusters", std::move(known));
    out.set("incarnation", r.incarnation.is_none() ? std::string() : to_text(r.incarnation));
    out.set("incarnations", r.incarnations);
    out.set("commit_policy", lease::word(r.commit_policy));
    out.set("generation", count(r.generation.count));
    out.set("corpus_verified", r.corpus_verified);
    out.set("limits", json::make_object({{"max_spans", spans_max},
                                         {"map_entries", map_entries_max},
                                         {"json_bytes", std::uint64_t{1} << 20U},
                                         {"part_bytes", c.part_bytes_max},
                                         {"poll_s", seconds(c.poll_ms)}}));
    return out;
}

json::value to_json(const ledger::acquire_reply& r, const site_id& asker, const reply_context& c) {
    json::value out = json::make_object({{"epoch", r.leases.epoch.count}, {"term", c.term.count}});
    out.set("status", word(r.leases.status));
    json::value leases = json::array{};
    for (const auto& l : r.leases.leases) leases.push_back(to_json(l, asker, c));
    out.set("leases", std::move(leases));
    out.set("retry_after", seconds(r.leases.retry_after_ms));
    out.set("reason", word(r.leases.reason));
    out.set("outstanding_mine", count(r.leases.outstanding_mine));
    out.set("outstanding_others", count(r.leases.outstanding_others));
    out.set("pledged_mine", count(r.leases.pledged_mine));
    out.set("pledged_others", count(r.leases.pledged_others));
    out.set("epoch_digest", r.epoch_digest);
    if (r.leases.status == lease::acquire_status::epoch_complete) {
        out.set("committed", count(r.leases.counts.committed));
        out.set("quarantined", count(r.leases.counts.quarantined));
        out.set("quarantined_positions", spans_json(r.leases.quarantined));
    }
    return out;
}

json::value to_json(const ledger::reserve_reply& r, const reply_context& c) {
    json::value out = with_common(c);
    out.set("reserved_end", count(r.reserved_end.count));
    out.set("end", count(r.end.count));
    return out;
}

json::value to_json(const ledger::heartbeat_reply& r, const std::vector<std::string>& unreadable,
                    const reply_context& c) {
    json::value out = with_common(c);
    out.set("ttl", seconds(r.leases.ttl_ms));
    json::value leases = json::object{};
    for (const auto& b : r.leases.leases) {
        const std::string id = "e" + std::to_string(b.lease.epoch.count) + "-b" + std::to_string(b.lease.start.count) +
                               "-" + std::to_string(b.lease.seq.count);
        json::value entry = json::make_object({{"valid", b.valid}, {"end", count(b.end.count)}});
        if (b.valid) {
            entry.set("committed_end", count(b.committed_end.count));
            entry.set("reserved_end", count(b.reserved_end.count));
        } else {
            entry.set("reason", darlcore::word(b.reason));
        }
        leases.set(id, std::move(entry));
    }
    for (const std::string& id : unreadable)
        leases.set(id, json::make_object({{"valid", false}, {"end", 0}, {"reason", darlcore::word(errc::lease_gone)}}));
    out.set("leases", std::move(leases));
    out.set("epoch_complete", r.leases.epoch_complete);
    out.set("generation", count(r.generation.count));
    out.set("round", json::make_object({{"state", round::word(r.round_state)}}));
    return out;
}

json::value to_json(const ledger::commit_reply& r, const reply_context& c) {
    json::value out = with_common(c);
    out.set("ok", true);
    out.set("committed_end", count(r.committed_end.count));
    out.set("lease_closed", r.lease_closed);
    out.set("committed", count(r.committed));
    out.set("epoch_complete", r.epoch_complete);
    out.set("late", r.late);
    return out;
}

json::value to_json(const ledger::release_reply& r, const reply_context& c) {
    json::value out = with_common(c);
    out.set("released", count(r.released));
    return out;
}

json::value to_json(const ledger::advance_reply& r, const reply_context& c) {
    return json::make_object({{"epoch", r.epoch.count}, {"term", c.term.count}, {"advanced", r.advanced}});
}

json::value to_json(const ledger::join_reply& r, const reply_context& c) {
    json::value out = with_common(c);
    out.set("generation", count(r.generation.count));
    out.set("run_id", r.run_id);
    out.set("policy", json::make_object({{"eta", r.policy.eta},
                                         {"beta", r.policy.beta},
                                         {"solo", ledger::word(r.policy.solo)},
                                         {"first_step", ledger::word(r.policy.first_step)},
                                         {"inner_steps", count(r.inner_steps)}}));
    out.set("part_bytes_max", c.part_bytes_max);
    out.set("poll_s", seconds(c.poll_ms));
    out.set("keepalive_s", seconds(r.keepalive_ms));
    out.set("global_step", count(r.global_step));
    out.set("has_model", r.has_model);
    return out;
}

json::value to_json(const ledger::poll_reply& r, const reply_context& c) {
    json::value out = with_common(c);
    out.set("action", round::word(r.action));
    out.set("generation", count(r.current.count));
    switch (r.action) {
        case round::poll_action::train:
            out.set("wire", json::make_object({{"sha256", r.wire.sha256}, {"bytes", count(r.wire.bytes)}}));
            out.set("global_step", count(r.global_step));
            out.set("inner_steps", count(r.inner_steps));
            out.set("budget_s", r.budget_ms ? json::value(seconds(*r.budget_ms)) : json::value(nullptr));
            out.set("due_in_s", seconds(r.due_in_ms));
            out.set("evaluate", r.evaluate);
            break;
        case round::poll_action::wait:
            out.set("reason", round::word(r.reason));
            out.set("retry_after_s", seconds(r.retry_after_ms));
            out.set("evaluate", r.evaluate);
            break;
        case round::poll_action::stop:
            out.set("reason", r.stopped_by ? round::word(*r.stopped_by) : std::string_view("operator"));
            break;
        case round::poll_action::init:
            out.set("codec", "f32");
            break;
    }
    json::value last = json::make_object(
        {{"id", r.last.id.text}, {"status", round::word(r.last.status)}, {"generation", count(r.last.base.count)}});
    if (r.last.reason) last.set("reason", darlcore::word(*r.last.reason));
    out.set("last_contribution", std::move(last));
    return out;
}

json::value to_json(const ledger::contribute_reply& r, const reply_context& c) {
    json::value out = with_common(c);
    out.set("status", r.declined ? std::string_view("declined") : round::word(r.status));
    out.set("id", r.id.text);
    if (r.reason) out.set("reason", darlcore::word(*r.reason));
    out.set("weight_tokens", count(r.weight_tokens));
    out.set("pledged_blocks", count(r.pledged_blocks));
    out.set("generation", count(r.generation.count));
    return out;
}

json::value to_json(const ledger::evaluation_reply& r, const reply_context& c) {
    json::value out = with_common(c);
    out.set("used", r.used);
    out.set("reason", r.reason);
    return out;
}

json::value to_json(const ledger::state_reply& r, const reply_context& c) {
    json::value out = with_common(c);
    out.set("state", round::word(r.state));
    return out;
}

json::value to_json(const ledger::ok_reply&, const reply_context& c) {
    json::value out = with_common(c);
    out.set("ok", true);
    return out;
}

json::value to_json(const lease::refusal& r) {
    json::value out = json::make_object({{"error", r.context.empty() ? std::string(darlcore::word(r.code)) : r.context},
                                         {"code", darlcore::word(r.code)}});
    if (r.retry_after_ms > 0) out.set("retry_after", seconds(r.retry_after_ms));
    if (r.incarnation) out.set("detail", json::make_object({{"incarnation", to_text(*r.incarnation)}}));
    return out;
}

int http_status(errc code, bool about_content) {
    switch (code) {
        case errc::digest_mismatch:
            return about_content ? 422 : 400;
        case errc::bad_request:
        case errc::invalid_argument:
        case errc::parse_error:
        case errc::corpus_mismatch:
        case errc::policy:
            return 400;
        case errc::token:
            return 401;
        case errc::wrong_scope:
        case errc::not_owner:
            return 403;
        case errc::no_route:
        case errc::not_found:
            return 404;
        case errc::method:
            return 405;
        case errc::gone:
            return 410;
        case errc::too_large:
            return 413;
        case errc::quota:
            return 429;
        case errc::checksum_mismatch:
            return 460;
        case errc::no_room:
        case errc::no_space:
            return 507;
        case errc::meta_mismatch:
        case errc::not_finite:
        case errc::growth:
        case errc::norm_outlier:
        case errc::zero_tokens:
            return 422;
        case errc::cluster_busy:
        case errc::restarting:
        case errc::disk_full_ack:
        case errc::overloaded:
        case errc::degraded:
            return 503;
        case errc::lease_gone:
        case errc::fenced:
        case errc::unknown_site:
        case errc::beyond_reserved:
        case errc::epoch_incomplete:
        case errc::stale_generation:
        case errc::round_closed:
        case errc::already_contributed:
        case errc::blob_missing:
        case errc::blocks_lost:
        case errc::offset_mismatch:
        case errc::layout_mismatch:
        case errc::schedule_mismatch:
        case errc::codec_unsupported:
        case errc::duplicate_site:
            return 409;
        default:
            return 500;
    }
}

// --- the client's direction --------------------------------------------------------------------------------------

result<ledger::register_reply> read_register_reply(const json::value& body) {
    field_reader in(body);
    ledger::register_reply r;
    r.cluster = in.site("cluster");
    r.num_blocks = in.whole("num_blocks", 0);
    r.digest = in.text("digest", 256);
    r.epoch_digest = in.text("epoch_digest", 256);
    r.heartbeat_divisor = static_cast<std::uint32_t>(in.whole("heartbeat_divisor", 3, 1000));
    r.committed = in.whole("committed", 0);
    if (const json::array* known = in.list("known_clusters", 65'536)) {
        for (const json::value& k : *known)
            if (k.as_string() != nullptr) r.known_clusters.push_back({*k.as_string()});
    }
    r.incarnation = in.incarnation("incarnation");
    r.incarnations = static_cast<std::uint32_t>(in.whole("incarnations", 1, UINT32_MAX));
    if (in.text("commit_policy", 32) == "on_checkpoint") r.commit_policy = lease::commit_policy::on_checkpoint;
    r.generation = generation{in.whole("generation", 0)};
    r.corpus_verified = in.flag("corpus_verified");
    return finished(in, std::move(r));
}

namespace {

lease::lease_record read_lease(const json::value& item, field_reader& outer) {
    field_reader in(item);
    lease::lease_record l;
    const auto ref = in.lease("lease_id", "token");
    if (!ref) outer.fail("leases", "leases with ids");
    if (ref) {
        l.seq = ref->seq;
        l.epoch = ref->epoch;
        if (ref->token) l.term = ref->token->term;
    }
    l.start = position{in.whole("start", 0)};
    l.end = position{in.whole("end", 0)};
    l.done_end = position{in.whole("committed_end", l.start.count)};
    l.reserved_end = position{in.whole("reserved_end", l.done_end.count)};
    l.ttl_ms = in.seconds_as_ms("ttl");
    l.stolen = in.whole("stolen", 0) != 0;
    if (!in.ok() || l.done_end > l.reserved_end || l.reserved_end > l.end || l.start > l.done_end)
        outer.fail("leases", "leases with ordered watermarks");
    return l;
}

}  // namespace

result<ledger::acquire_reply> read_acquire_reply(const json::value& body) {
    field_reader in(body);
    ledger::acquire_reply r;
    r.leases.status = enum_of(in, "status", lease::acquire_status::epoch_complete, [](auto e) { return word(e); });
    r.leases.reason = enum_of(in, "reason", lease::acquire_reason::finish_phase, [](auto e) { return word(e); });
    if (const json::array* leases = in.list("leases", spans_max))
        for (const json::value& item : *leases) r.leases.leases.push_back(read_lease(item, in));
    r.leases.retry_after_ms = in.seconds_as_ms("retry_after");
    r.leases.outstanding_mine = in.whole("outstanding_mine", 0);
    r.leases.outstanding_others = in.whole("outstanding_others", 0);
    r.leases.pledged_mine = in.whole("pledged_mine", 0);
    r.leases.pledged_others = in.whole("pledged_others", 0);
    r.leases.epoch = epoch_index{static_cast<std::uint32_t>(in.whole("epoch", 0, UINT32_MAX))};
    r.leases.counts.committed = in.whole("committed", 0);
    r.leases.counts.quarantined = in.whole("quarantined", 0);
    r.epoch_digest = in.text("epoch_digest", 256);
    return finished(in, std::move(r));
}

result<ledger::reserve_reply> read_reserve_reply(const json::value& body) {
    field_reader in(body);
    ledger::reserve_reply r;
    r.reserved_end = position{in.whole("reserved_end", 0, INT64_MAX, true)};
    r.end = position{in.whole("end", 0, INT64_MAX, true)};
    return finished(in, r);
}

result<ledger::heartbeat_reply> read_heartbeat_reply(const json::value& body) {
    field_reader in(body);
    ledger::heartbeat_reply r;
    r.leases.ttl_ms = in.seconds_as_ms("ttl");
    if (const json::object* leases = in.map("leases", 2 * map_entries_max)) {
        for (const auto& [id, item] : *leases) {
            const auto ref = lease::parse_lease_id(id);
            if (!ref) continue;
            field_reader entry(item);
            lease::beat_reply b;
            b.lease = *ref;
            b.valid = entry.flag("valid");
            b.end = position{entry.whole("end", 0)};
            b.committed_end = position{entry.whole("committed_end", 0)};
            b.reserved_end = position{entry.whole("reserved_end", 0)};
            if (!b.valid) b.reason = errc_of(entry, "reason").value_or(errc::lease_gone);
            if (!entry.ok()) in.fail("leases", "watermarks by lease id");
            r.leases.leases.push_back(b);
        }
    }
    r.leases.epoch_complete = in.flag("epoch_complete");
    r.generation = generation{in.whole("generation", 0)};
    if (const json::value* hint = in.member("round"); hint != nullptr && hint->is_object()) {
        field_reader entry(*hint);
        r.round_state = enum_of(entry, "state", round::phase::finished, [](auto e) { return round::word(e); });
    }
    return finished(in, std::move(r));
}

result<ledger::commit_reply> read_commit_reply(const json::value& body) {
    field_reader in(body);
    ledger::commit_reply r;
    r.committed_end = position{in.whole("committed_end", 0)};
    r.lease_closed = in.flag("lease_closed");
    r.committed = in.whole("committed", 0);
    r.epoch_complete = in.flag("epoch_complete");
    r.late = in.flag("late");
    return finished(in, r);
}

result<ledger::release_reply> read_release_reply(const json::value& body) {
    field_reader in(body);
    return finished(in, ledger::release_reply{in.whole("released", 0)});
}

result<ledger::join_reply> read_join_reply(const json::value& body) {
    field_reader in(body);
    ledger::join_reply r;
    r.generation = generation{in.whole("generation", 0)};
    r.run_id = in.text("run_id", 64);
    if (const json::value* p = in.member("policy")) {
        field_reader policy(*p);
        r.policy.eta = policy.number("eta", r.policy.eta);
        r.policy.beta = policy.number("beta", r.policy.beta);
        r.policy.solo = enum_of(policy, "solo", ledger::solo_policy::adopt, [](auto e) { return ledger::word(e); });
        r.policy.first_step =
            enum_of(policy, "first_step", ledger::first_step_policy::plain, [](auto e) { return ledger::word(e); });
        r.inner_steps = policy.whole("inner_steps", 0);
        if (!policy.ok()) in.fail("policy", "eta, beta, solo, first_step, inner_steps");
    }
    r.keepalive_ms = in.seconds_as_ms("keepalive_s");
    r.global_step = in.whole("global_step", 0);
    r.has_model = in.flag("has_model");
    return finished(in, std::move(r));
}

result<ledger::poll_reply> read_poll_reply(const json::value& body) {
    field_reader in(body);
    ledger::poll_reply r;
    r.action = enum_of(in, "action", round::poll_action::stop, [](auto e) { return round::word(e); });
    if (in.member("action") == nullptr) in.fail("action", "given");
    r.current = generation{in.whole("generation", 0)};
    if (const json::value* w = in.member("wire")) {
        field_reader wire(*w);
        r.wire = {wire.sha256("sha256"), wire.whole("bytes", 0)};
        if (!wire.ok()) in.fail("wire", "a digest and a size");
    }
    r.global_step = in.whole("global_step", 0);
    r.inner_steps = in.whole("inner_steps", 0);
    if (in.member("budget_s") != nullptr) r.budget_ms = in.seconds_as_ms("budget_s");
    r.due_in_ms = in.seconds_as_ms("due_in_s");
    r.evaluate = in.flag("evaluate");
    r.retry_after_ms = in.seconds_as_ms("retry_after_s");
    if (r.action == round::poll_action::wait)
        r.reason = enum_of(in, "reason", round::wait_reason::next_round, [](auto e) { return round::word(e); });
    if (r.action == round::poll_action::stop)
        r.stopped_by = enum_of(in, "reason", round::stop_reason::site_operator, [](auto e) { return round::word(e); });
    if (const json::value* l = in.member("last_contribution")) {
        field_reader last(*l);
        r.last.id = {last.text("id", 128)};
        r.last.status =
            enum_of(last, "status", round::contribution_status::rejected, [](auto e) { return round::word(e); });
        r.last.base = generation{last.whole("generation", 0)};
        r.last.reason = errc_of(last, "reason");
        if (!last.ok()) in.fail("last_contribution", "id, status and generation");
    }
    return finished(in, std::move(r));
}

result<ledger::contribute_reply> read_contribute_reply(const json::value& body) {
    field_reader in(body);
    ledger::contribute_reply r;
    r.declined = in.text("status", 32) == "declined";
    if (!r.declined)
        r.status = enum_of(in, "status", round::contribution_status::rejected, [](auto e) { return round::word(e); });
    r.id = {in.text("id", 128)};
    r.reason = errc_of(in, "reason");
    r.weight_tokens = in.whole("weight_tokens", 0);
    r.pledged_blocks = in.whole("pledged_blocks", 0);
    r.generation = generation{in.whole("generation", 0)};
    return finished(in, std::move(r));
}

result<ledger::evaluation_reply> read_evaluation_reply(const json::value& body) {
    field_reader in(body);
    ledger::evaluation_reply r;
    r.used = in.flag("used");
    r.reason = in.text("reason", 256);
    return finished(in, std::move(r));
}

lease::refusal read_refusal(const json::value& body) {
    field_reader in(body);
    lease::refusal r;
    r.code = errc_from_word(in.text("code", 64)).value_or(errc::internal);
    r.context = in.text("error", 4096);
    r.retry_after_ms = in.seconds_as_ms("retry_after");
    if (const json::value* detail = in.member("detail"); detail != nullptr && detail->is_object()) {
        field_reader d(*detail);
        const auto holder = d.incarnation("incarnation");
        if (!holder.is_none()) r.incarnation = holder;
    }
    return r;
}

}  // namespace darlcore::wire
