// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/token_writer.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "adapters/formats/posix_file.hpp"
#include "adapters/formats/sha256_stream.hpp"

namespace darlcore::formats {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t buffer_bytes = 1U << 20U;

std::string shard_name(std::size_t index) {
    std::string digits = std::to_string(index);
    return "tokens-" + std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits + ".bin";
}

result<void> check_target(const std::string& folder) {
    std::error_code failure;
    if (!fs::exists(folder, failure)) return {};
    if (fs::is_directory(folder, failure) && fs::is_empty(folder, failure)) return {};
    return fail(errc::already_exists, folder + ": exists and is not an empty folder; give another --out or remove it");
}

result<void> check_settings(const token_writer_settings& s) {
    if (s.seq_len == 0 || s.seq_len > (std::uint64_t{1} << 30U))
        return fail(errc::invalid_argument, "seq_len must be in 1 ... 2^30");
    if (s.vocab_size == 0 || s.vocab_size > (std::uint64_t{1} << 32U))
        return fail(errc::invalid_argument, "vocab_size must be in 1 ... 2^32");
    return {};
}

}  // namespace

struct token_writer::state {
    std::string folder;
    std::string staging;
    token_writer_settings settings;
    token_manifest manifest;
    posix_file shard;
    sha256_stream shard_sum;
    std::optional<blake2b> leaf;
    std::uint64_t leaf_windows = 0;
    std::uint64_t shard_windows_max = 1;
    std::vector<std::uint32_t> partial;  // ids of the window being filled
    std::vector<std::byte> pending;      // encoded whole windows, not yet on disk
    bool published = false;

    state() = default;
    state(const state&) = delete;
    state& operator=(const state&) = delete;
    ~state() {
        if (published || staging.empty()) return;
        std::error_code ignored;
        fs::remove_all(staging, ignored);
    }

    void encode(std::span<const std::uint32_t> ids) {
        for (const std::uint32_t id : ids)
            for (std::uint64_t b = 0; b < width_bytes(manifest.dtype); ++b)
                pending.push_back(static_cast<std::byte>(id >> (8U * b)));
    }

    result<void> open_shard() {
        auto opened = posix_file::create(staging + "/" + shard_name(manifest.shards.size()));
        if (!opened) return opened.error();
        shard = *std::move(opened);
        manifest.shards.push_back({shard_name(manifest.shards.size()), 0, 0, {}});
        return {};
    }

    result<void> flush() {
        if (pending.empty()) return {};
        shard_sum.update(pending);
        const auto ok = shard.write(pending);
        pending.clear();
        return ok;
    }

    result<void> close_shard() {
        if (const auto ok = flush(); !ok) return ok;
        manifest.shards.back().sha256 = shard_sum.finish_hex();
        return shard.sync_and_close();
    }

    void count_in_leaf(std::span<const std::byte> window) {
        if (!leaf) leaf.emplace(32);
        leaf->update(window);
        if (++leaf_windows == corpus_leaf_windows) close_leaf();
    }

    void close_leaf() {
        if (!leaf) return;
        manifest.leaves.push_back(finish_digest<32>(*leaf));
        leaf.reset();
        leaf_windows = 0;
    }

    result<void> add_window() {
        if (!shard.is_open())
            if (const auto ok = open_shard(); !ok) return ok;
        encode(partial);
        partial.clear();
        const auto bytes = static_cast<std::size_t>(manifest.window_bytes());
        count_in_leaf(std::span<const std::byte>(pending).last(bytes));
        auto& entry = manifest.shards.back();
        ++manifest.num_windows;
        ++entry.windows;
        entry.bytes += bytes;
        if (entry.windows == shard_windows_max) return close_shard();
        return pending.size() >= buffer_bytes ? flush() : result<void>{};
    }

    result<void> write_manifest() {
        auto file = posix_file::create(staging + "/manifest.json");
        if (!file) return file.error();
        const std::string text = manifest_text(manifest);
        if (const auto ok = file->write(std::as_bytes(std::span(text))); !ok) return ok;
        if (const auto ok = file->sync_and_close(); !ok) return ok;
        return sync_folder(staging);
    }

    result<void> publish() {
        if (std::rename(staging.c_str(), folder.c_str()) != 0)
            return fail(errno == ENOTEMPTY || errno == EEXIST ? errc::already_exists : errc::io_error,
                        folder + ": cannot take its name: " + std::strerror(errno));
        published = true;
        const auto parent = fs::path(folder).parent_path();
        return sync_folder(parent.empty() ? "." : parent.string());
    }
};

token_writer::token_writer(std::unique_ptr<state> s) : state_(std::move(s)) {}
token_writer::token_writer(token_writer&&) noexcept = default;
token_writer& token_writer::operator=(token_writer&&) noexcept = default;
token_writer::~token_writer() = default;

result<token_writer> token_writer::create(const std::string& folder, const token_writer_settings& settings) {
    if (const auto ok = check_settings(settings); !ok) return ok.error();
    auto s = std::make_unique<state>();
    s->folder = folder;
    while (s->folder.size() > 1 && s->folder.back() == '/') s->folder.pop_back();
    if (const auto ok = check_target(s->folder); !ok) return ok.error();
    s->settings = settings;
    auto& m = s->manifest;
    m.seq_len = settings.seq_len;
    m.vocab_size = settings.vocab_size;
    m.dtype = dtype_for(settings.vocab_size);
    m.tokenizer_name = settings.tokenizer_name;
    m.tokenizer_sha256 = settings.tokenizer_sha256;
    m.source = settings.source;
    m.bos_id = settings.bos_id;
    m.eos_id = settings.eos_id;
    s->shard_windows_max = std::max<std::uint64_t>(1, settings.shard_bytes_max / m.window_bytes());
    std::error_code failure;
    const auto parent = fs::path(s->folder).parent_path();
    if (!parent.empty()) fs::create_directories(parent, failure);
    std::string pattern = s->folder + ".staging-XXXXXX";
    if (failure || ::mkdtemp(pattern.data()) == nullptr)
        return fail(errc::io_error, pattern + ": cannot make a staging folder: " +
                                        (failure ? failure.message() : std::string(std::strerror(errno))));
    s->staging = pattern;
    fs::permissions(s->staging, fs::perms(0755), failure);
    return token_writer(std::move(s));
}

result<void> token_writer::append(std::span<const std::uint32_t> ids) {
    auto& s = *state_;
    const auto window = static_cast<std::size_t>(s.manifest.window());
    for (const std::uint32_t id : ids)
        if (id >= s.manifest.vocab_size)
            return fail(errc::invalid_argument, "id " + std::to_string(id) + " is beyond the vocabulary of " +
                                                    std::to_string(s.manifest.vocab_size));
    while (!ids.empty()) {
        const std::size_t taken = std::min(ids.size(), window - s.partial.size());
        s.partial.insert(s.partial.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(taken));
        ids = ids.subspan(taken);
        if (s.partial.size() < window) break;
        if (const auto ok = s.add_window(); !ok) return ok;
    }
    return {};
}

result<token_writer_summary> token_writer::finish() {
    auto& s = *state_;
    if (s.manifest.num_windows == 0)
        return fail(errc::invalid_argument, "the input has " + std::to_string(s.partial.size()) +
                                                " ids, less than one window of " + std::to_string(s.manifest.window()) +
                                                "; give more text or a shorter --seq-len");
    if (s.shard.is_open())
        if (const auto ok = s.close_shard(); !ok) return ok.error();
    s.close_leaf();
    s.manifest.corpus_content = corpus_content(s.manifest.leaves);
    if (const auto ok = s.write_manifest(); !ok) return ok.error();
    if (const auto ok = s.publish(); !ok) return ok.error();
    return token_writer_summary{s.manifest, s.partial.size()};
}

}  // namespace darlcore::formats
