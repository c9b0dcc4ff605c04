// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/image_source.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "adapters/formats/posix_file.hpp"
#include "backends/torch/init.hpp"

namespace darlcore::training {
namespace {

constexpr std::size_t side = 32, grey_side = 28, plane = side * side;
constexpr unsigned classes = 10;

class image_records final : public window_source {
public:
    explicit image_records(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
    [[nodiscard]] std::uint64_t num_windows() const override { return bytes_.size() / image_record_bytes; }
    [[nodiscard]] std::size_t window_bytes() const override { return image_record_bytes; }
    [[nodiscard]] result<void> read(std::uint64_t window, std::span<std::byte> out) const override {
        DARLCORE_ASSERT(window < num_windows() && out.size() == image_record_bytes);
        std::memcpy(out.data(), bytes_.data() + window * image_record_bytes, image_record_bytes);
        return {};
    }

private:
    std::vector<std::byte> bytes_;
};

result<void> append_records(const std::string& path, std::vector<std::byte>& all) {
    auto file = formats::posix_file::open_for_reading(path);
    if (!file) return file.error();
    const auto bytes = file->size_bytes();
    if (!bytes) return bytes.error();
    if (*bytes == 0 || *bytes % image_record_bytes != 0)
        return fail(errc::truncated, path + ": its size is no multiple of 3073, the size of a CIFAR-10 record");
    const std::size_t first = all.size();
    all.resize(first + *bytes);
    if (auto ok = file->read_at(0, std::span(all).subspan(first)); !ok) return ok;
    for (std::size_t at = first; at < all.size(); at += image_record_bytes) {
        if (static_cast<unsigned>(all[at]) >= classes)
            return fail(errc::corrupt, path + ": record " + std::to_string((at - first) / image_record_bytes) +
                                           " has a label beyond 9");
    }
    return {};
}

// zlib's file functions read plain files as they are.
result<std::vector<std::uint8_t>> unpacked(const std::string& path) {
    gzFile file = ::gzopen(path.c_str(), "rb");
    if (file == nullptr) return fail(errc::not_found, path + ": cannot be opened");
    std::vector<std::uint8_t> all, buffer(std::size_t{1} << 20U);
    int n = 0;
    while ((n = ::gzread(file, buffer.data(), static_cast<unsigned>(buffer.size()))) > 0)
        all.insert(all.end(), buffer.begin(), buffer.begin() + n);
    const bool whole = n == 0 && ::gzclose(file) == Z_OK;
    if (!whole) return fail(errc::truncated, path + ": ends early or is damaged");
    return all;
}

std::uint32_t big_endian(const std::vector<std::uint8_t>& bytes, std::size_t at) {
    return (std::uint32_t{bytes[at]} << 24U) | (std::uint32_t{bytes[at + 1]} << 16U) |
           (std::uint32_t{bytes[at + 2]} << 8U) | std::uint32_t{bytes[at + 3]};
}

// The grey picture in the middle of each plane.
void put_grey(const std::uint8_t* grey, std::byte* planes) {
    constexpr std::size_t border = (side - grey_side) / 2;
    for (std::size_t y = 0; y < grey_side; ++y)
        std::memcpy(planes + (y + border) * side + border, grey + y * grey_side, grey_side);
    std::memcpy(planes + plane, planes, plane);
    std::memcpy(planes + 2 * plane, planes, plane);
}

result<void> check_idx(const std::string& path, const std::vector<std::uint8_t>& bytes, std::uint32_t magic,
                       std::size_t head, std::size_t item) {
    if (bytes.size() < head || big_endian(bytes, 0) != magic)
        return fail(errc::parse_error, path + ": is no IDX file of that kind");
    if (bytes.size() != head + std::size_t{big_endian(bytes, 4)} * item)
        return fail(errc::truncated, path + ": has not the size that its header says");
    return {};
}

}  // namespace

result<std::unique_ptr<window_source>> cifar10_source(const std::vector<std::string>& files) {
    std::vector<std::byte> all;
    for (const std::string& path : files)
        if (auto ok = append_records(path, all); !ok) return ok.error();
    if (all.empty()) return fail(errc::not_found, "images: no file was given");
    return std::unique_ptr<window_source>(std::make_unique<image_records>(std::move(all)));
}

result<std::unique_ptr<window_source>> idx_source(const std::string& images, const std::string& labels,
                                                  std::uint64_t count) {
    const auto pixels = unpacked(images);
    if (!pixels) return pixels.error();
    const auto names = unpacked(labels);
    if (!names) return names.error();
    if (auto ok = check_idx(images, *pixels, 0x803, 16, grey_side * grey_side); !ok) return ok.error();
    if (auto ok = check_idx(labels, *names, 0x801, 8, 1); !ok) return ok.error();
    if (big_endian(*pixels, 8) != grey_side || big_endian(*pixels, 12) != grey_side)
        return fail(errc::parse_error, images + ": its images are not 28 x 28");
    const std::size_t there = big_endian(*pixels, 4);
    if (there != big_endian(*names, 4))
        return fail(errc::corrupt, labels + ": has not as many labels as there are images");
    if (count > there)
        return fail(errc::invalid_argument,
                    images + ": has " + std::to_string(there) + " images, not " + std::to_string(count));
    if (count == 0) count = there;
    std::vector<std::byte> all(count * image_record_bytes);
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint8_t label = (*names)[8 + i];
        if (label >= classes) return fail(errc::corrupt, labels + ": label " + std::to_string(i) + " is beyond 9");
        all[i * image_record_bytes] = std::byte{label};
        put_grey(pixels->data() + 16 + i * grey_side * grey_side, all.data() + i * image_record_bytes + 1);
    }
    return std::unique_ptr<window_source>(std::make_unique<image_records>(std::move(all)));
}

std::unique_ptr<window_source> pattern_source(std::uint64_t images, std::int64_t seed) {
    models::text_random patterns("darl-patterns"), noise("darl-images:" + std::to_string(seed));
    std::vector<std::vector<double>> centre(classes, std::vector<double>(3 * plane));
    for (auto& c : centre) {
        // Coarse squares, so that a few convolutions can tell them apart.
        double cells[3][4][4];
        for (auto& p : cells)
            for (auto& row : p)
                for (double& x : row) x = 40.0 + 175.0 * patterns.uniform();
        for (std::size_t i = 0; i < c.size(); ++i) c[i] = cells[i / plane][i % plane / side / 8][i % side / 8];
    }
    std::vector<std::byte> all(images * image_record_bytes);
    for (std::uint64_t i = 0; i < images; ++i) {
        std::byte* record = all.data() + i * image_record_bytes;
        const auto label = static_cast<unsigned>(i % classes);
        record[0] = static_cast<std::byte>(label);
        for (std::size_t k = 0; k < 3 * plane; ++k)
            record[1 + k] = static_cast<std::byte>(
                static_cast<int>(std::clamp(centre[label][k] + 80.0 * (noise.uniform() - 0.5), 0.0, 255.0)));
    }
    return std::make_unique<image_records>(std::move(all));
}

}  // namespace darlcore::training
