// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "adapters/formats/safetensors.hpp"
#include "backends/host/cpu_backend.hpp"
#include "darlcore/merge/guards.hpp"
#include "darlcore/merge/model_layout.hpp"
#include "darlcore/merge/scan_accumulator.hpp"

namespace darlcore::host {

/// What is known about a delta file after its last byte.
struct delta_facts {
    formats::safetensors_header header;
    model_layout layout;
    delta_scan scan;
};

/// Scans a safetensors file of deltas while its bytes arrive, front to back, in pieces of any size: what an upload
/// runs, so that a merge reads each delta once. Determinism: the scan has the bits of the offline one, whatever the
/// pieces and the order of tensors in the file.
class delta_stream {
public:
    /// `file_bytes` is the announced size.
    explicit delta_stream(std::uint64_t file_bytes,
                          std::uint64_t header_bytes_max = formats::safetensors_header_bytes_max);

    /// Errors: those of a header (at the piece that completes it), errc::unsupported and errc::overflow for a layout
    /// that cannot be merged, errc::too_large when more arrives than was announced. After an error feed no more.
    result<void> feed(std::span<const std::byte> bytes);

    /// Errors: errc::truncated when bytes are missing.
    result<delta_facts> finish();

private:
    result<void> feed_header(std::span<const std::byte>& bytes);
    result<void> open_header();
    void feed_data(std::span<const std::byte> bytes);
    void feed_elements(std::span<const std::byte> bytes);
    void skip_finished_tensors();

    const kernel_table* kernels_;
    std::uint64_t file_bytes_;
    std::uint64_t header_bytes_max_;
    std::uint64_t arrived_bytes_ = 0;
    std::string head_;
    std::optional<std::uint64_t> header_bytes_;
    delta_facts facts_;
    std::vector<delta_scan> tensor_scans_;  // in the order of the file
    std::size_t tensor_ = 0;
    std::uint64_t in_tensor_bytes_ = 0;
    std::array<std::byte, 4> carry_{};  // an element that two pieces share
    std::size_t carried_ = 0;
    std::array<double, scan_lanes> lanes_{};
    std::uint32_t max_bits_ = 0;
    std::uint64_t in_block_ = 0;
    void end_block();
};

}  // namespace darlcore::host
