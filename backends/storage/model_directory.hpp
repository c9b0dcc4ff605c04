// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "backends/storage/file_system.hpp"
#include "darlcore/error.hpp"
#include "darlcore/round/types.hpp"

namespace darlcore::storage {

// Names of the files of a generation.
inline constexpr const char* global_file = "global.safetensors";
inline constexpr const char* velocity_file = "velocity.safetensors";
inline constexpr const char* wire_file = "wire.safetensors";
inline constexpr const char* meta_file = "meta.json";

std::string generation_name(std::uint64_t generation);
std::optional<std::uint64_t> parse_generation_name(std::string_view name);

/// Mechanisms that tests take away.
struct model_mutants {
    bool skip_file_fsync = false;
    bool skip_dir_fsync = false;
    bool skip_ahead_check = false;
    bool skip_digests = false;
};

/// What the journal says about the model.
struct model_in_journal {
    /// False: the run is new, nothing was ever written to its journal.
    bool has_journal = true;
    /// Generation of the last merge or of the initialisation; none while there is no model.
    std::optional<std::uint64_t> generation;
    round::model_files files;
    /// Compared with `run_id` of meta.json; empty: not compared.
    std::string run_id;
};

struct model_recovery {
    /// CURRENT was behind the journal and is now rolled forward.
    bool rolled_forward = false;
    /// Directories that no journal record refers to, removed.
    std::vector<std::uint64_t> removed;
};

/// The generations of the global model under `model/` of a state directory. A generation is a directory that never
/// changes once it has its name; the record of the journal decides which one is current, CURRENT repeats it for
/// readers. Digests: global and velocity by their parts of 16 MiB (backends/host/file_digest.hpp), the others of their
/// bytes. Order of a merge: `begin`, write the files, `seal`, append the record and commit it (this is the commit
/// point), `point`, publish the wire blob. Thread-safety: none; begin and seal may run on a merge thread while nobody
/// else uses the object. Source: docs/storage.md.
class model_directory {
public:
    /// `threads` digest files; more than one only where files may be read from several threads at once.
    static result<model_directory> open(file_system& fs, const std::string& state_path,
                                        const model_mutants& mutants = {}, int threads = 1);

    /// Empties and makes `model/staging/gen-...`; gives its path.
    result<std::string> begin(std::uint64_t generation);
    /// Syncs the files and the directory and gives it its name. Gives digest and size of each file (velocity: empty
    /// when there is none); those that `known` tells are taken from there. A directory of that name without a record
    /// in the journal is a leftover of a crash and replaced. Errors: errc::not_found (a file is missing),
    /// errc::corrupt (another size than the known one), errc::io_error, errc::no_space.
    result<round::model_files> seal(std::uint64_t generation, const round::model_files& known = {});
    /// Takes over the files in `folder`, a generation of another model directory, and seals them as `generation`.
    /// `meta`: its meta.json, in place of the one that is there.
    result<round::model_files> adopt(const std::string& folder, std::uint64_t generation,
                                     const std::optional<std::string>& meta = std::nullopt);
    /// Rolls CURRENT forward.
    result<void> point(std::uint64_t generation);
    /// What CURRENT says; none when there is no such file. Errors: errc::corrupt.
    result<std::optional<std::uint64_t>> current();

    /// Compares directories and CURRENT with the journal, repairs what a crash may leave, refuses the rest.
    /// Errors: errc::refused or errc::corrupt, with a sentence that names both sides and the fix.
    result<model_recovery> recover(const model_in_journal& journal, bool check_digests = true);

    /// Removes generations below `oldest_kept` that are not pinned.
    result<std::vector<std::uint64_t>> collect(std::uint64_t oldest_kept, const std::set<std::uint64_t>& pinned);

    [[nodiscard]] std::string path_of(std::uint64_t generation) const;
    [[nodiscard]] std::string staging_path(std::uint64_t generation) const;
    /// Generations that have a directory, ascending.
    result<std::vector<std::uint64_t>> list();

private:
    model_directory(file_system& fs, std::string root, const model_mutants& mutants, int threads)
        : fs_(&fs), root_(std::move(root)), mutants_(mutants), threads_(threads) {}
    result<round::blob_ref> sync(const std::string& path);
    result<void> digest(const std::string& folder, round::model_files& files,
                        const std::vector<std::string_view>& names);
    result<void> sync_dir(const std::string& path);
    result<void> check_files(const model_in_journal& journal, bool check_digests);
    result<void> check_size(const std::string& path, const round::blob_ref& expected);
    result<void> check_run_id(const model_in_journal& journal);
    result<void> retire(std::uint64_t generation);

    file_system* fs_;
    std::string root_;
    model_mutants mutants_;
    int threads_;
};

}  // namespace darlcore::storage
