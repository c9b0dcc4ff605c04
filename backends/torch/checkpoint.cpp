// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/checkpoint.hpp"

#include <algorithm>
#include <filesystem>

#include "adapters/formats/posix_file.hpp"
#include "adapters/formats/sha256_stream.hpp"

namespace darlcore::training {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kept = 2;
constexpr std::string_view prefix = "ckpt-";

// Names of all checkpoints, newest first. Sequence numbers are padded, so that names sort as they do.
std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    std::error_code ec;
    for (const auto& entry : fs::directory_iterator(folder, ec)) {
        const fs::path& path = entry.path();
        if (path.extension() == ".json" && path.filename().string().starts_with(prefix))
            names.push_back(path.stem().string());
    }
    std::sort(names.rbegin(), names.rend());
    return names;
}

std::uint64_t next_sequence(const std::string& folder) {
    const auto names = names_in(folder);
    if (names.empty()) return 1;
    return std::strtoull(names.front().c_str() + prefix.size(), nullptr, 10) + 1;
}

std::string name_of(std::uint64_t sequence, const std::string& incarnation) {
    const std::string digits = std::to_string(sequence);
    return std::string(prefix) + std::string(12 - std::min<std::size_t>(12, digits.size()), '0') + digits + "-" +
           incarnation;
}

std::vector<models::parameter_spec> moment_specs(const inner_trainer& trainer) {
    const auto n = static_cast<std::int64_t>(trainer.first_moments().size());
    std::vector<models::parameter_spec> specs{{"exp_avg", {n}, models::init_rule::zeros, 0.0, true}};
    if (!trainer.second_moments().empty()) specs.push_back({"exp_avg_sq", {n}, models::init_rule::zeros, 0.0, true});
    return specs;
}

result<std::string> file_sha256(const std::string& path) {
    auto file = formats::posix_file::open_for_reading(path);
    if (!file) return file.error();
    const auto bytes = file->size_bytes();
    if (!bytes) return bytes.error();
    formats::sha256_stream hash;
    std::vector<std::byte> buffer(std::size_t{1} << 20U);
    for (std::uint64_t at = 0; at < *bytes; at += buffer.size()) {
        const std::span<std::byte> part(buffer.data(), std::min<std::uint64_t>(buffer.size(), *bytes - at));
        if (auto ok = file->read_at(at, part); !ok) return ok.error();
        hash.update(part);
    }
    return hash.finish_hex();
}

result<void> write_durably(const std::string& path, const std::string& text) {
    const std::string staging = formats::staging_name(path);
    auto file = formats::posix_file::create(staging);
    if (!file) return file.error();
    if (auto ok = file->write(std::as_bytes(std::span<const char>(text))); !ok) return ok;
    if (auto ok = file->sync_and_close(); !ok) return ok;
    return formats::publish_file(staging, path);
}

// The JSON goes first: without it the moments are just a file that nobody names.
void remove_checkpoint(const std::string& folder, const std::string& name) {
    std::error_code ignored;
    fs::remove(folder + "/" + name + ".json", ignored);
    fs::remove(folder + "/" + name + ".safetensors", ignored);
}

struct stored {
    checkpoint about;
    std::string run_id, layout_digest, sha256;
};

result<stored> read_stored(const std::string& folder, const std::string& name) {
    const std::string path = folder + "/" + name + ".json";
    auto text = formats::read_text_file(path, std::uint64_t{1} << 26U);
    if (!text) return text.error();
    const auto document = json::parse(*text, json::limits{std::size_t{1} << 26U, 64});
    if (!document) return fail(errc::corrupt, path + ": " + document.error().context);
    const auto text_of = [&](const char* key) -> const std::string* {
        const json::value* v = document->find(key);
        return v == nullptr ? nullptr : v->as_string();
    };
    const auto number_of = [&](const char* key) {
        const json::value* v = document->find(key);
        return v == nullptr ? std::nullopt : v->as_u64();
    };
    const std::string *run = text_of("run_id"), *layout = text_of("layout_digest"), *sha = text_of("moments_sha256"),
                      *incarnation = text_of("incarnation");
    const auto sequence = number_of("sequence"), position = number_of("position"), updates = number_of("updates");
    const json::value* extra = document->find("extra");
    if (run == nullptr || layout == nullptr || sha == nullptr || incarnation == nullptr || !sequence || !position ||
        !updates || extra == nullptr) {
        return fail(errc::corrupt, path + ": a key is missing");
    }
    return stored{{*sequence, *incarnation, *position, *updates, *extra, name}, *run, *layout, *sha};
}

result<void> restore_moments(const std::string& path, const std::string& sha256, std::uint64_t updates,
                             inner_trainer& trainer) {
    const auto actual = file_sha256(path);
    if (!actual) return actual.error();
    if (*actual != sha256)
        return fail(errc::digest_mismatch, path + ": its digest is not the one its checkpoint names");
    auto file = formats::safetensors_reader::open(path);
    if (!file) return file.error();
    const std::size_t n = trainer.first_moments().size();
    std::vector<float> both(n + trainer.second_moments().size());
    if (auto read = models::read_weights(*file, moment_specs(trainer), both); !read) return read.error();
    const std::span<const float> all(both);
    trainer.restore_moments(all.first(n), all.subspan(n), updates);
    return {};
}

}  // namespace

result<checkpoint_store> checkpoint_store::open(std::string folder, std::string run_id, std::string layout_digest,
                                                std::string incarnation) {
    std::error_code ec;
    fs::create_directories(folder, ec);
    if (ec) return fail(errc::io_error, folder + ": cannot be created: " + ec.message());
    checkpoint_store store;
    store.folder_ = std::move(folder);
    store.run_id_ = std::move(run_id);
    store.layout_digest_ = std::move(layout_digest);
    store.incarnation_ = std::move(incarnation);
    return store;
}

result<checkpoint> checkpoint_store::save(const inner_trainer& trainer, const json::value& extra) {
    const std::uint64_t sequence = next_sequence(folder_);
    checkpoint made{sequence,          incarnation_, trainer.position(),
                    trainer.updates(), extra,        name_of(sequence, incarnation_)};
    const std::string base = folder_ + "/" + made.name;
    const std::span<const float> first = trainer.first_moments(), second = trainer.second_moments();
    const auto source = [&](std::uint64_t at, std::span<float> out) {
        for (std::size_t i = 0; i < out.size(); ++i)
            out[i] = at + i < first.size() ? first[at + i] : second[at + i - first.size()];
    };
    const auto moments = models::write_weights(base + ".safetensors", moment_specs(trainer), dtype::f32, {}, source);
    if (!moments) return moments.error();
    const json::value document = json::make_object({{"format", "darl-checkpoint-1"},
                                                    {"run_id", run_id_},
                                                    {"layout_digest", layout_digest_},
                                                    {"incarnation", incarnation_},
                                                    {"sequence", sequence},
                                                    {"position", made.position},
                                                    {"updates", made.updates},
                                                    {"moments_sha256", moments->sha256},
                                                    {"extra", extra}});
    if (auto ok = write_durably(base + ".json", json::dump(document) + "\n"); !ok) {
        remove_checkpoint(folder_, made.name);
        return ok.error();
    }
    std::size_t own = 0;
    for (const std::string& name : names_in(folder_)) {
        if (name.ends_with("-" + incarnation_) && ++own > kept) remove_checkpoint(folder_, name);
    }
    return made;
}

result<std::optional<checkpoint>> checkpoint_store::restore(inner_trainer& trainer,
                                                            std::vector<std::string>& notes) const {
    for (const std::string& name : names_in(folder_)) {
        auto found = read_stored(folder_, name);
        if (!found) {
            notes.push_back(to_text(found.error()));
            continue;
        }
        if (found->run_id != run_id_ || found->layout_digest != layout_digest_) {
            return fail(errc::refused, folder_ + ": checkpoint " + name + " belongs to run '" + found->run_id +
                                           "' with layout " + found->layout_digest + ", this is run '" + run_id_ +
                                           "' with layout " + layout_digest_ + "; --fresh renames the folder aside");
        }
        const auto ok =
            restore_moments(folder_ + "/" + name + ".safetensors", found->sha256, found->about.updates, trainer);
        if (!ok) {
            notes.push_back(to_text(ok.error()));
            continue;
        }
        trainer.set_position(found->about.position);
        return std::optional<checkpoint>(std::move(found->about));
    }
    return std::optional<checkpoint>();
}

std::optional<checkpoint> checkpoint_store::newest(const std::string& folder) {
    for (const std::string& name : names_in(folder))
        if (auto found = read_stored(folder, name)) return std::move(found->about);
    return std::nullopt;
}

void checkpoint_store::prune() const {
    const auto names = names_in(folder_);
    for (std::size_t i = kept; i < names.size(); ++i) remove_checkpoint(folder_, names[i]);
}

result<std::string> checkpoint_store::set_aside(const std::string& folder) {
    for (int i = 1;; ++i) {
        const std::string target = folder + ".aside-" + std::to_string(i);
        std::error_code ec;
        if (fs::exists(target, ec)) continue;
        fs::rename(folder, target, ec);
        if (ec) return fail(errc::io_error, folder + ": cannot be renamed to " + target + ": " + ec.message());
        return target;
    }
}

}  // namespace darlcore::training
