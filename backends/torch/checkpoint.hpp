// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "adapters/formats/json.hpp"
#include "backends/torch/trainer.hpp"

namespace darlcore::training {

/// What a checkpoint says besides the moments. `extra` is the caller's: contribution id, leases, group counter, file
/// names.
struct checkpoint {
    std::uint64_t sequence = 0;  ///< grows with every save in a folder
    std::string incarnation;
    std::uint64_t position = 0;
    std::uint64_t updates = 0;
    json::value extra;
    std::string name;  ///< ckpt-<sequence>-<incarnation>
};

/// A site's checkpoints in one folder: moments as safetensors, then a JSON file that names their digest. A checkpoint
/// counts only when its JSON, written last, is there and the digest matches; weights are not in it: they always come
/// from the current generation. Thread-safety: one caller at a time; one process per folder.
class checkpoint_store {
public:
    /// Makes the folder if needed. Errors: errc::io_error.
    static result<checkpoint_store> open(std::string folder, std::string run_id, std::string layout_digest,
                                         std::string incarnation);

    /// Writes both files, durable on return; then removes this incarnation's checkpoints but the newest two.
    /// Errors: errc::io_error, errc::no_space (the older checkpoints are untouched).
    result<checkpoint> save(const inner_trainer& trainer, const json::value& extra);

    /// Restores moments, age and position from the newest checkpoint that is whole. One that cannot be read is skipped
    /// and named in `notes`; nothing to restore gives nothing. The moments' sizes must be the trainer's. Errors:
    /// errc::refused when the newest belongs to another run or layout (start with a fresh folder: --fresh renames it
    /// aside).
    result<std::optional<checkpoint>> restore(inner_trainer& trainer, std::vector<std::string>& notes) const;

    /// What the newest readable checkpoint of a folder says, whatever run it belongs to; nothing without one.
    static std::optional<checkpoint> newest(const std::string& folder);

    /// Removes all but the newest two, whoever wrote them. Only after the server has fenced older incarnations.
    void prune() const;

    /// Renames the folder aside (FOLDER.aside-1, -2, ...) and gives its new name. Errors: errc::io_error.
    static result<std::string> set_aside(const std::string& folder);

    [[nodiscard]] const std::string& folder() const { return folder_; }

private:
    std::string folder_, run_id_, layout_digest_, incarnation_;
};

}  // namespace darlcore::training
