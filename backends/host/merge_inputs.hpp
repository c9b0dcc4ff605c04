// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "adapters/formats/safetensors.hpp"
#include "backends/host/merge_files.hpp"

// First half of a merge on files: opening, checking, scanning and judging what goes in.
namespace darlcore::host {

/// An open file whose tensors are those of a layout, with its entries in layout order.
struct layout_file {
    formats::safetensors_reader reader;
    model_layout layout;
    std::vector<formats::safetensors_entry> entries;
};

/// Errors: those of the reader and of model_layout, with the file's name.
result<layout_file> open_layout_file(const std::string& path);

struct merge_inputs {
    std::optional<layout_file> base;  ///< always there once gathered
    std::optional<layout_file> velocity;
    std::vector<layout_file> deltas;  ///< of report.used, in the same order
    std::uint64_t bytes_read = 0;
};

/// Opens everything and fills used (without shares) and rejected of the report.
/// Errors: of base and velocity only; a bad delta is a rejection.
result<merge_inputs> gather_inputs(const merge_request& request, int threads, merge_report& report);

}  // namespace darlcore::host
