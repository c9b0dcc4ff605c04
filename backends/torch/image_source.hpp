// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/torch/trainer.hpp"

namespace darlcore::training {

/// Bytes of one image record: a label, then 32 x 32 pixels of three planes.
inline constexpr std::size_t image_record_bytes = 1 + 3 * 32 * 32;

/// CIFAR-10 in its binary form (data_batch_1.bin, ...): 3073-byte records, held in memory.
/// Errors: errc::not_found, errc::io_error, errc::truncated (no whole records), errc::corrupt (a label of 10 or more).
result<std::unique_ptr<window_source>> cifar10_source(const std::vector<std::string>& files);

/// MNIST-like data in IDX form, plain or gzipped: grey images of 28 x 28, put into the middle of 32 x 32 and repeated
/// on three planes; the first `count` of them, 0: all. Errors: errc::not_found, errc::parse_error (not IDX of that
/// shape), errc::truncated, errc::corrupt (counts differ, a label of 10 or more), errc::invalid_argument (fewer images
/// than `count`).
result<std::unique_ptr<window_source>> idx_source(const std::string& images, const std::string& labels,
                                                  std::uint64_t count = 0);

/// `images` pictures of ten classes: each class a fixed pattern of its own under noise. For tests, no files needed.
/// Determinism: a function of (images, seed).
std::unique_ptr<window_source> pattern_source(std::uint64_t images, std::int64_t seed);

}  // namespace darlcore::training
