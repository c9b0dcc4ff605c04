// SPDX-License-Identifier: Apache-2.0
#include "backends/asio/wire_replies.hpp"

#include <algorithm>

#include "backends/asio/wire_fields.hpp"

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

}  // namespace darlcore::wire
