// SPDX-License-Identifier: Apache-2.0
#include "backends/curl/site_protocol.hpp"

#include <charconv>
#include <cmath>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

namespace darlcore::client {
namespace {

using json::value;

value common(const lease::caller& who, std::string_view request_id) {
    value body{json::object{}};
    body.set("cluster", who.site.name);
    body.set("incarnation", to_text(who.incarnation));
    body.set("request_id", request_id);
    return body;
}

void set_report(value& body, const lease::site_report& report) {
    if (report.ttl_s > 0) body.set("ttl", report.ttl_s);
    body.set("macro_step_s", report.macro_step_s);
    body.set("rtt_s", report.rtt_s);
}

std::string lease_text(const lease::lease_ref& ref) {
    return "e" + std::to_string(ref.epoch.count) + "-b" + std::to_string(ref.start.count) + "-" +
           std::to_string(ref.seq.count);
}

void set_lease(value& body, const lease::lease_ref& ref) {
    body.set("lease", lease_text(ref));
    if (ref.token) body.set("token", lease::to_text(*ref.token));
}

double seconds(std::int64_t ms) { return static_cast<double>(ms) / 1000.0; }
std::int64_t milliseconds(double s) {
    return std::isfinite(s) ? static_cast<std::int64_t>(std::llround(s * 1000.0)) : 0;
}

wire_request encode_one(const ledger::register_request& r, std::string_view id) {
    value body = common(r.who, id);
    body.set("protocol", r.protocol);
    body.set("digest", r.digest);
    body.set("ranks", r.ranks);
    if (r.num_samples) body.set("num_samples", *r.num_samples);
    if (r.block_size) body.set("block_size", *r.block_size);
    if (r.take_over) body.set("take_over", to_text(*r.take_over));
    if (!r.corpus.empty()) body.set("corpus", r.corpus);
    if (!r.corpus_content.empty()) body.set("corpus_content", r.corpus_content);
    return {"/register", std::move(body)};
}

wire_request encode_one(const ledger::join_request& r, std::string_view id) {
    value body = common(r.who, id);
    body.set("run_id", r.run_id.empty() ? value() : value(r.run_id));
    body.set("layout_digest", r.pins.layout_digest);
    body.set("schedule_digest", r.pins.schedule_digest);
    body.set("seq_len", r.pins.seq_len);
    value codecs{json::array{}};
    for (const auto& codec : r.pins.codecs) codecs.push_back(codec);
    body.set("codecs", std::move(codecs));
    body.set("software", r.software);
    return {"/round/join", std::move(body)};
}

wire_request encode_one(const ledger::poll_request& r, std::string_view id) {
    value body = common(r.who, id);
    body.set("have_generation", r.have.count);
    body.set("state", word(r.activity));
    body.set("steps_done", r.steps_done);
    body.set("eta_s", seconds(r.eta_ms));
    return {"/round/poll", std::move(body)};
}

wire_request encode_one(const ledger::acquire_request& r, std::string_view) {
    value body = common(r.who, r.request_id);
    body.set("blocks", r.want);
    body.set("max_spans", r.max_spans);
    set_report(body, r.report);
    return {"/acquire", std::move(body)};
}

wire_request encode_one(const ledger::reserve_request& r, std::string_view id) {
    value body = common(r.who, id);
    set_lease(body, r.lease);
    body.set("through", r.through.count);
    return {"/reserve", std::move(body)};
}

wire_request encode_one(const ledger::release_request& r, std::string_view id) {
    value body = common(r.who, id);
    if (r.lease)
        set_lease(body, *r.lease);
    else
        body.set("lease", value());
    body.set("keep_reserved", r.keep_reserved);
    return {"/release", std::move(body)};
}

wire_request encode_one(const ledger::contribute_request& r, std::string_view id) {
    value body = common(r.who, id);
    body.set("id", r.id.text);
    body.set("base_generation", r.base.count);
    body.set("sha256", r.sha256);
    body.set("codec", r.codec);
    body.set("tokens", r.tokens);
    body.set("steps", r.steps);
    body.set("loss_sum", r.loss_sum);
    body.set("loss_count", r.loss_count);
    body.set("phase_s", seconds(r.phase_ms));
    body.set("transfer_s", seconds(r.transfer_ms));
    value leases{json::array{}};
    for (const auto& claim : r.leases) {
        value one{json::object{}};
        set_lease(one, claim.lease);
        one.set("from", claim.from.count);
        one.set("through", claim.through.count);
        leases.push_back(std::move(one));
    }
    body.set("leases", std::move(leases));
    return {"/round/contribute", std::move(body)};
}

wire_request encode_one(const ledger::decline_request& r, std::string_view id) {
    value body = common(r.who, id);
    body.set("base_generation", r.base.count);
    body.set("reason", word(r.reason));
    body.set("detail", r.detail);
    return {"/round/decline", std::move(body)};
}

wire_request encode_one(const ledger::evaluation_request& r, std::string_view id) {
    value body = common(r.who, id);
    body.set("generation", r.generation.count);
    body.set("loss_sum", r.loss_sum);
    body.set("tokens", r.tokens);
    body.set("windows", r.windows);
    return {"/round/evaluation", std::move(body)};
}

wire_request encode_one(const ledger::leave_request& r, std::string_view id) {
    value body = common(r.who, id);
    body.set("reason", r.reason);
    return {"/round/leave", std::move(body)};
}

/// Reads fields of one answer; remembers the first that is missing or wrong.
class reader {
public:
    explicit reader(const value& body) : body_(body) {}

    std::uint64_t number(std::string_view key, std::optional<std::uint64_t> fallback = {}) {
        const value* v = body_.find(key);
        if (v != nullptr && v->as_u64()) return *v->as_u64();
        if (v != nullptr && v->as_string() != nullptr) {  // numbers beyond 2^53 travel as text
            const std::string& digits = *v->as_string();
            std::uint64_t n = 0;
            const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), n);
            if (!digits.empty() && read.ec == std::errc{} && read.ptr == digits.data() + digits.size()) return n;
        }
        if (fallback && (v == nullptr || v->is_null())) return *fallback;
        return wrong(key), 0;
    }
    double real(std::string_view key, std::optional<double> fallback = {}) {
        const value* v = body_.find(key);
        if (v != nullptr && v->as_double()) return *v->as_double();
        if (fallback && (v == nullptr || v->is_null())) return *fallback;
        return wrong(key), 0.0;
    }
    std::string text(std::string_view key, std::optional<std::string> fallback = {}) {
        const value* v = body_.find(key);
        if (v != nullptr && v->as_string() != nullptr) return *v->as_string();
        if (fallback && (v == nullptr || v->is_null())) return *fallback;
        return wrong(key), std::string();
    }
    bool flag(std::string_view key, std::optional<bool> fallback = {}) {
        const value* v = body_.find(key);
        if (v != nullptr && v->as_bool()) return *v->as_bool();
        if (fallback && (v == nullptr || v->is_null())) return *fallback;
        return wrong(key), false;
    }
    const value* member(std::string_view key) const {
        const value* v = body_.find(key);
        return v == nullptr || v->is_null() ? nullptr : v;
    }
    void wrong(std::string_view key) {
        if (!failed_)
            failed_ = fail(errc::parse_error, "the server's answer has no usable field '" + std::string(key) + "'");
    }
    [[nodiscard]] const std::optional<error>& failed() const { return failed_; }

private:
    const value& body_;
    std::optional<error> failed_;
};

template <class Enum, class... Values>
std::optional<Enum> enum_of(std::string_view text, Values... values) {
    std::optional<Enum> found;
    ((text == word(values) ? void(found = values) : void()), ...);
    return found;
}

lease::lease_record read_lease(reader& in) {
    lease::lease_record out;
    const auto ref = lease::parse_lease_id(in.text("lease_id"));
    if (!ref) return in.wrong("lease_id"), out;
    out.seq = ref->seq;
    out.epoch = ref->epoch;
    out.start = position{in.number("start")};
    out.end = position{in.number("end")};
    out.done_end = position{in.number("committed_end")};
    out.reserved_end = position{in.number("reserved_end")};
    out.ttl_ms = milliseconds(in.real("ttl"));
    if (const value* stolen = in.member("stolen"))
        out.stolen = stolen->as_bool().value_or(stolen->as_u64().value_or(0) != 0);
    const auto token = lease::parse_token(in.text("token"));
    if (!token) return in.wrong("token"), out;
    out.term = token->term;
    if (!(out.start <= out.done_end && out.done_end <= out.reserved_end && out.reserved_end <= out.end))
        in.wrong("end");
    return out;
}

site::reply read(const ledger::register_request&, reader& in) {
    ledger::register_reply r;
    r.num_blocks = in.number("num_blocks");
    r.digest = in.text("digest");
    r.epoch_digest = in.text("epoch_digest", "");
    r.committed = in.number("committed", 0);
    r.generation = generation{in.number("generation", 0)};
    return r;
}

site::reply read(const ledger::join_request&, reader& in) {
    ledger::join_reply r;
    r.generation = generation{in.number("generation")};
    r.run_id = in.text("run_id");
    r.keepalive_ms = milliseconds(in.real("keepalive_s", 0.0));
    if (const value* policy = in.member("policy")) {
        reader p(*policy);
        r.inner_steps = p.number("inner_steps", 0);
    }
    return r;
}

site::reply read(const ledger::poll_request&, reader& in) {
    using round::poll_action;
    ledger::poll_reply r;
    const auto action = enum_of<poll_action>(in.text("action"), poll_action::init, poll_action::train,
                                             poll_action::wait, poll_action::stop);
    if (!action) in.wrong("action");
    r.action = action.value_or(poll_action::wait);
    r.current = generation{in.number("generation", 0)};
    r.global_step = in.number("global_step", 0);
    r.inner_steps = in.number("inner_steps", 0);
    if (in.member("budget_s") != nullptr) r.budget_ms = milliseconds(in.real("budget_s"));
    r.evaluate = in.flag("evaluate", false);
    r.retry_after_ms = milliseconds(in.real("retry_after_s", 0.0));
    if (const value* wire = in.member("wire")) {
        reader w(*wire);
        r.wire = {w.text("sha256"), w.number("bytes")};
        if (w.failed()) in.wrong("wire");
    }
    if (r.action == poll_action::train && r.wire.sha256.empty()) in.wrong("wire");
    if (r.action == poll_action::stop) {
        using round::stop_reason;
        r.stopped_by = enum_of<stop_reason>(in.text("reason", "operator"), stop_reason::exhausted, stop_reason::steps,
                                            stop_reason::rounds, stop_reason::target, stop_reason::site_operator);
    }
    if (const value* last = in.member("last_contribution")) {
        using round::contribution_status;
        reader l(*last);
        r.last.id.text = l.text("id", "");
        r.last.status = enum_of<contribution_status>(l.text("status", "none"), contribution_status::pledged,
                                                     contribution_status::merged, contribution_status::rejected)
                            .value_or(contribution_status::none);
        r.last.reason = errc_from_word(l.text("reason", ""));
        r.last.base = generation{l.number("generation", 0)};
    }
    return r;
}

site::reply read(const ledger::acquire_request&, reader& in) {
    using lease::acquire_status;
    ledger::acquire_reply r;
    const std::string status = in.text("status");
    if (status == "granted")
        r.leases.status = acquire_status::granted;
    else if (status == "drain")
        r.leases.status = acquire_status::drain;
    else if (status == "epoch_complete")
        r.leases.status = acquire_status::epoch_complete;
    else
        in.wrong("status");
    if (const value* leases = in.member("leases"); leases != nullptr && leases->as_array() != nullptr) {
        for (const auto& one : *leases->as_array()) {
            reader l(one);
            r.leases.leases.push_back(read_lease(l));
            if (l.failed()) in.wrong("leases");
        }
    }
    r.leases.retry_after_ms = milliseconds(in.real("retry_after", 0.0));
    r.leases.epoch = epoch_index{static_cast<std::uint32_t>(in.number("epoch", 0))};
    r.epoch_digest = in.text("epoch_digest", "");
    return r;
}

site::reply read(const ledger::reserve_request&, reader& in) {
    return ledger::reserve_reply{position{in.number("reserved_end")}, position{in.number("end")}};
}

site::reply read(const ledger::release_request&, reader& in) { return ledger::release_reply{in.number("released")}; }

site::reply read(const ledger::contribute_request& asked, reader& in) {
    ledger::contribute_reply r;
    const std::string status = in.text("status");
    r.id = asked.id;
    r.declined = status == "declined";
    if (status == "merged")
        r.status = round::contribution_status::merged;
    else if (status == "rejected")
        r.status = round::contribution_status::rejected;
    else if (status != "pledged" && !r.declined)
        in.wrong("status");
    r.reason = errc_from_word(in.text("reason", ""));
    r.weight_tokens = in.number("weight_tokens", 0);
    r.pledged_blocks = in.number("pledged_blocks", 0);
    return r;
}

site::reply read(const ledger::evaluation_request&, reader& in) {
    return ledger::evaluation_reply{in.flag("used", false), in.text("reason", "")};
}
site::reply read(const ledger::decline_request&, reader&) { return ledger::ok_reply{}; }
site::reply read(const ledger::leave_request&, reader&) { return ledger::ok_reply{}; }

}  // namespace

wire_request encode(const site::request& what, std::string_view request_id) {
    return std::visit([&](const auto& r) { return encode_one(r, request_id); }, what);
}

wire_request encode(const ledger::heartbeat_request& beat, std::string_view request_id) {
    value body = common(beat.who, request_id);
    value progress{json::object{}};
    value reserve{json::object{}};
    value tokens{json::object{}};
    for (const auto& b : beat.leases) {
        const std::string id = lease_text(b.lease);
        if (b.lease.token) tokens.set(id, lease::to_text(*b.lease.token));
        if (b.trained) progress.set(id, b.trained->count);
        if (b.reserve_through) reserve.set(id, b.reserve_through->count);
        if (!b.trained && !b.reserve_through) progress.set(id, b.lease.start.count);  // named, with nothing new to say
    }
    body.set("progress", std::move(progress));
    body.set("reserve", std::move(reserve));
    body.set("tokens", std::move(tokens));
    set_report(body, beat.report);
    return {"/heartbeat", std::move(body)};
}

result<site::reply> decode(const site::request& asked, const json::value& body) {
    reader in(body);
    auto out = std::visit([&](const auto& r) { return read(r, in); }, asked);
    if (in.failed()) return *in.failed();
    return out;
}

result<ledger::heartbeat_reply> decode_heartbeat(const ledger::heartbeat_request& asked, const json::value& body) {
    reader in(body);
    ledger::heartbeat_reply out;
    out.leases.ttl_ms = milliseconds(in.real("ttl"));
    out.leases.epoch_complete = in.flag("epoch_complete", false);
    out.generation = generation{in.number("generation", 0)};
    const value* leases = in.member("leases");
    for (const auto& b : asked.leases) {
        const value* one = leases != nullptr ? leases->find(lease_text(b.lease)) : nullptr;
        lease::beat_reply r;
        r.lease = b.lease;
        if (one != nullptr) {
            reader l(*one);
            r.valid = l.flag("valid");
            if (r.valid) {
                r.end = position{l.number("end")};
                r.committed_end = position{l.number("committed_end")};
                r.reserved_end = position{l.number("reserved_end")};
            } else {
                r.reason = errc_from_word(l.text("reason", "")).value_or(errc::lease_gone);
            }
            if (l.failed()) in.wrong("leases");
        }
        out.leases.leases.push_back(r);
    }
    if (in.failed()) return *in.failed();
    return out;
}

}  // namespace darlcore::client
