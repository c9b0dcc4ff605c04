// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/weights_io.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>

#include "adapters/formats/json.hpp"
#include "adapters/formats/posix_file.hpp"
#include "adapters/formats/sha256_stream.hpp"
#include "backends/host/instruction_set.hpp"
#include "backends/host/run_threads.hpp"
#include "backends/torch/init.hpp"
#include "darlcore/digest.hpp"

namespace darlcore::models {
namespace {

namespace fs = std::filesystem;
using formats::safetensors_reader;
using specs = std::vector<parameter_spec>;

constexpr std::uint64_t buffer_elements = std::uint64_t{1} << 20U;
constexpr std::uint64_t read_buffer_elements = 8U << 10U;  // stays in the first-level cache while it is widened
constexpr std::uint64_t part_elements = std::uint64_t{1} << 20U;
constexpr unsigned threads_max = 4;  // memory is the limit: more gain nothing

std::uint64_t total_elements(const specs& all) {
    std::uint64_t n = 0;
    for (const parameter_spec& spec : all) n += static_cast<std::uint64_t>(spec.elements());
    return n;
}

// bf16 to f32 with stores around the caches: a model is larger than they are, and to fetch its lines in order to write
// over them would cost as much as the stores. Gives how many were done; the rest is no whole vector.
#if defined(__x86_64__)
__attribute__((target("avx2"))) std::size_t widen_by_vectors(const std::byte* raw, std::span<float> out) {
    std::size_t i = 0;
    for (; i + 8 <= out.size(); i += 8) {
        const __m128i narrow = _mm_loadu_si128(reinterpret_cast<const __m128i*>(raw + 2 * i));
        const __m256i wide = _mm256_slli_epi32(_mm256_cvtepu16_epi32(narrow), 16);
        _mm256_stream_si256(reinterpret_cast<__m256i*>(out.data() + i), wide);
    }
    _mm_sfence();
    return i;
}
bool has_vectors() { return __builtin_cpu_supports("avx2"); }
#else
std::size_t widen_by_vectors(const std::byte*, std::span<float>) { return 0; }
bool has_vectors() { return false; }
#endif

void widen(const std::byte* raw, dtype type, std::span<float> out) {
    const auto convert = [&](std::size_t first, std::size_t n) {
        host::best_kernels().convert(raw + 2 * first, type, out.data() + first, dtype::f32, n);
    };
    if (type != dtype::bf16 || !has_vectors()) return convert(0, out.size());
    const std::size_t past = reinterpret_cast<std::uintptr_t>(out.data()) / sizeof(float) % 8;
    const std::size_t head = std::min(out.size(), (8 - past) % 8);  // up to a border that such stores need
    convert(0, head);
    const std::size_t done = head + widen_by_vectors(raw + 2 * head, out.subspan(head));
    convert(done, out.size() - done);
}

// A part of a tensor in a file and its place in memory.
struct weights_part {
    const formats::safetensors_entry* entry = nullptr;
    std::uint64_t first = 0;
    std::span<float> out;
};

// f32 goes straight to its place; 16-bit kinds pass through a buffer that stays in the first-level cache.
result<void> read_part(const safetensors_reader& file, const weights_part& part) {
    const dtype type = part.entry->spec.dtype;
    if (type == dtype::f32) return file.read(*part.entry, 4 * part.first, std::as_writable_bytes(part.out));
    alignas(64) std::array<std::byte, 2 * read_buffer_elements> buffer;
    for (std::size_t at = 0; at < part.out.size();) {
        const std::size_t n = std::min<std::size_t>(read_buffer_elements, part.out.size() - at);
        const auto raw = std::span(buffer).first(2 * n);
        if (auto ok = file.read(*part.entry, 2 * (part.first + at), raw); !ok) return ok;
        widen(raw.data(), type, part.out.subspan(at, n));
        at += n;
    }
    return {};
}

// Threads take part after part. Of several errors the one of the first part is told.
result<void> read_parts(const safetensors_reader& file, const std::vector<weights_part>& parts) {
    std::atomic<std::size_t> next{0};
    std::mutex mutex;
    std::size_t failed = parts.size();
    error why;
    const auto threads = std::clamp(std::thread::hardware_concurrency(), 1U, threads_max);
    host::run_on_threads(static_cast<int>(threads), [&] {
        for (std::size_t i = next++; i < parts.size(); i = next++) {
            const auto ok = read_part(file, parts[i]);
            if (ok) continue;
            const std::lock_guard lock(mutex);
            if (i < failed) why = ok.error();
            failed = std::min(failed, i);
            next = parts.size();
        }
    });
    if (failed < parts.size()) return why;
    return {};
}

constexpr const char* no_folder =
    "; give a model folder with config.json and model.safetensors (darl export makes one)";
constexpr const char* missing =
    " is missing, config.json asks for it; export the weights again or take the config.json that belongs to them";

result<void> check_entry(const std::string& file, const formats::safetensors_entry& entry, const parameter_spec& spec) {
    const std::vector<std::uint64_t> wanted(spec.shape.begin(), spec.shape.end());
    if (!enters_merge(entry.spec.dtype)) {
        return fail(errc::layout_mismatch, file + ": tensor '" + spec.name + "' is " +
                                               std::string(word(entry.spec.dtype)) +
                                               "; f32, bf16 or f16 is needed: convert the weights");
    }
    if (entry.spec.shape == wanted) return {};
    const auto text = [](const std::vector<std::uint64_t>& shape) {
        std::string s = "[";
        for (const std::uint64_t extent : shape) s += (s.size() > 1 ? ", " : "") + std::to_string(extent);
        return s + "]";
    };
    return fail(errc::layout_mismatch, file + ": tensor '" + spec.name + "' has shape " + text(entry.spec.shape) +
                                           ", config.json asks for " + text(wanted) +
                                           "; take the config.json that belongs to the weights");
}

// No tensor of the file but those of the specs.
result<void> nothing_else(const safetensors_reader& file, const specs& all, const std::vector<std::size_t>& found) {
    if (found.size() == file.header().entries.size()) return {};
    std::set<std::string> names;
    for (const std::size_t i : found) names.insert(all[i].name);
    for (const formats::safetensors_entry& entry : file.header().entries) {
        if (names.contains(entry.spec.name)) continue;
        return fail(errc::layout_mismatch, file.path() + ": tensor '" + entry.spec.name +
                                               "' is not part of the model of config.json; take the config.json that "
                                               "belongs to the weights");
    }
    return {};
}

result<void> stream_values(formats::safetensors_writer& writer, formats::sha256_stream& digest, dtype type,
                           std::uint64_t first, std::uint64_t end, const flat_source& source) {
    std::vector<float> values(std::min(buffer_elements, end - first));
    std::vector<std::uint16_t> narrow(type == dtype::bf16 ? values.size() : 0);
    for (; first < end; first += values.size()) {
        const std::size_t n = std::min<std::uint64_t>(values.size(), end - first);
        const std::span<float> part(values.data(), n);
        source(first, part);
        std::span<const std::byte> bytes = std::as_bytes(part);
        if (type == dtype::bf16) {
            host::best_kernels().convert(part.data(), dtype::f32, narrow.data(), dtype::bf16, n);
            bytes = std::as_bytes(std::span<const std::uint16_t>(narrow.data(), n));
        }
        digest.update(bytes);
        if (auto ok = writer.write(bytes); !ok) return ok;
    }
    return {};
}

// Tensors [begin, end) of the layout, whose first element is `first` in the flat vector.
result<written_file> write_range(const std::string& path, std::span<const parameter_spec> part, dtype type,
                                 const formats::safetensors_metadata& metadata, std::uint64_t first,
                                 const flat_source& source) {
    const specs range(part.begin(), part.end());
    auto writer = formats::safetensors_writer::create(formats::staging_name(path), file_specs(range, type), metadata);
    if (!writer) return writer.error();
    formats::sha256_stream digest;
    digest.update(std::as_bytes(std::span<const char>(writer->header_text())));
    if (auto ok = stream_values(*writer, digest, type, first, first + total_elements(range), source); !ok)
        return ok.error();
    const std::uint64_t bytes = writer->header_text().size() + writer->data_bytes();
    const std::string staging = writer->path();
    if (auto ok = writer->finish(); !ok) return ok.error();
    if (auto ok = formats::publish_file(staging, path); !ok) return ok.error();
    return written_file{bytes, digest.finish_hex()};
}

result<void> write_text(const fs::path& path, const std::string& text) {
    std::ofstream out(path, std::ios::binary);
    out << text;
    out.flush();
    if (!out) return fail(errc::io_error, path.string() + ": cannot be written");
    return {};
}

// Ends of the shards as indices of tensors: as many tensors as fit, at least one each.
std::vector<std::size_t> shard_ends(const specs& all, std::uint64_t bytes_max) {
    std::vector<std::size_t> ends;
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const std::uint64_t own = 4 * static_cast<std::uint64_t>(all[i].elements());
        if (bytes > 0 && bytes + own > bytes_max) {
            ends.push_back(i);
            bytes = 0;
        }
        bytes += own;
    }
    ends.push_back(all.size());
    return ends;
}

std::string shard_name(std::size_t index, std::size_t count) {
    const auto five = [](std::size_t n) {
        std::string s = std::to_string(n);
        return s.size() < 5 ? std::string(5 - s.size(), '0') + s : s;
    };
    return "model-" + five(index + 1) + "-of-" + five(count) + ".safetensors";
}

result<written_file> write_shards(const fs::path& folder, const specs& all, const std::vector<std::size_t>& ends,
                                  const flat_source& source) {
    json::value map;
    written_file last;
    std::uint64_t first = 0, bytes = 0;
    std::size_t begin = 0;
    for (std::size_t s = 0; s < ends.size(); ++s) {
        const std::string name = shard_name(s, ends.size());
        const std::span<const parameter_spec> part(all.data() + begin, ends[s] - begin);
        auto written = write_range((folder / name).string(), part, dtype::f32, {}, first, source);
        if (!written) return written.error();
        last = *written;
        bytes += written->bytes;
        for (const parameter_spec& spec : part) {
            map.set(spec.name, name);
            first += static_cast<std::uint64_t>(spec.elements());
        }
        begin = ends[s];
    }
    json::value index = json::make_object(
        {{"metadata", json::make_object({{"total_size", 4 * total_elements(all)}})}, {"weight_map", map}});
    if (auto ok = write_text(folder / "model.safetensors.index.json", json::dump(index)); !ok) return ok.error();
    return written_file{bytes, last.sha256};
}

result<written_file> fill_folder(const fs::path& folder, const model_config& config, const flat_source& source,
                                 std::uint64_t shard_bytes_max) {
    const specs all = parameter_specs(config);
    const std::vector<std::size_t> ends = shard_ends(all, shard_bytes_max);
    auto written = ends.size() == 1
                       ? write_range((folder / "model.safetensors").string(), all, dtype::f32, {}, 0, source)
                       : write_shards(folder, all, ends, source);
    if (!written) return written;
    if (auto ok = write_text(folder / "config.json", config_text(config) + "\n"); !ok) return ok.error();
    return written;
}

result<void> all_found(const std::string& what, const specs& all, const std::set<std::size_t>& found) {
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (!found.contains(i)) return fail(errc::layout_mismatch, what + ": tensor '" + all[i].name + "'" + missing);
    }
    return {};
}

result<std::set<std::string>> shard_files(const std::string& index_path) {
    auto text = formats::read_text_file(index_path, std::uint64_t{1} << 28U);
    if (!text) return text.error();
    const auto index = json::parse(*text, json::limits{std::size_t{1} << 28U, 32});
    if (!index) return fail(index.error().code, index_path + ": " + index.error().context);
    const json::value* map = index->find("weight_map");
    if (map == nullptr || map->as_object() == nullptr)
        return fail(errc::parse_error, index_path + ": key 'weight_map' is missing");
    std::set<std::string> names;
    for (const auto& [tensor, file] : *map->as_object()) {
        const std::string* name = file.as_string();
        if (name == nullptr || name->find('/') != std::string::npos || name->starts_with(".")) {
            return fail(errc::parse_error, index_path + ": tensor '" + tensor + "' must name a file of this folder");
        }
        names.insert(*name);
    }
    return names;
}

}  // namespace

std::vector<tensor_spec> file_specs(const specs& all, dtype type) {
    std::vector<tensor_spec> out;
    for (const parameter_spec& spec : all)
        out.push_back({spec.name, type, std::vector<std::uint64_t>(spec.shape.begin(), spec.shape.end())});
    return out;
}

std::string layout_digest(const specs& all) {
    blake2b hash(16);
    for (const parameter_spec& spec : all) {
        std::string line = spec.name + ":f32:";
        for (std::size_t i = 0; i < spec.shape.size(); ++i) line += (i > 0 ? "," : "") + std::to_string(spec.shape[i]);
        hash.update(line + "\n");
    }
    return to_hex(finish_digest<16>(hash));
}

result<std::vector<std::size_t>> read_weights(const safetensors_reader& file, const specs& all, std::span<float> flat,
                                              bool partial) {
    DARLCORE_ASSERT_CMP(flat.size(), ==, total_elements(all));
    std::vector<std::size_t> found;
    std::vector<weights_part> parts;
    std::uint64_t first = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const auto n = static_cast<std::uint64_t>(all[i].elements());
        const formats::safetensors_entry* entry = file.header().find(all[i].name);
        if (entry != nullptr) {
            if (auto ok = check_entry(file.path(), *entry, all[i]); !ok) return ok.error();
            for (std::uint64_t at = 0; at < n; at += part_elements)
                parts.push_back({entry, at, flat.subspan(first + at, std::min(part_elements, n - at))});
            found.push_back(i);
        } else if (!partial) {
            return fail(errc::layout_mismatch, file.path() + ": tensor '" + all[i].name + "'" + missing);
        }
        first += n;
    }
    if (auto ok = nothing_else(file, all, found); !ok) return ok.error();
    if (auto ok = read_parts(file, parts); !ok) return ok.error();
    return found;
}

result<written_file> write_weights(const std::string& path, const specs& all, dtype type,
                                   const formats::safetensors_metadata& metadata, const flat_source& source) {
    DARLCORE_ASSERT(type == dtype::f32 || type == dtype::bf16);
    return write_range(path, all, type, metadata, 0, source);
}

result<written_file> write_model_folder(const std::string& folder, const model_config& config,
                                        const flat_source& source, std::uint64_t shard_bytes_max) {
    std::error_code ec;
    if (fs::exists(folder, ec) && !fs::is_empty(folder, ec)) {
        return fail(errc::already_exists, folder + ": exists and is not empty; choose another --out or remove it");
    }
    const fs::path target = fs::absolute(folder, ec).lexically_normal();
    const std::string staging =
        formats::staging_name(target.has_filename() ? target.string() : target.parent_path().string());
    if (!fs::create_directories(staging, ec))
        return fail(errc::io_error, staging + ": cannot be created: " + ec.message());
    auto written = fill_folder(staging, config, source, shard_bytes_max);
    if (written) {
        fs::remove(target, ec);  // an empty folder that was there
        fs::rename(staging, target.has_filename() ? target : target.parent_path(), ec);
        if (!ec) return written;
        written = fail(errc::io_error, folder + ": cannot be created: " + ec.message());
    }
    std::error_code ignored;
    fs::remove_all(staging, ignored);
    return written;
}

result<model_config> read_folder_config(const std::string& folder) {
    const std::string path = folder + "/config.json";
    auto text = formats::read_text_file(path, std::uint64_t{1} << 24U);
    if (!text) return fail(text.error().code, text.error().context + no_folder);
    return parse_config(*text, path);
}

result<void> read_folder_weights(const std::string& folder, const specs& all, std::span<float> flat) {
    std::error_code ec;
    std::set<std::string> files{"model.safetensors"};
    const std::string index = folder + "/model.safetensors.index.json";
    const bool sharded = !fs::exists(folder + "/model.safetensors", ec) && fs::exists(index, ec);
    if (sharded) {
        auto names = shard_files(index);
        if (!names) return names.error();
        files = std::move(*names);
    }
    std::set<std::size_t> found;
    for (const std::string& name : files) {
        auto file = safetensors_reader::open(folder + "/" + name);
        if (!file && file.error().code == errc::not_found)
            return fail(errc::not_found, file.error().context + no_folder);
        if (!file) return file.error();
        auto part = read_weights(*file, all, flat, sharded);
        if (!part) return part.error();
        found.insert(part->begin(), part->end());
    }
    return all_found(folder, all, found);
}

result<model_config> config_of_weights(const safetensors_reader& file) {
    const auto& header = file.header();
    const auto* rows = header.find("model.embed_tokens.weight");
    const bool table = rows != nullptr && rows->spec.shape.size() == 2;
    const auto holds = [&](const parameter_spec& p) {
        const auto* entry = header.find(p.name);
        return entry != nullptr && std::ranges::equal(entry->spec.shape, p.shape,
                                                      [](auto a, auto b) { return static_cast<std::int64_t>(a) == b; });
    };
    for (const std::string& name : flavour_names()) {
        if (!table) break;
        const auto config = flavour(name, static_cast<std::int64_t>(rows->spec.shape[0]));
        if (!config) continue;
        const auto all = parameter_specs(*config);
        if (all.size() == header.entries.size() && std::all_of(all.begin(), all.end(), holds)) return *config;
    }
    return fail(errc::not_found, file.path() +
                                     ": its tensors are those of no built-in flavour; give the geometry with "
                                     "--config-json");
}

result<written_file> export_initial(const std::string& folder, const model_config& config, std::int64_t seed) {
    if (auto ok = validate(config); !ok) return ok.error();
    const std::vector<parameter_spec> specs = parameter_specs(config);
    // One tensor at a time; the source is asked front to back.
    std::size_t next = 0;
    std::vector<float> current;
    std::size_t used = 0;
    const auto source = [&](std::uint64_t, std::span<float> out) {
        for (float& x : out) {
            while (used == current.size()) {
                current.resize(static_cast<std::size_t>(specs[next].elements()));
                initialise(specs[next++], seed, current);
                used = 0;
            }
            x = current[used++];
        }
    };
    return write_model_folder(folder, config, source);
}

}  // namespace darlcore::models
