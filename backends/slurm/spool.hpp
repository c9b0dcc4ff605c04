// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "adapters/formats/json.hpp"

namespace darlcore::slurm {

inline constexpr std::size_t spool_bytes_max = std::size_t{32} << 20U;

/// Records on their way to the server: each is a file of its own, durable before it is sent, removed after the server's
/// yes. One process at a time (a lock); folder mode 0700. Above 32 MiB the oldest go; their number stands in the next
/// record (`dropped`).
class spool {
public:
    /// Errors: errc::locked when another collector holds it; errc::io_error.
    static result<spool> open(const std::string& folder, const std::string& site);
    spool(spool&& other) noexcept;
    spool& operator=(spool&& other) noexcept;
    ~spool();

    /// Gives the record its id, writes and syncs it.
    /// Errors: errc::io_error, errc::no_space.
    result<std::string> append(json::value record);

    /// The oldest records, at most `most` and (but for the first) `bytes_most` together, with their ids. A file that
    /// does not parse is set aside and counted.
    [[nodiscard]] std::vector<json::value> pending(std::size_t most, std::size_t bytes_most = SIZE_MAX);
    void remove(const std::vector<std::string>& ids);
    [[nodiscard]] std::size_t count() const { return ids_.size(); }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    void set_bytes_max(std::size_t most) { bytes_max_ = most; }

private:
    spool() = default;
    [[nodiscard]] std::string file_of(const std::string& id) const;
    void drop_oldest();

    std::string folder_;
    std::string prefix_;
    std::uint64_t next_ = 0;
    std::vector<std::string> ids_;  // ascending
    std::vector<std::size_t> sizes_;
    std::size_t bytes_ = 0;
    std::size_t bytes_max_ = spool_bytes_max;
    std::uint64_t dropped_ = 0;
    int lock_fd_ = -1;
};

/// Seconds to wait before upload attempt n (0-based): 1 s doubling to 300 s, times a factor in [0.5, 1).
double upload_backoff_s(unsigned attempt, double uniform);

}  // namespace darlcore::slurm
