// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backends/host/cpu_backend.hpp"
#include "backends/host/file_digest.hpp"
#include "backends/host/merge_files.hpp"
#include "backends/host/merge_inputs.hpp"

// Second half of a merge on files: one pass over all streams in chunks, within a memory budget.
namespace darlcore::host {

/// Elements of one block of one tensor: what a sum of squares is made of, and what a chunk consists of.
struct block_place {
    std::uint32_t tensor = 0;
    std::uint64_t first = 0;  ///< element within the tensor
    std::uint32_t count = 0;
};

/// A chunk: consecutive blocks in layout order, and where their elements begin when all tensors are laid one behind the
/// other.
struct chunk_place {
    std::size_t first_block = 0;
    std::size_t end_block = 0;
    std::uint64_t first_element = 0;
    std::uint64_t elements = 0;
};

/// The blocks of a layout; tensors without elements have none.
std::vector<block_place> blocks_of(const model_layout& layout);

/// Whole blocks packed into chunks of at most `elements_max` (at least 65536) elements. Small tensors share a chunk.
std::vector<chunk_place> chunks_of(const model_layout& layout, std::span<const block_place> blocks,
                                   std::uint64_t elements_max);

/// Buffers of a merge with that many deltas.
struct merge_memory {
    std::uint64_t chunk_elements = 0;
    int workers = 1;
};
/// Errors: errc::invalid_argument naming the budget that so many deltas need.
result<merge_memory> plan_memory(std::uint64_t budget_bytes, std::size_t deltas, int threads,
                                 std::uint64_t chunk_bytes_max);

/// Streams everything through the step and fills norms, digests and byte counts of the report.
/// Preconditions: report.used with shares and report.rule are set, files in the same order.
result<void> stream_merge(const merge_request& request, const merge_inputs& inputs, int threads, merge_report& report);

}  // namespace darlcore::host
