// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/sim/simulation.hpp"
#include "backends/storage/blob_store.hpp"
#include "backends/storage/model_directory.hpp"
#include "darlcore/ledger/requests.hpp"

namespace darlcore::sim {

/// A model that is its own proof: one counter (a byte) per block of every epoch. A delta holds how often its site read
/// each block; a merge adds the deltas. When all epochs are trained every counter is 1.
struct counting_delta {
    std::string id;
    std::string site;
    std::uint64_t base = 0;
    std::uint64_t tokens = 0;
    std::uint64_t steps = 0;
    std::string counters;
};
std::string encode(const counting_delta& delta);
/// Errors: errc::meta_mismatch.
result<counting_delta> decode_delta(std::string_view bytes);

/// Blobs and generations of a simulated server: the real blob store and model directory on the simulated disk, with
/// counting models in them. Every call does its I/O at once. Thread-safety: none.
class counting_store {
public:
    struct options {
        std::string run_id;
        std::uint64_t counters = 0;
        std::uint64_t id_seed = 0;
        planted plant = planted::none;
    };
    /// Errors: those of a start: refused, corrupt, of the file system.
    static result<std::unique_ptr<counting_store>> open(storage::file_system& files, const std::string& path,
                                                        const options& o, const storage::model_in_journal& journal,
                                                        std::int64_t now_ms);

    storage::blob_store& blobs() { return *blobs_; }
    /// What a start tells the ledger: every complete upload.
    [[nodiscard]] std::vector<ledger::blob_verified> stored() const;
    [[nodiscard]] ledger::blob_verified verified(const storage::blob_facts& facts) const;
    /// Bytes of a blob. Errors: errc::blob_missing, of the file system.
    result<std::string> read(const std::string& sha256, const std::string& client, std::int64_t now_ms);

    /// Writes the files of generation 0; `seal` ends it.
    result<void> begin_first(const std::string& sha256, std::int64_t now_ms);
    struct begun_merge {
        std::vector<round::rejected_at_merge> rejected;
        bool used_any = false;
    };
    /// Writes the files of the next generation; `seal` ends it.
    result<begun_merge> begin_merge(const ledger::effects::start_merge& wanted, std::int64_t now_ms);
    result<round::model_files> seal(generation made);
    result<void> publish_wire(generation made, const round::model_files& files);
    /// Rolls CURRENT forward.
    result<void> point(generation published) { return models_.point(published.count); }
    /// Removes what the rules do not keep; gives the digests of the blobs that went.
    result<std::vector<std::string>> collect(const ledger::effects::collect_garbage& rule, generation current,
                                             std::int64_t now_ms);

    /// The model of a generation, and the ids of all contributions that are in it, in the order of their merges.
    struct evidence {
        std::string counters;
        std::vector<std::string> contributions;
    };
    result<evidence> read_model(generation which);

private:
    counting_store(storage::file_system& files, storage::model_directory models, const options& o)
        : files_(files), models_(std::move(models)), options_(o) {}
    result<std::string> read_generation(generation which, const char* name);
    result<void> write_generation(generation made, const std::string& counters,
                                  const std::vector<std::string>& contributions);
    result<void> write(const std::string& folder, const char* name, std::string_view bytes);

    storage::file_system& files_;
    storage::model_directory models_;
    options options_;
    std::unique_ptr<storage::blob_store> blobs_;
};

}  // namespace darlcore::sim
