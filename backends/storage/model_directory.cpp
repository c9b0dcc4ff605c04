// SPDX-License-Identifier: Apache-2.0
#include "backends/storage/model_directory.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "adapters/formats/json.hpp"
#include "backends/host/file_digest.hpp"
#include "darlcore/hex.hpp"

namespace darlcore::storage {
namespace {

constexpr std::string_view prefix = "gen-";
constexpr std::size_t digits = 12;
constexpr std::uint64_t meta_bytes_max = std::uint64_t{16} << 20U;
constexpr const char* way_out =
    "; rebuild the generation from the kept contributions of its merge, or roll back with `darl journal salvage "
    "--generation`";

struct named_file {
    const char* name;
    round::blob_ref round::model_files::*ref;
    bool in_parts;  ///< of its digest
};
constexpr std::array<named_file, 4> files_of_a_generation{{{global_file, &round::model_files::global, true},
                                                           {velocity_file, &round::model_files::velocity, true},
                                                           {wire_file, &round::model_files::wire, false},
                                                           {meta_file, &round::model_files::meta, false}}};

}  // namespace

std::string generation_name(std::uint64_t generation) {
    std::string number = std::to_string(generation);
    if (number.size() < digits) number.insert(0, digits - number.size(), '0');
    return std::string(prefix) + number;
}

std::optional<std::uint64_t> parse_generation_name(std::string_view name) {
    if (!name.starts_with(prefix) || name.size() < prefix.size() + digits || name.size() > prefix.size() + 19)
        return std::nullopt;
    std::uint64_t number = 0;
    for (const char c : name.substr(prefix.size())) {
        if (c < '0' || c > '9') return std::nullopt;
        number = number * 10 + static_cast<std::uint64_t>(c - '0');
    }
    return generation_name(number) == name ? std::optional(number) : std::nullopt;
}

result<model_directory> model_directory::open(file_system& fs, const std::string& state_path,
                                              const model_mutants& mutants, int threads) {
    model_directory model(fs, join(state_path, "model"), mutants, threads);
    if (const auto made = ensure_directory(fs, model.root_); !made) return made.error();
    if (const auto made = ensure_directory(fs, join(model.root_, "staging")); !made) return made.error();
    return model;
}

std::string model_directory::path_of(std::uint64_t generation) const {
    return join(root_, generation_name(generation));
}

std::string model_directory::staging_path(std::uint64_t generation) const {
    return join(join(root_, "staging"), generation_name(generation));
}

result<void> model_directory::sync_dir(const std::string& path) {
    if (mutants_.skip_dir_fsync) return {};
    return fs_->sync_dir(path);
}

result<std::string> model_directory::begin(std::uint64_t generation) {
    const std::string path = staging_path(generation);
    if (const auto removed = remove_tree(*fs_, path); !removed) return removed.error();
    if (const auto made = fs_->mkdir(path); !made) return made.error();
    return path;
}

/// Gives the size.
result<round::blob_ref> model_directory::sync(const std::string& path) {
    auto opened = fs_->open(path, open_mode::read_write);
    if (!opened) return opened.error();
    if (!mutants_.skip_file_fsync)
        if (const auto synced = (*opened)->fsync(); !synced) return synced.error();
    const auto size = (*opened)->size_bytes();
    if (!size) return size.error();
    return round::blob_ref{{}, *size};
}

/// Fills in the digests of these files; their sizes are there.
result<void> model_directory::digest(const std::string& folder, round::model_files& files,
                                     const std::vector<std::string_view>& names) {
    std::vector<std::unique_ptr<file>> opened;
    std::vector<host::digest_job> jobs;
    std::vector<round::blob_ref*> wanted;
    for (const auto& [name, ref, in_parts] : files_of_a_generation) {
        if (std::find(names.begin(), names.end(), name) == names.end()) continue;
        auto& of = files.*ref;
        const std::string path = join(folder, name);
        auto made = fs_->open(path, open_mode::read);
        if (!made) return made.error();
        opened.push_back(*std::move(made));
        const auto read = [from = opened.back().get(), path](std::uint64_t at, std::span<std::byte> out) {
            const auto into = std::span(reinterpret_cast<char*>(out.data()), out.size());
            const auto got = pread_all(*from, into, at);
            if (!got) return result<void>(got.error());
            if (*got == out.size()) return result<void>();
            return result<void>(fail(errc::short_read, path + ": ends at byte " + std::to_string(at + *got)));
        };
        jobs.push_back({of.bytes, read, in_parts});
        wanted.push_back(&of);
    }
    const auto digests = host::digest_files(jobs, threads_);
    if (!digests) return digests.error();
    for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i]->sha256 = darlcore::to_hex((*digests)[i]);
    return {};
}

result<round::model_files> model_directory::seal(std::uint64_t generation, const round::model_files& known) {
    const std::string staged = staging_path(generation);
    round::model_files files;
    std::vector<std::string_view> unknown;
    for (const auto& [name, ref, in_parts] : files_of_a_generation) {
        const std::string path = join(staged, name);
        auto found = sync(path);
        // only generation 0 has no velocity, and its meta says so
        if (!found && name == velocity_file && found.error().code == errc::not_found) continue;
        if (!found) return found.error();
        const auto& told = known.*ref;
        if (!told.sha256.empty() && told.bytes != found->bytes)
            return fail(errc::corrupt, path + ": has " + std::to_string(found->bytes) + " bytes, " +
                                           std::to_string(told.bytes) + " were written");
        files.*ref = {told.sha256, found->bytes};
        if (told.sha256.empty()) unknown.emplace_back(name);
    }
    if (const auto ok = digest(staged, files, unknown); !ok) return ok.error();
    if (const auto synced = sync_dir(staged); !synced) return synced.error();
    if (const auto removed = retire(generation); !removed) return removed.error();
    if (const auto renamed = fs_->rename(staged, path_of(generation)); !renamed) return renamed.error();
    if (const auto synced = sync_dir(root_); !synced) return synced.error();
    return files;
}

result<round::model_files> model_directory::adopt(const std::string& folder, std::uint64_t generation,
                                                  const std::optional<std::string>& meta) {
    const auto staged = begin(generation);
    if (!staged) return staged.error();
    for (const auto& [name, ref, in_parts] : files_of_a_generation) {
        const std::string to = join(*staged, name);
        const bool own = meta && std::string_view(name) == meta_file;
        const auto taken = own ? replace_file(*fs_, to, *meta) : link_or_copy(*fs_, join(folder, name), to);
        if (!taken && (name != velocity_file || taken.error().code != errc::not_found)) return taken.error();
    }
    return seal(generation);
}

// Takes a directory's name away first, then its files: half a generation never has a name.
result<void> model_directory::retire(std::uint64_t generation) {
    const std::string aside = join(join(root_, "staging"), "old-" + generation_name(generation));
    if (const auto removed = remove_tree(*fs_, aside); !removed) return removed;
    const auto renamed = fs_->rename(path_of(generation), aside);
    if (!renamed) return renamed.error().code == errc::not_found ? result<void>{} : renamed;
    if (const auto synced = fs_->sync_dir(join(root_, "staging")); !synced) return synced;
    if (const auto synced = fs_->sync_dir(root_); !synced) return synced;
    return remove_tree(*fs_, aside);
}

result<void> model_directory::point(std::uint64_t generation) {
    return replace_file(*fs_, join(root_, "CURRENT"), generation_name(generation) + "\n");
}

result<std::optional<std::uint64_t>> model_directory::current() {
    const std::string path = join(root_, "CURRENT");
    const auto text = read_file(*fs_, path, 4096);
    if (!text) {
        if (text.error().code == errc::not_found) return std::optional<std::uint64_t>();
        return text.error();
    }
    const auto generation = text->ends_with('\n')
                                ? parse_generation_name(std::string_view(*text).substr(0, text->size() - 1))
                                : std::nullopt;
    if (!generation)
        return fail(errc::corrupt,
                    path + " offset 0: names no generation; the journal knows the right one: remove the file");
    return generation;
}

result<std::vector<std::uint64_t>> model_directory::list() {
    const auto entries = fs_->list(root_);
    if (!entries) return entries.error();
    std::vector<std::uint64_t> found;
    for (const auto& entry : *entries)
        if (const auto generation = parse_generation_name(entry.name)) found.push_back(*generation);
    return found;
}

result<void> model_directory::check_size(const std::string& path, const round::blob_ref& expected) {
    auto opened = fs_->open(path, open_mode::read);
    if (!opened) {
        if (opened.error().code != errc::not_found) return opened.error();
        return fail(errc::refused, path + " is missing although the journal refers to it" + way_out);
    }
    const auto size = (*opened)->size_bytes();
    if (!size) return size.error();
    if (*size != expected.bytes)
        return fail(errc::corrupt, path + " offset " + std::to_string(std::min(*size, expected.bytes)) + ": has " +
                                       std::to_string(*size) + " bytes, the journal says " +
                                       std::to_string(expected.bytes) + way_out);
    return {};
}

result<void> model_directory::check_run_id(const model_in_journal& journal) {
    if (journal.run_id.empty()) return {};
    const std::string path = join(path_of(*journal.generation), meta_file);
    const auto text = read_file(*fs_, path, meta_bytes_max);
    if (!text) return text.error();
    const auto document = json::parse(*text, {meta_bytes_max, 32});
    if (!document) return fail(errc::corrupt, path + " offset 0: " + document.error().context);
    const auto* member = document->find("run_id");
    const auto* found = member != nullptr ? member->as_string() : nullptr;
    if (found != nullptr && *found == journal.run_id) return {};
    return fail(errc::refused, path + " belongs to run " + (found != nullptr ? *found : std::string("(none)")) +
                                   ", the journal to run " + journal.run_id + ": two directories were mixed");
}

result<void> model_directory::check_files(const model_in_journal& journal, bool check_digests) {
    const std::string folder = path_of(*journal.generation);
    round::model_files found;
    std::vector<std::string_view> names;
    for (const auto& [name, ref, in_parts] : files_of_a_generation) {
        const auto& expected = journal.files.*ref;
        if (expected.sha256.empty()) continue;  // generation 0 has no velocity
        if (const auto good = check_size(join(folder, name), expected); !good) return good;
        found.*ref = {{}, expected.bytes};
        names.emplace_back(name);
    }
    if (check_digests && !mutants_.skip_digests) {
        if (const auto ok = digest(folder, found, names); !ok) return ok;
        for (const auto& [name, ref, in_parts] : files_of_a_generation)
            if ((found.*ref).sha256 != (journal.files.*ref).sha256)
                return fail(errc::corrupt,
                            join(folder, name) + " offset 0: its digest is not the one in the journal" + way_out);
    }
    return check_run_id(journal);
}

result<model_recovery> model_directory::recover(const model_in_journal& journal, bool check_digests) {
    model_recovery done;
    const auto pointed = current();
    if (!pointed) return pointed.error();
    const auto found = list();
    if (!found) return found.error();
    const std::string in_journal =
        journal.generation ? "generation " + std::to_string(*journal.generation) : std::string("no generation");
    if (!journal.has_journal && (*pointed || !found->empty()))
        return fail(errc::refused, root_ +
                                       " holds a model but there is no journal: resetting one of the two is silent "
                                       "corruption; restore the journal, or start over with --fresh");
    if (!mutants_.skip_ahead_check && *pointed && (!journal.generation || **pointed > *journal.generation))
        return fail(errc::refused, "the model is ahead of the ledger: " + join(root_, "CURRENT") + " says generation " +
                                       std::to_string(**pointed) + ", the journal " + in_journal +
                                       "; usual cause: one of the two was restored from a backup");
    if (journal.generation)
        if (const auto good = check_files(journal, check_digests); !good) return good.error();
    if (const auto cleaned = remove_tree(*fs_, join(root_, "staging")); !cleaned) return cleaned.error();
    if (const auto made = ensure_directory(*fs_, join(root_, "staging")); !made) return made.error();
    for (const std::uint64_t generation : *found) {
        if (journal.generation && generation <= *journal.generation) continue;
        if (const auto removed = retire(generation); !removed) return removed.error();
        done.removed.push_back(generation);
    }
    if (journal.generation && *pointed != journal.generation) {
        if (const auto rolled = point(*journal.generation); !rolled) return rolled.error();
        done.rolled_forward = true;
    }
    return done;
}

result<std::vector<std::uint64_t>> model_directory::collect(std::uint64_t oldest_kept,
                                                            const std::set<std::uint64_t>& pinned) {
    const auto found = list();
    if (!found) return found.error();
    std::vector<std::uint64_t> gone;
    for (const std::uint64_t generation : *found) {
        if (generation >= oldest_kept || pinned.contains(generation)) continue;
        if (const auto removed = retire(generation); !removed) return removed.error();
        gone.push_back(generation);
    }
    return gone;
}

}  // namespace darlcore::storage
