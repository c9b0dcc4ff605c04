// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "adapters/formats/json.hpp"
#include "backends/torch/trainer.hpp"

namespace darlcore::training {

/// What every line of a metrics file begins with.
struct metrics_common {
    std::string run_id, site, incarnation;
};

/// Where the run stands when a line is written.
struct metrics_place {
    std::uint64_t generation = 0, global_step = 0, tokens_total = 0;
};

/// Metrics as JSON lines: appended, flushed per line, stable keys, null where a number is not finite. Lines of an
/// earlier process stay and are told apart by `incarnation`. Failing writes are remembered, not fatal: metrics must not
/// stop a run.
class metrics_file {
public:
    /// Errors: errc::io_error.
    static result<metrics_file> open(const std::string& path, metrics_common common);

    /// One line: time, run_id, site, incarnation, kind, generation, global_step, tokens_total, then `members`. Gives
    /// the line.
    std::string write(std::string_view kind, const metrics_place& place, const json::value& members);
    [[nodiscard]] bool failed() const { return failed_; }

private:
    struct closer {
        void operator()(std::FILE* f) const { std::fclose(f); }
    };
    std::unique_ptr<std::FILE, closer> file_;
    metrics_common common_;
    bool failed_ = false;
};

/// Seconds of a phase by what they were spent on; they add up to its wall time.
struct phase_seconds {
    double compute_s = 0.0, download_s = 0.0, checkpoint_s = 0.0, upload_s = 0.0, wait_s = 0.0, evaluate_s = 0.0;
    double lost_s = 0.0;  ///< phases before it that came to nothing
    double wall_s = 0.0;  ///< since the books of the phase before it were closed
};

json::value step_metrics(const step_report& r);
/// blocks: positions trained. mfu is null: the peak of a CPU is not known.
json::value phase_metrics(const phase_summary& p, const delta_norms& norms, const phase_seconds& seconds,
                          std::uint64_t blocks, const std::string& contribution_id, std::span<const span> positions);
json::value evaluation_metrics(const evaluation& e, const std::string& set_digest);

/// Largest resident size of this process so far.
std::uint64_t peak_memory_bytes();

}  // namespace darlcore::training
