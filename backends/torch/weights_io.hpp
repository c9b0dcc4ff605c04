// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "adapters/formats/safetensors.hpp"
#include "backends/torch/model_spec.hpp"

// Weights between files and host memory, without libtorch: flat f32 vectors in layout order.
namespace darlcore::models {

/// The specs as files and layouts know them.
std::vector<tensor_spec> file_specs(const std::vector<parameter_spec>& specs, dtype type);

/// Digest of the layout: BLAKE2b-16 over the lines `name:f32:d0,d1,...\n`, 32 hex digits (40 section 2).
std::string layout_digest(const std::vector<parameter_spec>& specs);

/// Reads a safetensors file (f32, bf16 or f16 tensors) into `flat`. `loaded` are indices of the specs that the file
/// has; with `partial` others may be missing (a shard of a folder). Errors: errc::layout_mismatch (missing or extra
/// tensor, other shape, dtype), naming file and tensor; those of the reader. Preconditions (asserted): flat has exactly
/// the elements of the specs. Memory: a buffer of 16 KiB per thread, at most four threads. Nothing is read on a
/// mismatch.
result<std::vector<std::size_t>> read_weights(const formats::safetensors_reader& file,
                                              const std::vector<parameter_spec>& specs, std::span<float> flat,
                                              bool partial = false);

/// Gives the f32 values of elements [first, first + out.size()) of the flat vector.
using flat_source = std::function<void(std::uint64_t first, std::span<float> out)>;

struct written_file {
    std::uint64_t bytes = 0;
    std::string sha256;  ///< of the whole file, 64 hex digits
};

/// Streams a safetensors file of the layout to `path` through a staging name; one buffer, whatever the model size.
/// bf16 rounds to nearest even. Errors: those of the writer.
/// Preconditions (asserted): type is f32 or bf16.
result<written_file> write_weights(const std::string& path, const std::vector<parameter_spec>& specs, dtype type,
                                   const formats::safetensors_metadata& metadata, const flat_source& source);

/// A model folder for other tools: config.json and model.safetensors, or shards with an index above `shard_bytes_max`.
/// Errors: errc::already_exists when the folder has a config.json; those of the writer. Staged: a failed export leaves
/// no folder.
result<written_file> write_model_folder(const std::string& folder, const model_config& config,
                                        const flat_source& source,
                                        std::uint64_t shard_bytes_max = std::uint64_t{5'000'000'000});

/// Reads config.json and the weights beside it (one file or shards with an index).
/// Errors: errc::not_found, errc::io_error, those of parse_config and read_weights.
result<model_config> read_folder_config(const std::string& folder);
result<void> read_folder_weights(const std::string& folder, const std::vector<parameter_spec>& specs,
                                 std::span<float> flat);

/// The built-in flavour that a weights file holds, with the file's own vocabulary.
/// Errors: errc::not_found (the tensors are those of no flavour), naming the file and what to give instead.
result<model_config> config_of_weights(const formats::safetensors_reader& file);

/// Writes the initial weights of `config` for a seed as a model folder, without holding the model in memory.
result<written_file> export_initial(const std::string& folder, const model_config& config, std::int64_t seed);

}  // namespace darlcore::models
