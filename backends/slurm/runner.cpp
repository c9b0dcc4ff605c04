// SPDX-License-Identifier: Apache-2.0
#include "backends/slurm/runner.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <optional>
#include <string_view>

#include "backends/slurm/text.hpp"

extern char** environ;  // NOLINT: POSIX

namespace darlcore::slurm {

namespace {

using steady = std::chrono::steady_clock;

double seconds_since(steady::time_point start) { return std::chrono::duration<double>(steady::now() - start).count(); }

class unique_fd {
public:
    unique_fd() = default;
    explicit unique_fd(int fd) : fd_(fd) {}
    unique_fd(unique_fd&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
    unique_fd& operator=(unique_fd&& other) noexcept {
        if (this != &other) {
            close();
            fd_ = other.fd_;
            other.fd_ = -1;
        }
        return *this;
    }
    ~unique_fd() { close(); }
    void close() {
        if (fd_ >= 0) ::close(fd_);
        fd_ = -1;
    }
    [[nodiscard]] int get() const { return fd_; }

private:
    int fd_ = -1;
};

struct pipe_ends {
    unique_fd read, write;
};

std::optional<pipe_ends> make_pipe() {
    std::array<int, 2> fds{};
    if (::pipe2(fds.data(), O_CLOEXEC) != 0) return std::nullopt;
    return pipe_ends{unique_fd(fds[0]), unique_fd(fds[1])};
}

std::string value_of(const std::vector<std::string>& environment, std::string_view name) {
    for (const std::string& e : environment)
        if (starts_with(e, name) && e.size() > name.size() && e[name.size()] == '=') return e.substr(name.size() + 1);
    return {};
}

std::string find_program(const std::string& name, const std::vector<std::string>& environment) {
    if (name.find('/') != std::string::npos) return ::access(name.c_str(), X_OK) == 0 ? name : std::string();
    const std::string path = value_of(environment, "PATH");
    for (const std::string_view folder : split(path, ':')) {
        const std::string candidate = std::string(folder.empty() ? "." : folder) + "/" + name;
        if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    }
    return {};
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> made;
    for (std::string& t : texts) made.push_back(t.data());
    made.push_back(nullptr);
    return made;
}

// Reads what is there; appends up to `most` bytes and drops the rest. False at the end of the stream.
bool drain(int fd, std::string& into, std::size_t most, bool& truncated) {
    std::array<char, 8192> buffer{};
    while (true) {
        const ssize_t n = ::read(fd, buffer.data(), buffer.size());
        if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
        if (n == 0) return false;
        const std::size_t room = most - std::min(most, into.size());
        const auto got = static_cast<std::size_t>(n);
        into.append(buffer.data(), std::min(room, got));
        truncated = truncated || got > room;
        if (got < buffer.size()) return true;
    }
}

void cut_lines(std::string& text, std::size_t most, bool& truncated) {
    std::string out;
    for (const std::string_view line : split(text, '\n')) {
        truncated = truncated || line.size() > most;
        out.append(line.substr(0, most)).push_back('\n');
    }
    out.pop_back();
    text = std::move(out);
}

[[noreturn]] void become(const char* program, char* const* argv, char* const* environment, int out, int err, int report,
                         pid_t parent) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int null = ::open("/dev/null", O_RDONLY);
    const bool parent_lives = ::getppid() == parent;
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    for (const int number : {SIGINT, SIGTERM, SIGPIPE, SIGUSR1}) ::signal(number, SIG_DFL);
    if (parent_lives && null >= 0 && ::dup2(null, 0) == 0 && ::dup2(out, 1) == 1 && ::dup2(err, 2) == 2)
        ::execve(program, argv, environment);
    const int why = errno;
    const ssize_t told = ::write(report, &why, sizeof why);
    static_cast<void>(told);
    ::_exit(127);
}

struct streams {
    unique_fd out, err;
};

// Reads both streams and waits for the child; false when it had to be ended for time.
bool wait_for(pid_t child, streams& s, const run_request& r, run_answer& a, int& status) {
    const auto start = steady::now();
    bool in_time = true, killed = false, reaped = false;
    std::optional<steady::time_point> reaped_at;
    bool out_open = true, err_open = true;
    while (true) {
        std::array<pollfd, 2> waits{
            {{out_open ? s.out.get() : -1, POLLIN, 0}, {err_open ? s.err.get() : -1, POLLIN, 0}}};
        ::poll(waits.data(), waits.size(), 20);
        if (out_open) out_open = drain(s.out.get(), a.out, r.stdout_bytes_max, a.truncated);
        if (err_open) err_open = drain(s.err.get(), a.err, r.stderr_bytes_max, a.truncated);
        if (!reaped && ::waitpid(child, &status, WNOHANG) == child) {
            reaped = true;
            reaped_at = steady::now();
        }
        if (reaped && !out_open && !err_open) break;
        // a grandchild may hold the streams open; what matters has been written by now
        if (reaped && seconds_since(*reaped_at) > 0.5) break;
        const double now = seconds_since(start);
        if (!reaped && now > r.limit_s && in_time) {
            in_time = false;
            ::kill(-child, SIGTERM);
        }
        if (!reaped && !killed && now > r.limit_s + r.grace_s) {
            killed = true;
            ::kill(-child, SIGKILL);
        }
    }
    ::kill(-child, SIGKILL);  // what is left of its group
    return in_time;
}

}  // namespace

std::vector<std::string> own_environment() {
    std::vector<std::string> made;
    for (char** e = environ; e != nullptr && *e != nullptr; ++e) made.emplace_back(*e);
    return made;
}

std::vector<std::string> scrubbed_environment(const std::vector<std::string>& environment) {
    std::vector<std::string> made;
    for (const std::string& e : environment) {
        const bool batch = starts_with(e, "SLURM_") || starts_with(e, "SBATCH_") || starts_with(e, "SALLOC_") ||
                           starts_with(e, "SRUN_");
        const bool replaced = starts_with(e, "LC_ALL=") || starts_with(e, "TZ=");
        const bool secret = starts_with(e, "DARL_TOKEN=");  // sbatch would hand it on to jobs
        if ((batch && !starts_with(e, "SLURM_CONF=")) || replaced || secret) continue;
        made.push_back(e);
    }
    made.emplace_back("LC_ALL=C");
    made.emplace_back("TZ=UTC");
    made.emplace_back("SLURM_TIME_FORMAT=%s");
    return made;
}

run_answer run_command(const run_request& request, const std::vector<std::string>& environment) {
    run_answer a;
    const auto start = steady::now();
    const auto done = [&] {
        a.call_ms = 1000 * seconds_since(start);
        a.now_s = static_cast<std::int64_t>(std::time(nullptr));
    };
    const std::string program = request.argv.empty() ? std::string() : find_program(request.argv[0], environment);
    auto out = make_pipe();
    auto err = make_pipe();
    auto report = make_pipe();
    if (program.empty() || !out || !err || !report) {
        a.end = program.empty() ? run_end::not_found : run_end::not_started;
        a.rc = 127;
        done();
        return a;
    }
    std::vector<std::string> args = request.argv;
    std::vector<std::string> variables = environment;
    const std::vector<char*> argv = pointers(args);
    const std::vector<char*> envp = pointers(variables);
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    if (child == 0)
        become(program.c_str(), argv.data(), envp.data(), out->write.get(), err->write.get(), report->write.get(),
               parent);
    out->write.close();
    err->write.close();
    report->write.close();
    if (child < 0) {
        done();
        return a;
    }
    ::setpgid(child, child);
    for (const int fd : {out->read.get(), err->read.get()}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
    streams s{std::move(out->read), std::move(err->read)};
    int status = 0;
    const bool in_time = wait_for(child, s, request, a, status);
    int why = 0;
    const bool refused = ::read(report->read.get(), &why, sizeof why) == static_cast<ssize_t>(sizeof why);
    if (refused)
        a.end = why == ENOENT ? run_end::not_found : run_end::not_started;
    else if (!in_time)
        a.end = run_end::timed_out;
    else
        a.end = WIFEXITED(status) ? run_end::exited : run_end::signalled;
    a.rc = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    cut_lines(a.out, request.line_bytes_max, a.truncated);
    cut_lines(a.err, request.line_bytes_max, a.truncated);
    done();
    return a;
}

}  // namespace darlcore::slurm
