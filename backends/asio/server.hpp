// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "backends/asio/exchange.hpp"
#include "backends/asio/http_reader.hpp"
#include "darlcore/error.hpp"

namespace asio {
class io_context;
class thread_pool;
}  // namespace asio

namespace darlcore::http {

/// Deadlines and caps (design table "network surface"); tests lower them.
struct server_limits {
    reader_limits reader;
    std::size_t connections_max = 1024;
    std::size_t connections_per_address_max = 64;
    std::int64_t head_ms = 10'000;
    std::int64_t idle_ms = 60'000;
    /// Slowest body or reply that is tolerated: rate_bytes_min bytes in every rate_window_ms.
    std::int64_t rate_window_ms = 30'000;
    std::uint64_t rate_bytes_min = 30 * 1024;
    /// How long the answers in progress may take after `stop`.
    std::int64_t stop_grace_ms = 5'000;
};

/// TLS 1.2 and later; PEM files.
struct tls_options {
    std::string certificate_file;
    std::string key_file;
    std::string client_ca_file;  ///< not empty: clients must present a certificate of this authority
};

struct server_counters {
    std::uint64_t accepted = 0;
    std::uint64_t refused_connections = 0;
    std::uint64_t requests = 0;
    std::uint64_t malformed = 0;
    std::uint64_t bytes_in = 0;
    std::uint64_t bytes_out = 0;
    std::size_t open = 0;
};

/// HTTP/1.1 on Asio coroutines: one listener, one coroutine per connection, all on the thread that runs the io_context.
/// Promises: every limit above is kept while reading; a refused, slow or over-large request ends its connection; a
/// handler that returns before it has read the body ends it too (nothing is read for somebody who was refused).
/// Thread-safety: everything on the thread of the io_context; files are read on `files`.
class server {
public:
    server(asio::io_context& loop, asio::thread_pool& files, const server_limits& limits, handler handle);
    ~server();
    server(const server&) = delete;
    server& operator=(const server&) = delete;

    /// Errors: errc::invalid_argument (certificate, key), errc::io_error.
    result<void> use_tls(const tls_options& options);
    /// Binds and begins to accept; gives the port (for port 0 the one chosen).
    /// Errors: errc::invalid_argument (address), errc::io_error (in use, not allowed).
    result<std::uint16_t> listen(const std::string& address, std::uint16_t port);

    /// Ends accepting, closes idle connections, lets answers in progress finish within stop_grace_ms.
    void stop();
    [[nodiscard]] bool stopped() const;
    [[nodiscard]] const server_counters& counters() const;

private:
    class implementation;
    std::shared_ptr<implementation> impl_;
};

}  // namespace darlcore::http
