// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace darl::testing {

struct darl_outcome {
    int status = -1;  // exit code, or 128 + signal
    std::string out;
    std::string err;
};

// Runs the built `darl` with these arguments in the current folder and waits for it.
inline darl_outcome run_darl(std::vector<std::string> arguments) {
    const std::string pattern = (std::filesystem::temp_directory_path() / "darl-run-XXXXXX").string();
    std::string out_path = pattern;
    std::string err_path = pattern;
    const int out_fd = ::mkstemp(out_path.data());
    const int err_fd = ::mkstemp(err_path.data());
    arguments.insert(arguments.begin(), DARL_PROGRAM);
    std::vector<char*> argv;
    for (auto& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out_fd, 1);
    posix_spawn_file_actions_adddup2(&actions, err_fd, 2);
    pid_t pid = -1;
    darl_outcome outcome;
    if (::posix_spawn(&pid, DARL_PROGRAM, &actions, nullptr, argv.data(), environ) == 0) {
        int status = 0;
        ::waitpid(pid, &status, 0);
        outcome.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    posix_spawn_file_actions_destroy(&actions);
    ::close(out_fd);
    ::close(err_fd);
    const auto text_of = [](const std::string& path) {
        std::ifstream in(path, std::ios::binary);
        std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
        std::filesystem::remove(path);
        return text;
    };
    outcome.out = text_of(out_path);
    outcome.err = text_of(err_path);
    return outcome;
}

}  // namespace darl::testing
