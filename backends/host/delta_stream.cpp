// SPDX-License-Identifier: Apache-2.0
#include "backends/host/delta_stream.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>

#include "darlcore/merge/ieee_mode.hpp"

namespace darlcore::host {

delta_stream::delta_stream(std::uint64_t file_bytes, std::uint64_t header_bytes_max)
    : kernels_(&best_kernels()), file_bytes_(file_bytes), header_bytes_max_(header_bytes_max) {}

result<void> delta_stream::feed(std::span<const std::byte> bytes) {
    if (bytes.size() > file_bytes_ - arrived_bytes_)
        return fail(errc::too_large, "more bytes than the " + std::to_string(file_bytes_) + " that were announced");
    arrived_bytes_ += bytes.size();
    if (auto ok = feed_header(bytes); !ok) return ok;
    if (!bytes.empty()) feed_data(bytes);
    return {};
}

result<void> delta_stream::feed_header(std::span<const std::byte>& bytes) {
    while (!bytes.empty()) {
        const std::uint64_t wanted = header_bytes_ ? 8 + *header_bytes_ : 8;
        if (head_.size() == wanted && header_bytes_) return {};
        const auto take = std::min<std::uint64_t>(bytes.size(), wanted - head_.size());
        head_.append(reinterpret_cast<const char*>(bytes.data()), take);
        bytes = bytes.subspan(take);
        if (head_.size() < wanted) return {};
        if (header_bytes_) return open_header();
        std::uint64_t length = 0;
        for (std::size_t i = 0; i < 8; ++i)
            length |= static_cast<std::uint64_t>(static_cast<unsigned char>(head_[i])) << (8 * i);
        if (length > header_bytes_max_) return fail(errc::too_large, "the header is longer than the limit");
        if (length > file_bytes_ - 8) return fail(errc::truncated, "the header is longer than the file");
        header_bytes_ = length;
        if (length == 0) return open_header();
    }
    return {};
}

result<void> delta_stream::open_header() {
    auto header =
        formats::parse_safetensors_header(std::string_view(head_).substr(8), file_bytes_ - 8 - *header_bytes_);
    if (!header) return header.error();
    std::vector<tensor_spec> specs;
    for (const auto& entry : header->entries) specs.push_back(entry.spec);
    auto layout = model_layout::make(std::move(specs));
    if (!layout) return layout.error();
    facts_.header = *std::move(header);
    facts_.layout = *std::move(layout);
    tensor_scans_.resize(facts_.header.entries.size());
    return {};
}

void delta_stream::skip_finished_tensors() {
    while (tensor_ < tensor_scans_.size() && in_tensor_bytes_ == facts_.header.entries[tensor_].size_bytes()) {
        end_block();
        ++tensor_;
        in_tensor_bytes_ = 0;
    }
}

void delta_stream::feed_data(std::span<const std::byte> bytes) {
    const ieee_mode guard;
    while (!bytes.empty()) {
        skip_finished_tensors();
        // The header was checked to cover the file exactly, so a tensor is left for every byte.
        const auto& entry = facts_.header.entries[tensor_];
        const std::size_t element = size_of(entry.spec.dtype);
        const auto take = std::min<std::uint64_t>(bytes.size(), entry.size_bytes() - in_tensor_bytes_);
        auto piece = bytes.first(take);
        bytes = bytes.subspan(take);
        in_tensor_bytes_ += take;
        while (carried_ > 0 && !piece.empty()) {
            carry_[carried_++] = piece.front();
            piece = piece.subspan(1);
            if (carried_ < element) continue;
            feed_elements(std::span(carry_).first(element));
            carried_ = 0;
        }
        const std::size_t whole = piece.size() / element * element;
        feed_elements(piece.first(whole));
        for (const std::byte b : piece.subspan(whole)) carry_[carried_++] = b;
    }
    skip_finished_tensors();
}

void delta_stream::feed_elements(std::span<const std::byte> bytes) {
    const dtype type = facts_.header.entries[tensor_].spec.dtype;
    const std::size_t element = size_of(type);
    while (!bytes.empty()) {
        const auto count = std::min<std::uint64_t>(bytes.size() / element, scan_block_elements - in_block_);
        kernels_->scan(bytes.data(), type, count, in_block_ % scan_lanes, lanes_.data(), &max_bits_);
        in_block_ += count;
        bytes = bytes.subspan(count * element);
        if (in_block_ == scan_block_elements) end_block();
    }
}

void delta_stream::end_block() {
    if (in_block_ == 0) return;
    double sum = lanes_[0];
    for (std::size_t lane = 1; lane < scan_lanes; ++lane) sum += lanes_[lane];
    const bool finite = max_bits_ < 0x7f800000U;
    tensor_scans_[tensor_].append(finite ? delta_scan{true, std::bit_cast<float>(max_bits_), sum}
                                         : delta_scan{false, 0.0F, 0.0});
    lanes_ = {};
    max_bits_ = 0;
    in_block_ = 0;
}

result<delta_facts> delta_stream::finish() {
    if (arrived_bytes_ < file_bytes_ || !header_bytes_)
        return fail(errc::truncated,
                    std::to_string(arrived_bytes_) + " of " + std::to_string(file_bytes_) + " bytes arrived");
    std::map<std::string_view, std::size_t> by_name;
    for (std::size_t i = 0; i < tensor_scans_.size(); ++i) by_name.emplace(facts_.header.entries[i].spec.name, i);
    for (const auto& [name, index] : by_name) facts_.scan.append(tensor_scans_[index]);  // layout order
    return std::move(facts_);
}

}  // namespace darlcore::host
