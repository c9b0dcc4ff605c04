// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace darlcore::slurm {

/// One command of the batch system: arguments go to execve as they are, never through a shell.
struct run_request {
    std::vector<std::string> argv;  // argv[0] is looked up in PATH
    double limit_s = 60;            // then TERM to its process group, after grace_s KILL
    double grace_s = 5;
    std::size_t stdout_bytes_max = 64 * 1024;  // the rest is read and dropped, so that the command never blocks
    std::size_t stderr_bytes_max = 64 * 1024;
    std::size_t line_bytes_max = 4096;
};

/// How the call itself ended. None of the failures says anything about a job or a queue.
enum class run_end : std::uint8_t { exited, signalled, timed_out, not_found, not_started };

struct run_answer {
    run_end end = run_end::not_started;
    int rc = -1;  // exit status; 128 + n for a signal
    std::string out;
    std::string err;
    bool truncated = false;
    double call_ms = 0;
    std::int64_t now_s = 0;  // wall clock when the call returned
};

/// `environment` without SLURM_*, SBATCH_*, SALLOC_*, SRUN_* (SLURM_CONF stays), with LC_ALL=C, TZ=UTC,
/// SLURM_TIME_FORMAT=%s. A collector inside a job would otherwise leak that job's shape and account into the probe.
std::vector<std::string> scrubbed_environment(const std::vector<std::string>& environment);

/// This process's environment as "NAME=value".
std::vector<std::string> own_environment();

/// Runs the command and waits: stdin is /dev/null, stdout and stderr are read apart. The command is a process group of
/// its own and is ended when this process dies. Thread-safety: reentrant.
run_answer run_command(const run_request& request, const std::vector<std::string>& environment);

}  // namespace darlcore::slurm
