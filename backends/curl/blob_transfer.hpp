// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "backends/curl/http_client.hpp"
#include "backends/curl/json_call.hpp"
#include "backends/curl/retry.hpp"
#include "darlcore/error.hpp"
#include "darlcore/lease/requests.hpp"

namespace darlcore::client {

/// A file to bring to the server. `sha256` and `bytes` are those of the whole file.
struct upload_job {
    std::string path;
    std::string sha256;
    std::uint64_t bytes = 0;
    std::string purpose = "delta";  // or "init"
    std::string codec;
    generation base;
    lease::caller who;
};

struct transfer_options {
    std::uint64_t part_bytes_max = std::uint64_t{16} << 20U;
    std::int64_t part_ms = 55'000;  // below every known proxy's limit
    int failures_max = 20;          // in a row, without one byte of progress
};

/// Files to and from the server in parts: each request is short, a cut connection costs at most one part.
/// Uploads go on at the offset that the server has stored; downloads at the length of the staging file `path`.part. A
/// download is renamed to `path` only when its digest is right.
/// Errors: the server's code where it refused; errc::unreachable after failures_max; errc::corrupt when the received
/// bytes have another digest; errc::io_error naming the file; errc::cancelled.
/// Thread-safety: one transfer at a time per client.
result<void> upload_blob(http_client& client, const upload_job& job, const retry_world& world,
                         const transfer_options& options = {});
result<void> download_blob(http_client& client, const std::string& sha256, std::uint64_t bytes, const std::string& path,
                           const retry_world& world, const transfer_options& options = {});

}  // namespace darlcore::client
