// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include "adapters/formats/json.hpp"
#include "backends/asio/access_control.hpp"
#include "backends/asio/exchange.hpp"
#include "backends/asio/ledger_core.hpp"
#include "backends/asio/server.hpp"
#include "backends/asio/service_metrics.hpp"
#include "backends/asio/wait_board.hpp"
#include "backends/asio/wake_hub.hpp"
#include "backends/asio/wire_replies.hpp"

namespace darlcore::http {

class ledger_service;

/// A request on its way through the service.
struct api_call {
    exchange& x;
    identity who;
    json::value body;
    std::vector<std::pair<std::string, std::string>> query;
    std::string tail;  ///< what follows the path of a prefix route

    [[nodiscard]] const std::string* parameter(std::string_view name) const;
};

/// One row of the route table. A path that ends in '/' takes everything below it (GET / is only itself).
struct route {
    std::string_view method;
    std::string_view path;
    std::optional<scope> needs;  ///< nothing: open to all
    bool mutates = false;        ///< refused while the disk is full
    bool reads_json = false;     ///< the body is read and parsed before the handler runs
    asio::awaitable<reply> (ledger_service::*run)(api_call&) = nullptr;
};

struct service_options {
    std::int64_t poll_ms = 20'000;
    std::uint64_t json_bytes_max = std::uint64_t{1} << 20U;
    std::uint64_t part_bytes_max = std::uint64_t{16} << 20U;
    std::uint64_t reserve_bytes = std::uint64_t{1} << 30U;  ///< of free space, never touched by uploads
};

/// Routes that another part adds (blobs, probes): tried before the ledger's own.
class extra_routes {
public:
    virtual ~extra_routes() = default;
    struct found {
        std::string_view name;
        scope needs = scope::read;
        bool mutates = false;
    };
    [[nodiscard]] virtual std::optional<found> find(const request_head& head) const = 0;
    virtual asio::awaitable<reply> run(api_call& call) = 0;
    /// Fields for /status and lines for /metrics.
    virtual void add_status(json::value& status) const = 0;
    virtual void add_metrics(std::string& text) const = 0;
};

/// The HTTP interface of a ledger: routes, access, JSON, status.
/// Thread-safety: everything on the thread of the loop.
class ledger_service {
public:
    ledger_service(asio::io_context& loop, ledger_core& core, access_control& access, service_options options);

    asio::awaitable<reply> handle(exchange& x);
    void on_effect(const ledger::effect& e);
    void add(extra_routes& more) { extras_.push_back(&more); }
    void show_server(const server* s) { server_ = s; }
    /// Ends long polls; new requests are answered 503 restarting.
    void stop();

    [[nodiscard]] json::value status(bool full) const;
    [[nodiscard]] std::string metrics_text() const;

    // For the routes of other parts.
    [[nodiscard]] ledger_core& core() { return core_; }
    [[nodiscard]] access_control& access() { return access_; }
    [[nodiscard]] const service_options& options() const { return options_; }
    [[nodiscard]] wire::reply_context context() const;
    /// Waits until what was applied is durable, then gives the reply (or 503 when the journal failed).
    asio::awaitable<reply> when_settled(reply r);
    [[nodiscard]] reply refused(const lease::refusal& why, bool about_content = false);
    /// Nothing when the caller may speak for this site.
    [[nodiscard]] std::optional<reply> check_site(const api_call& call, std::string_view cluster);

private:
    friend struct route_table;

    asio::awaitable<reply> dispatch(exchange& x, std::string& name);
    asio::awaitable<reply> run_extra(exchange& x, extra_routes& more, const extra_routes::found& found);
    asio::awaitable<reply> run_route(exchange& x, const route& r);
    std::optional<reply> prepare(exchange& x, std::optional<scope> needs, bool mutates, api_call& call);
    std::optional<reply> parse_body(api_call& call, const std::string& text);
    [[nodiscard]] std::optional<reply> unavailable(bool mutates);
    void sample();

    asio::awaitable<reply> get_page(api_call& call);
    asio::awaitable<reply> get_status(api_call& call);
    asio::awaitable<reply> get_health(api_call& call);
    asio::awaitable<reply> get_metrics(api_call& call);
    asio::awaitable<reply> get_events(api_call& call);
    asio::awaitable<reply> get_snapshot(api_call& call);
    asio::awaitable<reply> post_snapshot(api_call& call);
    asio::awaitable<reply> post_register(api_call& call);
    asio::awaitable<reply> post_acquire(api_call& call);
    asio::awaitable<reply> post_reserve(api_call& call);
    asio::awaitable<reply> post_heartbeat(api_call& call);
    asio::awaitable<reply> post_commit(api_call& call);
    asio::awaitable<reply> post_release(api_call& call);
    asio::awaitable<reply> post_advance(api_call& call);
    asio::awaitable<reply> get_advance(api_call& call);
    asio::awaitable<reply> post_join(api_call& call);
    asio::awaitable<reply> post_poll(api_call& call);
    asio::awaitable<reply> post_contribute(api_call& call);
    asio::awaitable<reply> post_decline(api_call& call);
    asio::awaitable<reply> post_evaluation(api_call& call);
    asio::awaitable<reply> post_leave(api_call& call);
    asio::awaitable<reply> get_round(api_call& call);
    asio::awaitable<reply> get_history(api_call& call);
    asio::awaitable<reply> post_pause(api_call& call);
    asio::awaitable<reply> post_resume(api_call& call);
    asio::awaitable<reply> post_stop(api_call& call);

    [[nodiscard]] reply page(bool html) const;
    [[nodiscard]] reply health(bool with_details) const;
    [[nodiscard]] reply rounds_since(generation first, std::uint32_t most) const;
    [[nodiscard]] json::value round_json() const;
    void add_sites(json::value& out, std::size_t sites_max, bool& truncated) const;
    void add_waiting(json::value& out) const;
    void add_storage(json::value& out) const;
    [[nodiscard]] piece_source full_status_pieces() const;

    asio::io_context& loop_;
    ledger_core& core_;
    access_control& access_;
    service_options options_;
    wake_hub hub_;
    service_metrics metrics_;
    rate_meter rate_;
    std::int64_t sampled_ms_ = 0;
    std::vector<extra_routes*> extras_;
    const server* server_ = nullptr;
    std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
    wait_board waits_;      // sites, by the last answer they got
    wait_board own_waits_;  // the server and its round
};

/// `{"error","code"}` with the status that belongs to the code.
reply error_reply(errc code, std::string_view sentence, std::int64_t retry_after_ms = 0, bool about_content = false);
reply json_reply(const json::value& body, int status = 200);

}  // namespace darlcore::http
