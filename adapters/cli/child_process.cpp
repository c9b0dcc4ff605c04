// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/child_process.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

extern char** environ;

namespace darl {
namespace {

using darlcore::errc;
using darlcore::fail;

std::vector<std::string> environment_of(const child_process::options& o) {
    std::vector<std::string> out;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text(*entry);
        bool replaced = false;
        for (const auto& [name, value] : o.environment) replaced = replaced || text.rfind(name + "=", 0) == 0;
        if (!replaced) out.emplace_back(text);
    }
    for (const auto& [name, value] : o.environment) out.push_back(name + "=" + value);
    return out;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> out;
    for (auto& t : texts) out.push_back(t.data());
    out.push_back(nullptr);
    return out;
}

// Only calls that are safe between fork and exec.
[[noreturn]] void become(pid_t parent, int out, int err, char* const* argv, char* const* env, int report) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::dup2(null, 0);
    ::dup2(out, 1);
    ::dup2(err, 2);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::execve(argv[0], argv, env);
    const int failed = errno;
    [[maybe_unused]] const auto told = ::write(report, &failed, sizeof failed);
    ::_exit(127);
}

}  // namespace

darlcore::result<child_process> child_process::start(const options& o) {
    auto argv_text = o.argv;
    auto env_text = environment_of(o);
    const auto argv = pointers(argv_text);
    const auto env = pointers(env_text);
    int out[2] = {-1, -1};
    int report[2] = {-1, -1};
    const std::string err_path = o.stderr_file.empty() ? "/dev/null" : o.stderr_file;
    const int err = ::open(err_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (err < 0) return fail(errc::io_error, fmt::format("{}: {}", err_path, std::strerror(errno)));
    if (::pipe2(report, O_CLOEXEC) != 0 || (o.read_stdout && ::pipe2(out, O_CLOEXEC) != 0)) {
        ::close(err);
        return fail(errc::io_error, fmt::format("no pipe for a child: {}", std::strerror(errno)));
    }
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid == 0) become(parent, o.read_stdout ? out[1] : err, err, argv.data(), env.data(), report[1]);
    ::close(err);
    ::close(report[1]);
    if (o.read_stdout) ::close(out[1]);
    child_process child;
    child.pid_ = pid;
    child.out_fd_ = out[0];
    int failed = pid < 0 ? errno : 0;
    if (pid > 0 && ::read(report[0], &failed, sizeof failed) == 0) failed = 0;
    ::close(report[0]);
    if (failed != 0) return fail(errc::not_found, fmt::format("{}: {}", o.argv.front(), std::strerror(failed)));
    return child;
}

child_process::child_process(child_process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      out_fd_(std::exchange(other.out_fd_, -1)),
      buffered_(std::move(other.buffered_)),
      status_(other.status_) {}

child_process& child_process::operator=(child_process&& other) noexcept {
    if (this != &other) {
        this->~child_process();
        new (this) child_process(std::move(other));
    }
    return *this;
}

child_process::~child_process() {
    kill();
    if (out_fd_ >= 0) ::close(out_fd_);
}

void child_process::reap() {
    if (pid_ <= 0 || status_) return;
    int raw = 0;
    if (::waitpid(pid_, &raw, WNOHANG) != pid_) return;
    status_ = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
}

bool child_process::running() {
    reap();
    return pid_ > 0 && !status_;
}

void child_process::signal(int number) const {
    if (pid_ > 0 && !status_) ::kill(pid_, number);
}

std::optional<std::string> child_process::read_line(std::chrono::milliseconds at_most) {
    const auto until = std::chrono::steady_clock::now() + at_most;
    while (true) {
        if (const auto end = buffered_.find('\n'); end != std::string::npos) {
            std::string line = buffered_.substr(0, end);
            buffered_.erase(0, end + 1);
            return line;
        }
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
        pollfd ready{out_fd_, POLLIN, 0};
        if (out_fd_ < 0 || left <= 0 || ::poll(&ready, 1, static_cast<int>(left)) <= 0) return std::nullopt;
        char piece[4096];
        const ssize_t n = ::read(out_fd_, piece, sizeof piece);
        if (n <= 0) return std::nullopt;
        buffered_.append(piece, static_cast<std::size_t>(n));
    }
}

std::optional<int> child_process::wait(std::chrono::milliseconds at_most) {
    const auto until = std::chrono::steady_clock::now() + at_most;
    while (running()) {
        if (std::chrono::steady_clock::now() >= until) return std::nullopt;
        ::poll(nullptr, 0, 5);
    }
    return status_;
}

void child_process::kill() {
    if (!running()) return;
    ::kill(pid_, SIGKILL);
    int raw = 0;
    if (::waitpid(pid_, &raw, 0) == pid_) status_ = 128 + SIGKILL;
}

std::string own_program() {
    std::string path(4096, '\0');
    const ssize_t n = ::readlink("/proc/self/exe", path.data(), path.size());
    path.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return path;
}

}  // namespace darl
