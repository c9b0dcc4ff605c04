// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "adapters/cli/run_config.hpp"
#include "backends/torch/schedule.hpp"
#include "backends/torch/trainer.hpp"
#include "darlcore/block_space.hpp"

namespace darl {

/// What every rank of a site opens: tokens for a language model, pictures for resnet18.
struct site_parts {
    darlcore::training::trainer_settings settings;
    std::uint64_t num_windows = 0;
    std::unique_ptr<darlcore::training::window_source> windows;
    std::unique_ptr<darlcore::training::window_source> held_out;  // null: none is set
    std::string held_out_digest;
    std::string identity;                                    // 32 hex digits, sent at register
    std::function<darlcore::result<std::string>()> content;  // 64 hex digits; may read the whole corpus

    [[nodiscard]] bool images() const { return settings.model.kind == darlcore::models::architecture::resnet18; }
};

/// Opens what data.manifest and data.held_out name. For model.flavour = "resnet18" they name pictures:
/// "cifar10:FILE,FILE...", "idx:IMAGES,LABELS" or "patterns:COUNT,SEED". Errors: those of the readers;
/// errc::invalid_argument naming the key.
darlcore::result<site_parts> open_parts(const run_config& c);

darlcore::training::lr_schedule schedule_of(const run_config& c);
darlcore::space_parameters space_of(const run_config& c, std::uint64_t num_windows);

}  // namespace darl
