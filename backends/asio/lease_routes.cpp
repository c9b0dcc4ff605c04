// SPDX-License-Identifier: Apache-2.0
#include "backends/asio/ledger_service.hpp"
#include "backends/asio/wire_requests.hpp"

namespace darlcore::http {

namespace {

reply bad_request(const error& why) { return error_reply(why.code, why.context); }

/// What a site waits for after this answer.
std::string_view waits_for(const lease::acquire_reply& r) {
    if (r.status == lease::acquire_status::granted) return "";
    switch (r.reason) {
        case lease::acquire_reason::pool_empty:  // who holds blocks trains them
            return r.outstanding_mine > 0 ? "" : "blocks: all are leased or done";
        case lease::acquire_reason::pledges_outstanding:
            return "the merge of what is pledged";
        case lease::acquire_reason::after_others:
            return "others: it gave back its last grants";
        case lease::acquire_reason::finish_phase:
            return "its own commit";
        case lease::acquire_reason::answered_before:
        case lease::acquire_reason::complete:
        case lease::acquire_reason::none:
            break;
    }
    return "";
}

}  // namespace

asio::awaitable<reply> ledger_service::post_register(api_call& call) {
    const auto in = wire::read_register(call.body);
    if (!in) co_return bad_request(in.error());
    const auto out = core_.apply(*in);
    const bool is_busy = !out.ok() && out.refused().code == errc::cluster_busy;
    waits_.tell(in->who.site.name + " (another process)",
                is_busy ? "the process that has this name: it is heard of" : "", core_.now());
    reply r = out.ok() ? json_reply(wire::to_json(out.reply(), context())) : refused(out.refused());
    co_return co_await when_settled(std::move(r));
}

asio::awaitable<reply> ledger_service::post_acquire(api_call& call) {
    const auto in = wire::read_acquire(call.body);
    if (!in) co_return bad_request(in.error());
    const auto out = core_.apply(*in);
    if (out.ok()) waits_.tell(in->who.site.name, waits_for(out.reply().leases), core_.now());
    reply r = out.ok() ? json_reply(wire::to_json(out.reply(), in->who.site, context())) : refused(out.refused());
    co_return co_await when_settled(std::move(r));
}

asio::awaitable<reply> ledger_service::post_reserve(api_call& call) {
    const auto in = wire::read_reserve(call.body);
    if (!in) co_return bad_request(in.error());
    const auto out = core_.apply(*in);
    reply r = out.ok() ? json_reply(wire::to_json(out.reply(), context())) : refused(out.refused());
    co_return co_await when_settled(std::move(r));
}

asio::awaitable<reply> ledger_service::post_heartbeat(api_call& call) {
    auto in = wire::read_heartbeat(call.body);
    if (!in) co_return bad_request(in.error());
    if (core_.disk_full()) {  // heartbeats go on; a reservation would have to be recorded
        for (lease::beat& b : in->request.leases) b.reserve_through.reset();
    }
    const auto out = core_.apply(in->request);
    reply r = out.ok() ? json_reply(wire::to_json(out.reply(), in->unreadable, context())) : refused(out.refused());
    co_return co_await when_settled(std::move(r));
}

asio::awaitable<reply> ledger_service::post_commit(api_call& call) {
    const auto in = wire::read_commit(call.body);
    if (!in) co_return bad_request(in.error());
    const auto out = core_.apply(*in);
    reply r = out.ok() ? json_reply(wire::to_json(out.reply(), context())) : refused(out.refused());
    co_return co_await when_settled(std::move(r));
}

asio::awaitable<reply> ledger_service::post_release(api_call& call) {
    const auto in = wire::read_release(call.body);
    if (!in) co_return bad_request(in.error());
    const auto out = core_.apply(*in);
    reply r = out.ok() ? json_reply(wire::to_json(out.reply(), context())) : refused(out.refused());
    co_return co_await when_settled(std::move(r));
}

asio::awaitable<reply> ledger_service::post_advance(api_call& call) {
    const auto in = wire::read_advance(call.body);
    if (!in) co_return bad_request(in.error());
    const auto out = core_.apply(*in);
    reply r = out.ok() ? json_reply(wire::to_json(out.reply(), context())) : refused(out.refused());
    co_return co_await when_settled(std::move(r));
}

// The reference's clients call it with GET. It only does what the next acquire would do anyway.
asio::awaitable<reply> ledger_service::get_advance(api_call&) {
    const auto out = core_.apply(ledger::advance_request{});
    reply r = out.ok() ? json_reply(wire::to_json(out.reply(), context())) : refused(out.refused());
    co_return co_await when_settled(std::move(r));
}

}  // namespace darlcore::http
