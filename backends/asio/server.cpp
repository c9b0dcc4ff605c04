// SPDX-License-Identifier: Apache-2.0
#include "backends/asio/server.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <list>
#include <unordered_map>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <asio.hpp>
#include <asio/ssl.hpp>

#include "backends/asio/reply_head.hpp"
#include "darlcore/assert.hpp"

namespace darlcore::http {

using tcp = asio::ip::tcp;
using clock = std::chrono::steady_clock;

open_file::~open_file() {
    if (fd_ >= 0) ::close(fd_);
}

asio::awaitable<std::string> read_body(exchange& x, std::uint64_t bytes_max) {
    std::string body;
    for (;;) {
        const std::string_view piece = co_await x.next_piece(bytes_max);
        if (x.wrong()) co_return std::string{};
        if (piece.empty()) co_return body;
        body.append(piece);
    }
}

namespace {

const auto awaiting = asio::use_awaitable;
constexpr std::size_t read_bytes = std::size_t{16} << 10U;
constexpr std::size_t body_read_bytes = std::size_t{256} << 10U;
constexpr std::size_t write_bytes = std::size_t{64} << 10U;
constexpr std::size_t file_bytes = std::size_t{1} << 20U;
constexpr std::size_t refusals_open_max = 256;
constexpr std::uint64_t linger_bytes_max = std::uint64_t{1} << 20U;

std::string http_date() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    ::gmtime_r(&now, &parts);
    char text[64];
    const std::size_t n = std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts);
    return {text, n};
}

class connection;

/// What all connections share; lives as long as the last of them.
struct shared_state {
    shared_state(asio::io_context& l, asio::thread_pool& f, const server_limits& bounds, handler h)
        : loop(l), files(f), limits(bounds), handle(std::move(h)) {}
    asio::io_context& loop;
    asio::thread_pool& files;
    server_limits limits;
    handler handle;
    server_counters counters;
    std::list<connection*> connections;
    std::unordered_map<std::string, std::size_t> per_address;
    std::string date = http_date();
    std::unique_ptr<asio::ssl::context> tls;
    bool stopping = false;
    std::size_t refusing = 0;
};

/// One connection: reads requests, calls the handler, writes replies, one after the other.
class connection : public exchange, public std::enable_shared_from_this<connection> {
public:
    connection(std::shared_ptr<shared_state> shared, tcp::socket socket, http::peer from)
        : shared_(std::move(shared)),
          socket_(std::move(socket)),
          peer_(std::move(from)),
          reader_(shared_->limits.reader) {
        place_ = shared_->connections.insert(shared_->connections.end(), this);
        ++shared_->counters.open;
        ++shared_->per_address[peer_.address];
        if (shared_->tls) {
            tls_.emplace(socket_, *shared_->tls);
            peer_.tls = true;
        }
    }
    ~connection() override {
        shared_->connections.erase(place_);
        --shared_->counters.open;
        const auto it = shared_->per_address.find(peer_.address);
        if (--it->second == 0) shared_->per_address.erase(it);
    }

    asio::awaitable<void> run();

    /// Called at every turn of the server's timer: a deadline that has passed ends what waits for the peer.
    void check(clock::time_point now) {
        if (now < deadline_) return;
        deadline_ = clock::time_point::max();
        expired_ = true;
        asio::error_code ignored;
        if (writing_)
            socket_.close(ignored);
        else
            socket_.cancel(ignored);
    }
    /// The server ends: an idle connection is closed at once, the others when their answer is out.
    void end_when_idle() {
        asio::error_code ignored;
        if (idle_) socket_.close(ignored);
    }
    void close_now() {
        asio::error_code ignored;
        socket_.close(ignored);
    }

    [[nodiscard]] const request_head& head() const override { return reader_.head(); }
    [[nodiscard]] const http::peer& peer() const override { return peer_; }
    asio::awaitable<std::string_view> next_piece(std::uint64_t bytes_max) override;
    [[nodiscard]] bool wrong() const override { return wrong_ || lost_; }
    [[nodiscard]] bool body_finished() const override { return body_finished_; }

private:
    enum class head_outcome : std::uint8_t { request, refused, lost };

    asio::awaitable<bool> handshake();
    asio::awaitable<head_outcome> read_head();
    asio::awaitable<std::size_t> read_some(std::size_t bytes);
    asio::awaitable<bool> write_all(std::string_view bytes);
    asio::awaitable<bool> write_reply(reply& r, bool keep_alive);
    asio::awaitable<bool> write_file(const file_region& region);
    asio::awaitable<bool> write_pieces(piece_source& source, bool chunked);
    asio::awaitable<void> linger();
    asio::awaitable<bool> one_request();
    void arm(std::int64_t ms) {
        deadline_ = clock::now() + std::chrono::milliseconds(ms);
        expired_ = false;
    }
    void disarm() { deadline_ = clock::time_point::max(); }
    void refuse_body(int status, std::string_view code, std::string_view sentence) {
        wrong_ = true;
        refusal_ = {status, std::string(code), std::string(sentence)};
    }

    std::shared_ptr<shared_state> shared_;
    tcp::socket socket_;
    std::optional<asio::ssl::stream<tcp::socket&>> tls_;
    http::peer peer_;
    http_reader reader_;
    std::list<connection*>::iterator place_;

    clock::time_point deadline_ = clock::time_point::max();
    std::uint64_t window_bytes_ = 0;
    bool expired_ = false;
    bool writing_ = false;
    bool idle_ = false;
    bool wrong_ = false;
    bool lost_ = false;
    bool continue_sent_ = false;
    bool body_finished_ = false;
    refusal refusal_;
};

asio::awaitable<std::size_t> connection::read_some(std::size_t bytes) {
    const auto room = reader_.prepare(bytes);
    asio::error_code ec;
    std::size_t n = 0;
    auto token = asio::redirect_error(awaiting, ec);
    if (tls_)
        n = co_await tls_->async_read_some(asio::buffer(room.data(), room.size()), token);
    else
        n = co_await socket_.async_read_some(asio::buffer(room.data(), room.size()), token);
    if (ec) co_return 0;
    reader_.commit(n);
    shared_->counters.bytes_in += n;
    co_return n;
}

asio::awaitable<bool> connection::write_all(std::string_view bytes) {
    while (!bytes.empty()) {
        const std::string_view part = bytes.substr(0, write_bytes);
        arm(shared_->limits.rate_window_ms +
            static_cast<std::int64_t>(part.size() * static_cast<std::uint64_t>(shared_->limits.rate_window_ms) /
                                      std::max<std::uint64_t>(1, shared_->limits.rate_bytes_min)));
        writing_ = true;
        asio::error_code ec;
        auto token = asio::redirect_error(awaiting, ec);
        std::size_t n = 0;
        if (tls_)
            n = co_await asio::async_write(*tls_, asio::buffer(part.data(), part.size()), token);
        else
            n = co_await asio::async_write(socket_, asio::buffer(part.data(), part.size()), token);
        writing_ = false;
        disarm();
        shared_->counters.bytes_out += n;
        if (ec) co_return false;
        bytes.remove_prefix(part.size());
    }
    co_return true;
}

asio::awaitable<bool> connection::handshake() {
    if (!tls_) co_return true;
    arm(shared_->limits.head_ms);
    asio::error_code ec;
    co_await tls_->async_handshake(asio::ssl::stream_base::server, asio::redirect_error(awaiting, ec));
    disarm();
    co_return !ec;
}

asio::awaitable<connection::head_outcome> connection::read_head() {
    bool begun = false;
    arm(shared_->limits.idle_ms);
    idle_ = reader_.between_requests();
    for (;;) {
        const auto event = reader_.next();
        if (event == http_reader::event::head || event == http_reader::event::refused) {
            idle_ = false;
            disarm();
            co_return event == http_reader::event::head ? head_outcome::request : head_outcome::refused;
        }
        if (event != http_reader::event::need_more) continue;
        if (!begun && !reader_.between_requests()) {
            begun = true;
            idle_ = false;
            arm(shared_->limits.head_ms);
        }
        if (co_await read_some(read_bytes) == 0) {
            idle_ = false;
            disarm();
            if (!expired_ || !begun) co_return head_outcome::lost;
            expired_ = false;
            refusal_ = {408, "timeout", "the request head did not arrive in time; send it within 10 s"};
            co_return head_outcome::refused;
        }
        if (shared_->stopping && reader_.between_requests()) co_return head_outcome::lost;
    }
}

asio::awaitable<std::string_view> connection::next_piece(std::uint64_t bytes_max) {
    if (body_finished_ || wrong()) co_return std::string_view{};
    if (head().content_length.value_or(0) > bytes_max) {
        refuse_body(413, "too_large", "the body is too large for this route");
        co_return std::string_view{};
    }
    for (;;) {
        switch (reader_.next()) {
            case http_reader::event::body:
                if (reader_.body_bytes() > bytes_max) {
                    refuse_body(413, "too_large", "the body is too large for this route");
                    co_return std::string_view{};
                }
                co_return reader_.body();
            case http_reader::event::end:
                body_finished_ = true;
                disarm();
                co_return std::string_view{};
            case http_reader::event::refused:
                refuse_body(reader_.why().status, reader_.why().code, reader_.why().sentence);
                co_return std::string_view{};
            default:
                break;
        }
        if (head().expect_continue && !continue_sent_) {
            continue_sent_ = true;
            if (!co_await write_all("HTTP/1.1 100 Continue\r\n\r\n")) {
                lost_ = true;
                co_return std::string_view{};
            }
        }
        if (window_bytes_ == 0) arm(shared_->limits.rate_window_ms);
        const std::size_t n = co_await read_some(body_read_bytes);
        if (n == 0) {
            if (expired_)
                refuse_body(408, "timeout", "the body arrives too slowly; at least 1 KiB/s are needed");
            else
                lost_ = true;
            disarm();
            co_return std::string_view{};
        }
        window_bytes_ += n;
        if (window_bytes_ >= shared_->limits.rate_bytes_min) window_bytes_ = 0;
    }
}

asio::awaitable<bool> connection::write_file(const file_region& region) {
    std::string buffer;
    std::uint64_t done = 0;
    while (done < region.length) {
        buffer.resize(static_cast<std::size_t>(std::min<std::uint64_t>(file_bytes, region.length - done)));
        const auto read = [&]() -> asio::awaitable<ssize_t> {
            co_return ::pread(region.file->fd(), buffer.data(), buffer.size(),
                              static_cast<off_t>(region.offset + done));
        };
        const ssize_t n = co_await asio::co_spawn(shared_->files, read, awaiting);
        if (n <= 0) co_return false;  // the promised length cannot be kept: the peer must see a cut body
        if (!co_await write_all({buffer.data(), static_cast<std::size_t>(n)})) co_return false;
        done += static_cast<std::uint64_t>(n);
    }
    co_return true;
}

asio::awaitable<bool> connection::write_pieces(piece_source& source, bool chunked) {
    for (;;) {
        const std::string piece = source();
        if (piece.empty()) break;
        const std::string framed = chunked ? fmt::format("{:x}\r\n{}\r\n", piece.size(), piece) : piece;
        const bool sent = co_await write_all(framed);
        if (!sent) co_return false;
    }
    if (chunked && !co_await write_all("0\r\n\r\n")) co_return false;
    co_return true;
}

asio::awaitable<bool> connection::write_reply(reply& r, bool keep_alive) {
    const bool has_head = !head().method.empty();
    const int version = has_head ? head().minor_version : 1;
    std::string text = reply_head_text(r, version, keep_alive, shared_->date);
    if (has_head && head().method == "HEAD") co_return co_await write_all(text);
    if (r.pieces) {
        if (!co_await write_all(text)) co_return false;
        co_return co_await write_pieces(r.pieces, version == 1);
    }
    if (r.file) {
        if (!co_await write_all(text)) co_return false;
        co_return co_await write_file(*r.file);
    }
    text += r.body;  // one write per reply
    co_return co_await write_all(text);
}

// The peer may still be sending: closing now would reset the connection and could take our answer away.
asio::awaitable<void> connection::linger() {
    asio::error_code ignored;
    if (tls_) {
        arm(1000);
        co_await tls_->async_shutdown(asio::redirect_error(awaiting, ignored));
    }
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    arm(1000);
    char waste[4096];
    std::uint64_t total = 0;
    while (total < linger_bytes_max && !expired_) {
        asio::error_code ec;
        const std::size_t n = co_await socket_.async_read_some(asio::buffer(waste), asio::redirect_error(awaiting, ec));
        if (ec) break;
        total += n;
    }
    disarm();
}

asio::awaitable<bool> connection::one_request() {
    ++shared_->counters.requests;
    wrong_ = lost_ = continue_sent_ = false;
    window_bytes_ = 0;
    body_finished_ = false;
    reply r = co_await shared_->handle(*this);
    if (lost_) co_return false;
    if (wrong_) r = refusal_reply(refusal_);
    if (!body_finished_ && !wrong_ && !head().has_body()) body_finished_ = reader_.next() == http_reader::event::end;
    const bool keep_alive = head().keep_alive && !r.close && body_finished_ && !shared_->stopping &&
                            !(r.pieces && head().minor_version == 0);
    if (!co_await write_reply(r, keep_alive)) co_return false;
    if (!keep_alive) co_await linger();
    co_return keep_alive;
}

asio::awaitable<void> connection::run() {
    const auto self = shared_from_this();
    if (!co_await handshake()) co_return;
    for (;;) {
        const head_outcome outcome = co_await read_head();
        if (outcome == head_outcome::lost) co_return;
        if (outcome == head_outcome::refused) {
            ++shared_->counters.malformed;
            reply r = refusal_reply(refusal_.sentence.empty() ? reader_.why() : refusal_);
            const std::string text = reply_head_text(r, 1, false, shared_->date) + r.body;
            if (co_await write_all(text)) co_await linger();
            co_return;
        }
        if (!co_await one_request()) co_return;
    }
}

/// Over a cap: an answer, then the end; nothing is read.
asio::awaitable<void> turn_away(std::shared_ptr<shared_state> shared, tcp::socket socket) {
    reply r = refusal_reply({503, "overloaded", "too many connections; close idle ones or try again later"});
    r.headers.push_back({"Retry-After", "5"});
    const std::string text = reply_head_text(r, 1, false, shared->date) + r.body;
    asio::steady_timer limit(shared->loop, std::chrono::seconds(1));
    limit.async_wait([&socket](const asio::error_code& ec) {
        asio::error_code ignored;
        if (!ec) socket.cancel(ignored);
    });
    asio::error_code ec;
    co_await asio::async_write(socket, asio::buffer(text), asio::redirect_error(awaiting, ec));
    socket.shutdown(tcp::socket::shutdown_send, ec);
    char waste[4096];
    for (int i = 0; i < 16 && !ec; ++i)
        co_await socket.async_read_some(asio::buffer(waste), asio::redirect_error(awaiting, ec));
    --shared->refusing;
}

}  // namespace

class server::implementation : public std::enable_shared_from_this<implementation> {
public:
    implementation(asio::io_context& loop, asio::thread_pool& files, const server_limits& limits, handler handle)
        : shared(std::make_shared<shared_state>(loop, files, limits, std::move(handle))), acceptor(loop), turn(loop) {}

    asio::awaitable<void> accept_loop();
    asio::awaitable<void> timer_loop();
    void take(tcp::socket socket);
    void stop();

    std::shared_ptr<shared_state> shared;
    tcp::acceptor acceptor;
    asio::steady_timer turn;
    clock::time_point stop_by = clock::time_point::max();
    bool accepting = false;
};

void server::implementation::take(tcp::socket socket) {
    asio::error_code ec;
    const auto from = socket.remote_endpoint(ec);
    if (ec) return;
    socket.set_option(tcp::no_delay(true), ec);
    http::peer who{from.address().to_string(), from.address().is_loopback(), false};
    server_counters& counts = shared->counters;
    const auto it = shared->per_address.find(who.address);
    const std::size_t from_there = it == shared->per_address.end() ? 0 : it->second;
    if (counts.open >= shared->limits.connections_max || from_there >= shared->limits.connections_per_address_max) {
        ++counts.refused_connections;
        if (shared->refusing == refusals_open_max) return;
        ++shared->refusing;
        asio::co_spawn(shared->loop, turn_away(shared, std::move(socket)), asio::detached);
        return;
    }
    ++counts.accepted;
    const auto c = std::make_shared<connection>(shared, std::move(socket), std::move(who));
    asio::co_spawn(
        shared->loop, [c]() { return c->run(); }, asio::detached);
}

asio::awaitable<void> server::implementation::accept_loop() {
    const auto self = shared_from_this();
    while (acceptor.is_open()) {
        asio::error_code ec;
        tcp::socket socket = co_await acceptor.async_accept(asio::redirect_error(awaiting, ec));
        if (!ec) {
            take(std::move(socket));
        } else if (acceptor.is_open()) {  // out of descriptors: let some connections end first
            asio::steady_timer pause(shared->loop, std::chrono::milliseconds(100));
            co_await pause.async_wait(asio::redirect_error(awaiting, ec));
        }
    }
    accepting = false;
}

asio::awaitable<void> server::implementation::timer_loop() {
    const auto self = shared_from_this();
    while (!shared->stopping || !shared->connections.empty()) {
        asio::error_code ec;
        turn.expires_after(std::chrono::milliseconds(shared->stopping ? 20 : 250));
        co_await turn.async_wait(asio::redirect_error(awaiting, ec));
        const auto now = clock::now();
        shared->date = http_date();
        for (connection* c : shared->connections) c->check(now);
        if (now >= stop_by)
            for (connection* c : shared->connections) c->close_now();
    }
}

void server::implementation::stop() {
    if (shared->stopping) return;
    shared->stopping = true;
    stop_by = clock::now() + std::chrono::milliseconds(shared->limits.stop_grace_ms);
    asio::error_code ignored;
    acceptor.close(ignored);
    for (connection* c : shared->connections) c->end_when_idle();
    turn.cancel();
}

server::server(asio::io_context& loop, asio::thread_pool& files, const server_limits& limits, handler handle)
    : impl_(std::make_shared<implementation>(loop, files, limits, std::move(handle))) {}

server::~server() { impl_->stop(); }

result<void> server::use_tls(const tls_options& options) {
    auto context = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
    asio::error_code ec;
    const auto failed = [&ec](std::string_view what, const std::string& file) {
        return fail(errc::invalid_argument, fmt::format("TLS: {} '{}': {}", what, file, ec.message()));
    };
    context->set_options(
        asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1, ec);
    if (ec) return failed("options", "");
    context->use_certificate_chain_file(options.certificate_file, ec);
    if (ec) return failed("certificate file", options.certificate_file);
    context->use_private_key_file(options.key_file, asio::ssl::context::pem, ec);
    if (ec) return failed("key file", options.key_file);
    if (!options.client_ca_file.empty()) {
        context->load_verify_file(options.client_ca_file, ec);
        if (ec) return failed("client CA file", options.client_ca_file);
        context->set_verify_mode(asio::ssl::verify_peer | asio::ssl::verify_fail_if_no_peer_cert, ec);
        if (ec) return failed("client CA file", options.client_ca_file);
    }
    impl_->shared->tls = std::move(context);
    return {};
}

result<std::uint16_t> server::listen(const std::string& address, std::uint16_t port) {
    asio::error_code ec;
    const auto ip = asio::ip::make_address(address, ec);
    if (ec) return fail(errc::invalid_argument, fmt::format("'{}' is not an IP address to listen on", address));
    const tcp::endpoint where(ip, port);
    tcp::acceptor& a = impl_->acceptor;
    a.open(where.protocol(), ec);
    if (!ec) a.set_option(tcp::acceptor::reuse_address(true), ec);
    if (!ec) a.bind(where, ec);
    if (!ec) a.listen(asio::socket_base::max_listen_connections, ec);
    if (ec) return fail(errc::io_error, fmt::format("cannot listen on {}:{}: {}", address, port, ec.message()));
    const std::uint16_t chosen = a.local_endpoint().port();
    impl_->accepting = true;
    asio::co_spawn(
        impl_->shared->loop, [impl = impl_]() { return impl->accept_loop(); }, asio::detached);
    asio::co_spawn(
        impl_->shared->loop, [impl = impl_]() { return impl->timer_loop(); }, asio::detached);
    return chosen;
}

void server::stop() { impl_->stop(); }

bool server::stopped() const { return impl_->shared->stopping && impl_->shared->connections.empty(); }

const server_counters& server::counters() const { return impl_->shared->counters; }

}  // namespace darlcore::http
