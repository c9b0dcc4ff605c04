// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/token_corpus.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "adapters/formats/sha256_stream.hpp"
#include "darlcore/random.hpp"

namespace darlcore::formats {

namespace {

constexpr std::size_t open_files_max = 128;
constexpr std::uint64_t piece_bytes = 256U << 10U;  // stays in the second-level cache
constexpr std::size_t ids_at_once = 8U << 10U;      // as numbers they stay in the first-level cache

// 16-bit ids to numbers, as many as fill whole vectors; gives how many. With the instructions of the processor at hand:
// the baseline's take three times as long.
#if defined(__x86_64__)
__attribute__((target("avx2"))) std::size_t widen_by_vectors(const std::byte* raw, std::span<std::uint32_t> out) {
    std::size_t i = 0;
    for (; i + 16 <= out.size(); i += 16) {
        const __m256i narrow = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(raw + 2 * i));
        const __m256i low = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(narrow));
        const __m256i high = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(narrow, 1));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.data() + i), low);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.data() + i + 8), high);
    }
    return i;
}
std::size_t widen(const std::byte* raw, std::span<std::uint32_t> out) {
    return __builtin_cpu_supports("avx2") ? widen_by_vectors(raw, out) : 0;
}
#else
std::size_t widen(const std::byte*, std::span<std::uint32_t>) { return 0; }
#endif

// Whether the files hold ids as this machine holds numbers of 32 bits.
bool as_numbers(token_dtype dtype) {
    return std::endian::native == std::endian::little && dtype == token_dtype::uint32;
}

// Raw little-endian ids to numbers; raw may be the back of out.
void decode_ids(const std::byte* raw, token_dtype dtype, std::span<std::uint32_t> out) {
    const auto width = static_cast<std::size_t>(width_bytes(dtype));
    for (std::size_t i = dtype == token_dtype::uint16 ? widen(raw, out) : 0; i < out.size(); ++i) {
        std::uint32_t id = 0;
        for (std::size_t b = 0; b < width; ++b) id |= static_cast<std::uint32_t>(raw[width * i + b]) << (8U * b);
        out[i] = id;
    }
}

// Fills `out` with the ids that lie at an offset of a file. Narrow ones are read into the back of the place where they
// belong and widened from the front: no number is written before the bytes under it are used up.
result<void> read_ids(const posix_file& file, std::uint64_t offset_bytes, token_dtype dtype,
                      std::span<std::uint32_t> out) {
    const auto width = static_cast<std::size_t>(width_bytes(dtype));
    while (!out.empty()) {
        const auto part = out.first(std::min(out.size(), ids_at_once));
        const auto raw = std::as_writable_bytes(part).last(part.size() * width);
        if (const auto ok = file.read_at(offset_bytes, raw); !ok) return ok;
        if (!as_numbers(dtype)) decode_ids(raw.data(), dtype, part);
        offset_bytes += raw.size();
        out = out.subspan(part.size());
    }
    return {};
}

bool is_folder(const std::string& path) {
    struct stat info {};
    return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::string folder_of(const std::string& path) {
    const auto slash = path.rfind('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

result<token_corpus> token_corpus::open(const std::string& path) {
    const std::string file = is_folder(path) ? path + "/manifest.json" : path;
    const auto text = read_text_file(file, manifest_bytes_max);
    if (!text) {
        if (text.error().code == errc::not_found)
            return fail(errc::not_found, text.error().context + " (darl tokenize makes one)");
        return text.error();
    }
    auto manifest = parse_manifest(*text);
    if (!manifest)
        return fail(manifest.error().code,
                    file + ": " + manifest.error().context + "; copy the corpus again or make it with darl tokenize");
    token_corpus corpus;
    corpus.folder_ = folder_of(file);
    corpus.manifest_ = *std::move(manifest);
    std::uint64_t end = 0;
    for (const auto& shard : corpus.manifest_.shards) corpus.shard_ends_.push_back(end += shard.windows);
    corpus.cache_->files.resize(corpus.manifest_.shards.size());
    if (const auto ok = corpus.check_shard_sizes(); !ok) return ok.error();
    if (const auto ok = corpus.check_some_ids(); !ok) return ok.error();
    return corpus;
}

result<void> token_corpus::check_shard_sizes() const {
    for (std::size_t s = 0; s < manifest_.shards.size(); ++s) {
        const auto file = posix_file::open_for_reading(shard_path(s));
        if (!file) return file.error();
        const auto size = file->size_bytes();
        if (!size) return size.error();
        const std::uint64_t expected = manifest_.shards[s].bytes;
        if (*size == expected) continue;
        return fail(*size < expected ? errc::truncated : errc::corrupt,
                    file->path() + ": has " + std::to_string(*size) + " bytes, the manifest says " +
                        std::to_string(expected) + "; copy the shard again");
    }
    return {};
}

result<void> token_corpus::check_some_ids() const {
    constexpr std::uint64_t samples = 16;
    if (manifest_.num_windows == 0) return {};
    for (std::uint64_t k = 0; k < samples; ++k) {
        const std::uint64_t last = manifest_.num_windows - 1;
        const std::uint64_t window = k + 1 == samples ? last : last / (samples - 1) * k;
        if (const auto ok = check_ids(window, 1); !ok) return ok;
    }
    return {};
}

result<void> token_corpus::check_ids(std::uint64_t first, std::uint64_t count) const {
    std::vector<std::uint32_t> ids;
    return for_pieces(first, count, [&](const posix_file& file, const piece& p) -> result<void> {
        ids.resize(static_cast<std::size_t>(p.windows * manifest_.window()));
        if (const auto ok = read_ids(file, p.offset_bytes, manifest_.dtype, ids); !ok) return ok;
        const auto bad =
            std::find_if(ids.begin(), ids.end(), [&](std::uint32_t id) { return id >= manifest_.vocab_size; });
        if (bad == ids.end()) return {};
        const std::uint64_t window = p.first + static_cast<std::uint64_t>(bad - ids.begin()) / manifest_.window();
        return fail(errc::corrupt, file.path() + ": window " + std::to_string(window) + " has id " +
                                       std::to_string(*bad) + ", the vocabulary has " +
                                       std::to_string(manifest_.vocab_size) + "; tokenize the text again");
    });
}

std::size_t token_corpus::shard_of(std::uint64_t window) const {
    return static_cast<std::size_t>(std::upper_bound(shard_ends_.begin(), shard_ends_.end(), window) -
                                    shard_ends_.begin());
}

std::string token_corpus::shard_path(std::size_t shard) const { return folder_ + "/" + manifest_.shards[shard].path; }

result<std::shared_ptr<const posix_file>> token_corpus::shard_file(std::size_t shard) const {
    const std::lock_guard lock(cache_->mutex);
    auto& recent = cache_->recent;
    const auto known = std::find(recent.begin(), recent.end(), shard);
    if (known != recent.end()) {
        std::rotate(known, known + 1, recent.end());
        return cache_->files[shard];
    }
    auto opened = posix_file::open_for_reading(shard_path(shard));
    if (!opened) return opened.error();
    if (recent.size() == open_files_max) {
        cache_->files[recent.front()].reset();
        recent.erase(recent.begin());
    }
    cache_->files[shard] = std::make_shared<const posix_file>(*std::move(opened));
    recent.push_back(shard);
    return cache_->files[shard];
}

template <class Use>
result<void> token_corpus::for_pieces(std::uint64_t first, std::uint64_t count, Use&& use) const {
    const std::uint64_t window_bytes = manifest_.window_bytes();
    const std::uint64_t windows_max = std::max<std::uint64_t>(1, piece_bytes / window_bytes);
    for (const std::uint64_t end = first + count; first < end;) {
        const std::size_t shard = shard_of(first);
        const auto file = shard_file(shard);
        if (!file) return file.error();
        const std::uint64_t shard_begin = shard == 0 ? 0 : shard_ends_[shard - 1];
        const std::uint64_t windows = std::min({windows_max, end - first, shard_ends_[shard] - first});
        const auto ok = use(**file, piece{first, windows, (first - shard_begin) * window_bytes});
        if (!ok) return ok;
        first += windows;
    }
    return {};
}

template <class Use>
result<void> token_corpus::for_raw_bytes(std::uint64_t first, std::uint64_t count, Use&& use) const {
    std::vector<std::byte> raw;
    return for_pieces(first, count, [&](const posix_file& file, const piece& p) -> result<void> {
        raw.resize(static_cast<std::size_t>(p.windows * manifest_.window_bytes()));
        if (const auto ok = file.read_at(p.offset_bytes, raw); !ok) return ok;
        use(std::span<const std::byte>(raw));
        return {};
    });
}

result<void> token_corpus::read_windows(std::uint64_t first, std::uint64_t count, std::span<std::uint32_t> out) const {
    DARLCORE_ASSERT(first <= num_windows() && count <= num_windows() - first);
    DARLCORE_ASSERT_CMP(out.size(), ==, count * window());
    return for_pieces(first, count, [&](const posix_file& file, const piece& p) {
        return read_ids(file, p.offset_bytes, manifest_.dtype,
                        out.subspan(static_cast<std::size_t>((p.first - first) * window()),
                                    static_cast<std::size_t>(p.windows * window())));
    });
}

result<void> token_corpus::read_stored(std::uint64_t first, std::uint64_t count, std::span<std::byte> out) const {
    DARLCORE_ASSERT(first <= num_windows() && count <= num_windows() - first);
    DARLCORE_ASSERT_CMP(out.size(), ==, count * manifest_.window_bytes());
    return for_pieces(first, count, [&](const posix_file& file, const piece& p) {
        const std::uint64_t bytes = manifest_.window_bytes();
        return file.read_at(p.offset_bytes, out.subspan(static_cast<std::size_t>((p.first - first) * bytes),
                                                        static_cast<std::size_t>(p.windows * bytes)));
    });
}

result<digest32> token_corpus::leaf_digest(std::uint64_t leaf) const {
    DARLCORE_ASSERT_CMP(leaf, <, corpus_leaf_count(num_windows()));
    const std::uint64_t first = leaf * corpus_leaf_windows;
    blake2b hash(32);
    const auto ok = for_raw_bytes(first, std::min(corpus_leaf_windows, num_windows() - first),
                                  [&](std::span<const std::byte> raw) { hash.update(raw); });
    if (!ok) return ok.error();
    return finish_digest<32>(hash);
}

result<digest32> token_corpus::content() const {
    if (manifest_.corpus_content) return *manifest_.corpus_content;
    std::vector<digest32> leaves;
    for (std::uint64_t leaf = 0; leaf < corpus_leaf_count(num_windows()); ++leaf) {
        const auto digest = leaf_digest(leaf);
        if (!digest) return digest.error();
        leaves.push_back(*digest);
    }
    return corpus_content(leaves);
}

result<void> token_corpus::verify_leaves(std::uint64_t samples, std::uint64_t seed) const {
    const std::uint64_t leaves = manifest_.leaves.size();
    std::set<std::uint64_t> chosen;
    xoshiro256 random(seed);
    if (samples >= leaves) {
        for (std::uint64_t leaf = 0; leaf < leaves; ++leaf) chosen.insert(leaf);
    } else {
        while (chosen.size() < samples) chosen.insert(random.below(leaves));
    }
    for (const std::uint64_t leaf : chosen) {
        const auto digest = leaf_digest(leaf);
        if (!digest) return digest.error();
        if (*digest == manifest_.leaves[static_cast<std::size_t>(leaf)]) continue;
        const std::uint64_t first = leaf * corpus_leaf_windows;
        return fail(errc::corrupt, shard_path(shard_of(first)) + ": windows from " + std::to_string(first) +
                                       " on differ from the manifest (leaf " + std::to_string(leaf) +
                                       "); copy the shards again");
    }
    return {};
}

result<void> token_corpus::check_shard_sums() const {
    std::uint64_t first = 0;
    for (std::size_t s = 0; s < manifest_.shards.size(); ++s) {
        const auto& shard = manifest_.shards[s];
        sha256_stream sum;
        const auto ok = for_raw_bytes(first, shard.windows, [&](std::span<const std::byte> raw) { sum.update(raw); });
        if (!ok) return ok;
        if (!shard.sha256.empty() && sum.finish_hex() != shard.sha256)
            return fail(errc::corrupt, shard_path(s) + ": its sha256 is not the manifest's; copy the shard again");
        first += shard.windows;
    }
    return {};
}

result<void> token_corpus::verify_all() const {
    if (const auto ok = verify_leaves(manifest_.leaves.size(), 0); !ok) return ok;
    if (const auto ok = check_shard_sums(); !ok) return ok;
    return check_ids(0, num_windows());
}

}  // namespace darlcore::formats
