// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "darlcore/error.hpp"

namespace darl {

/// A child that never outlives its parent: the kernel ends it when this process dies, the destructor when it goes away.
/// Arguments go to execve as they are; there is no shell.
class child_process {
public:
    struct options {
        std::vector<std::string> argv;                                 // argv[0] is the program's path
        std::vector<std::pair<std::string, std::string>> environment;  // added to ours
        std::string stderr_file;                                       // appended; empty: /dev/null
        bool read_stdout = false;                                      // else to stderr_file
    };

    /// Errors: errc::io_error, errc::not_found (the program).
    static darlcore::result<child_process> start(const options& o);

    child_process(child_process&& other) noexcept;
    child_process& operator=(child_process&& other) noexcept;
    ~child_process();

    [[nodiscard]] pid_t pid() const { return pid_; }
    [[nodiscard]] bool running();
    /// The next line of the child's standard output; nothing at its end or after `at_most`.
    std::optional<std::string> read_line(std::chrono::milliseconds at_most);
    void signal(int number) const;
    /// Waits; nothing when it still runs after `at_most`. The exit status as a shell shows it: 128 + n for a signal.
    std::optional<int> wait(std::chrono::milliseconds at_most);
    /// SIGKILL and wait.
    void kill();

private:
    child_process() = default;
    void reap();

    pid_t pid_ = -1;
    int out_fd_ = -1;
    std::string buffered_;
    std::optional<int> status_;
};

/// The path of the running program.
std::string own_program();

}  // namespace darl
