// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "darlcore/error.hpp"

namespace darlcore::training {

/// What the ranks of one site say to each other. Every rank makes the same calls in the same order; a dead peer makes
/// the others' calls fail, and a failed communicator is not used again. Thread-safety: one caller per rank.
class communicator {
public:
    virtual ~communicator() = default;

    [[nodiscard]] virtual std::size_t rank() const = 0;
    [[nodiscard]] virtual std::size_t size() const = 0;

    // In place: every rank ends with the sum over all ranks. Errors: errc::unreachable (a peer is gone), errc::timeout.
    virtual result<void> all_reduce_sum(std::span<float> values) = 0;
    virtual result<void> all_reduce_sum(std::span<double> values) = 0;
    virtual result<void> all_reduce_sum(std::span<std::int64_t> values) = 0;
    /// bf16 bit patterns, summed in f32 and rounded once.
    virtual result<void> all_reduce_sum_bf16(std::span<std::uint16_t> values);

    /// Rank `root`'s bytes arrive everywhere; sizes may differ before the call.
    virtual result<void> broadcast(std::vector<std::byte>& bytes, std::size_t root) = 0;
    /// out [size * part]: rank r's part at r * part.size().
    virtual result<void> all_gather(std::span<const float> part, std::span<float> out) = 0;
    /// values [size * part]: rank r ends with the sum of everyone's r-th part. The default is all-reduce and own slice.
    virtual result<void> reduce_scatter_sum(std::span<float> values, std::span<float> part);
    virtual result<void> barrier() = 0;
    /// Makes every waiting and later call of all ranks fail.
    virtual void abort() = 0;
    /// "gloo: reduce-scatter by all-reduce, ..." for the log.
    [[nodiscard]] virtual std::string description() const = 0;
};

/// One rank: every call is immediate.
std::unique_ptr<communicator> single_communicator();

/// Ranks as threads of this process; for tests and for several ranks on one machine without sockets.
/// Determinism: sums are taken in rank order.
std::vector<std::unique_ptr<communicator>> thread_communicators(std::size_t ranks);

struct gloo_options {
    std::string host = "127.0.0.1";  ///< where rank 0 listens
    std::uint16_t port = 0;          ///< of the rendezvous
    std::size_t rank = 0;
    std::size_t size = 1;
    std::int64_t timeout_ms = 300'000;
};

/// Rank 0's meeting point, so that the port is known before the other ranks start.
class gloo_rendezvous {
public:
    /// Listens; port 0 picks a free one. Errors: errc::unsupported in a build without Gloo, errc::io_error.
    static result<gloo_rendezvous> open(std::uint16_t port = 0);
    gloo_rendezvous(gloo_rendezvous&&) noexcept;
    gloo_rendezvous& operator=(gloo_rendezvous&&) noexcept;
    ~gloo_rendezvous();
    [[nodiscard]] std::uint16_t port() const;

private:
    gloo_rendezvous();
    struct state;
    std::unique_ptr<state> state_;
};

/// Gloo over TCP through libtorch's c10d. Blocks until all ranks are there.
/// Errors: errc::unsupported in a build without Gloo; errc::unreachable, errc::timeout.
result<std::unique_ptr<communicator>> gloo_communicator(const gloo_options& options);

}  // namespace darlcore::training
