// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "darlcore/error.hpp"

namespace darlcore::slurm {

/// The key of a probe series: nothing is interpolated over any of its fields.
struct shape_key {
    std::string partition;
    std::uint32_t nodes = 1;
    std::uint32_t gpus_per_node = 0;
    std::string gpu_type;
    std::int64_t walltime_s = 0;
    std::string account;
    std::string qos;
    [[nodiscard]] std::uint32_t gpus() const { return nodes * gpus_per_node; }
};

/// Why an argument list is not one shape; `word` is stable, `detail` names the argument and the fix.
struct shape_problem {
    std::string word;
    std::string detail;
};

/// Either a key or a problem.
struct shape_answer {
    std::optional<shape_key> key;
    shape_problem problem;
};

/// Reads sbatch arguments, one token each. Only listed options pass and values are of [A-Za-z0-9_.,:=+@%/\[\]-]: these
/// tokens reach a command line. One partition, no node range, no heterogeneous job, a finite walltime.
shape_answer read_shape(std::span<const std::string> args);

/// Digest of an argument list: another list is another series.
std::string args_digest(std::span<const std::string> args);

/// What a limit record says about a shape ("name=x GrpTRES=gres/gpu=2 MaxWall=08:00:00").
struct limit_verdict {
    bool admissible = true;
    std::string reason;  // "GrpTRES gres/gpu 2 < 4"
};

limit_verdict check_limits(std::string_view record, const shape_key& shape);

}  // namespace darlcore::slurm
