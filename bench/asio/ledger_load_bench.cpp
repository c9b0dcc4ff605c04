// SPDX-License-Identifier: Apache-2.0
// Mixed acquire / heartbeat / commit calls over kept-alive connections against the real `darl serve`, beside two
// ceilings measured in the same run: a loopback server that answers every request with a fixed line, and fdatasync of 4
// KiB appends. Usage: bench_ledger_load [--seconds S] [--repeats R]; one JSON object per line.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapters/cli/child_process.hpp"
#include "adapters/formats/json.hpp"

namespace {

using darlcore::json::make_object;
using steady = std::chrono::steady_clock;

double seconds_since(steady::time_point t) { return std::chrono::duration<double>(steady::now() - t).count(); }

/// A blocking kept-alive connection.
class connection {
public:
    explicit connection(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in where{};
        where.sin_family = AF_INET;
        where.sin_port = htons(port);
        where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const int on = 1;
        ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        ok_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0;
    }
    ~connection() { ::close(fd_); }
    connection(const connection&) = delete;
    connection& operator=(const connection&) = delete;

    /// The body of the answer; empty when the connection is lost.
    std::string ask(const std::string& path, const std::string& body) {
        std::string text = "POST " + path +
                           " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " + std::to_string(body.size()) +
                           "\r\n\r\n" + body;
        if (!ok_ || ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size())) return {};
        for (;;) {
            const std::size_t end = pending_.find("\r\n\r\n");
            if (end != std::string::npos) {
                const std::size_t at = pending_.find("Content-Length: ");
                const std::size_t length = at < end ? std::strtoul(pending_.c_str() + at + 16, nullptr, 10) : 0;
                if (pending_.size() >= end + 4 + length) {
                    std::string out = pending_.substr(end + 4, length);
                    pending_.erase(0, end + 4 + length);
                    return out;
                }
            }
            char piece[16384];
            const ssize_t n = ::recv(fd_, piece, sizeof piece, 0);
            if (n <= 0) {
                ok_ = false;
                return {};
            }
            pending_.append(piece, static_cast<std::size_t>(n));
        }
    }

private:
    int fd_;
    bool ok_ = false;
    std::string pending_;
};

std::string value_of(const std::string& reply, std::string_view key) {
    const std::string mark = "\"" + std::string(key) + "\":";
    std::size_t at = reply.find(mark);
    if (at == std::string::npos) return {};
    at += mark.size();
    const bool quoted = reply[at] == '"';
    if (quoted) ++at;
    const std::size_t end = reply.find_first_of(quoted ? "\"" : ",}]", at);
    return reply.substr(at, end - at);
}

struct figures {
    std::uint64_t calls = 0;
    std::uint64_t failed = 0;
    std::vector<double> latencies;
};

/// One site: acquire a block, beat, commit it, for ever.
void site_loop(std::uint16_t port, int number, const std::atomic<bool>& stop, figures& out) {
    connection c(port);
    const std::string who = "\"cluster\":\"s" + std::to_string(number) + "\"";
    c.ask("/register", "{" + who + "}");
    std::uint64_t turn = 0;
    const auto call = [&](const std::string& path, const std::string& body) {
        const auto begun = steady::now();
        std::string reply = c.ask(path, body);
        out.latencies.push_back(seconds_since(begun));
        ++out.calls;
        if (reply.empty() || reply.find("\"code\"") != std::string::npos) ++out.failed;
        return reply;
    };
    while (!stop) {
        const std::string granted =
            call("/acquire", "{" + who + ",\"blocks\":1,\"request_id\":\"" + std::to_string(turn++) + "\"}");
        const std::string id = value_of(granted, "lease_id");
        const std::string end = value_of(granted, "end");
        if (id.empty()) break;
        call("/heartbeat", "{" + who + ",\"progress\":{\"" + id + "\":" + end + "}}");
        call("/commit", "{" + who + ",\"lease\":\"" + id + "\",\"through\":" + end + "}");
    }
}

double percentile(std::vector<double>& values, double p) {
    if (values.empty()) return 0;
    const auto at = static_cast<std::ptrdiff_t>(p * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), values.begin() + at, values.end());
    return values[static_cast<std::size_t>(at)];
}

struct measured {
    double calls_per_s = 0;
    double p50_ms = 0;
    double p99_ms = 0;
    std::uint64_t failed = 0;
};

template <class Loop>
measured run_clients(int clients, double run_s, Loop loop) {
    std::atomic<bool> stop{false};
    std::vector<figures> each(static_cast<std::size_t>(clients));
    std::vector<std::thread> threads;
    const auto begun = steady::now();
    for (int i = 0; i < clients; ++i)
        threads.emplace_back([&, i] { loop(i, stop, each[static_cast<std::size_t>(i)]); });
    std::this_thread::sleep_for(std::chrono::duration<double>(run_s));
    stop = true;
    for (std::thread& t : threads) t.join();
    const double took = seconds_since(begun);
    measured m;
    std::vector<double> all;
    std::uint64_t calls = 0;
    for (figures& f : each) {
        calls += f.calls;
        m.failed += f.failed;
        all.insert(all.end(), f.latencies.begin(), f.latencies.end());
    }
    m.calls_per_s = static_cast<double>(calls) / took;
    m.p50_ms = percentile(all, 0.50) * 1000;
    m.p99_ms = percentile(all, 0.99) * 1000;
    return m;
}

/// Answers each request with one fixed line, a thread per connection: what loopback and the clients themselves allow.
class fixed_server {
public:
    fixed_server() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in where{};
        where.sin_family = AF_INET;
        where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof where;
        ::bind(fd_, reinterpret_cast<const sockaddr*>(&where), sizeof where);
        ::listen(fd_, 128);
        ::getsockname(fd_, reinterpret_cast<sockaddr*>(&where), &size);
        port = ntohs(where.sin_port);
        acceptor_ = std::thread([this] {
            for (;;) {
                const int c = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
                if (c < 0) return;
                const int on = 1;
                ::setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                workers_.emplace_back([c] { serve(c); });
            }
        });
    }
    ~fixed_server() {
        ::shutdown(fd_, SHUT_RDWR);
        acceptor_.join();
        ::close(fd_);
        for (std::thread& w : workers_) w.join();
    }
    fixed_server(const fixed_server&) = delete;
    fixed_server& operator=(const fixed_server&) = delete;
    std::uint16_t port = 0;

private:
    static void serve(int c) {
        static constexpr std::string_view line = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n";
        char piece[16384];
        while (::recv(c, piece, sizeof piece, 0) > 0)
            if (::send(c, line.data(), line.size(), MSG_NOSIGNAL) < 0) break;
        ::close(c);
    }
    int fd_;
    std::thread acceptor_;
    std::vector<std::thread> workers_;
};

measured loopback_ceiling(int clients, double run_s) {
    fixed_server server;
    return run_clients(clients, run_s, [&](int, const std::atomic<bool>& stop, figures& out) {
        connection c(server.port);
        while (!stop) {
            const auto begun = steady::now();
            if (c.ask("/acquire", "{\"cluster\":\"s\",\"blocks\":1,\"request_id\":\"1\"}").empty()) ++out.failed;
            out.latencies.push_back(seconds_since(begun));
            ++out.calls;
        }
    });
}

measured fdatasync_ceiling(const std::string& folder, double run_s) {
    const int fd = ::open((folder + "/sync").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    const std::string block(4096, 'x');
    std::vector<double> each;
    const auto begun = steady::now();
    off_t at = 0;
    while (seconds_since(begun) < run_s) {
        const auto one = steady::now();
        if (::pwrite(fd, block.data(), block.size(), at) < 0 || ::fdatasync(fd) != 0) break;
        at += static_cast<off_t>(block.size());
        each.push_back(seconds_since(one));
    }
    const double took = seconds_since(begun);
    ::close(fd);
    measured m;
    m.calls_per_s = static_cast<double>(each.size()) / took;
    m.p50_ms = percentile(each, 0.5) * 1000;
    m.p99_ms = percentile(each, 0.99) * 1000;
    return m;
}

std::uint64_t resident_kib(pid_t pid) {
    std::FILE* f = std::fopen(("/proc/" + std::to_string(pid) + "/statm").c_str(), "r");
    unsigned long size = 0;
    unsigned long resident = 0;
    if (f != nullptr) {
        if (std::fscanf(f, "%lu %lu", &size, &resident) != 2) resident = 0;
        std::fclose(f);
    }
    return resident * 4;
}

struct loaded {
    measured m;
    std::uint64_t resident_kib = 0;
};

loaded ledger_load(const std::string& folder, int clients, bool sync, double run_s) {
    darl::child_process::options o;
    o.argv = {DARL_PROGRAM,
              "serve",
              "--state-dir",
              folder,
              "--num-samples",
              "10000000",
              "--block-size",
              "10",
              "--commit-policy",
              "on_checkpoint",
              "--listen",
              "127.0.0.1:0",
              "--connections-per-address",
              "256"};
    if (!sync) o.argv.emplace_back("--no-sync");
    o.read_stdout = true;
    o.stderr_file = folder + ".log";
    auto child = darl::child_process::start(o);
    if (!child) return {};
    const auto line = child->read_line(std::chrono::seconds(60));
    if (!line) return {};
    const auto parsed = darlcore::json::parse(*line);
    const std::string url = *parsed->at("url").as_string();
    const auto port = static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
    loaded out;
    out.m = run_clients(clients, run_s,
                        [&](int i, const std::atomic<bool>& stop, figures& f) { site_loop(port, i, stop, f); });
    out.resident_kib = resident_kib(child->pid());
    child->kill();
    return out;
}

void print(const char* name, int clients, const measured& m, double ceiling, const char* ceiling_name,
           std::uint64_t resident = 0) {
    auto line = make_object({{"bench", name},
                             {"clients", clients},
                             {"calls_per_s", m.calls_per_s},
                             {"p50_ms", m.p50_ms},
                             {"p99_ms", m.p99_ms},
                             {"failed", m.failed}});
    if (ceiling > 0) {
        line.set("ceiling", ceiling_name);
        line.set("ceiling_per_s", ceiling);
        line.set("ratio", m.calls_per_s / ceiling);
    }
    if (resident > 0) line.set("resident_mib", static_cast<double>(resident) / 1024.0);
    std::printf("%s\n", darlcore::json::dump(line).c_str());
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    double run_s = 3;
    int repeats = 3;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (std::string_view(argv[i]) == "--seconds") run_s = std::atof(argv[i + 1]);
        if (std::string_view(argv[i]) == "--repeats") repeats = std::atoi(argv[i + 1]);
    }
    std::string pattern = (std::filesystem::temp_directory_path() / "darl_bench_XXXXXX").string();
    const std::string folder = ::mkdtemp(pattern.data());
    for (int r = 0; r < repeats; ++r) {
        const auto loopback = loopback_ceiling(8, run_s);
        print("loopback ceiling", 8, loopback, 0, "");
        const auto plain = ledger_load(folder + "/a" + std::to_string(r), 8, false, run_s);
        print("mixed calls, no fsync", 8, plain.m, loopback.calls_per_s, "loopback", plain.resident_kib);
        const auto disk = fdatasync_ceiling(folder, run_s);
        print("fdatasync of 4 KiB", 1, disk, 0, "");
        const auto durable = ledger_load(folder + "/b" + std::to_string(r), 64, true, run_s);
        print("mixed calls, fsync", 64, durable.m, disk.calls_per_s, "fdatasync", durable.resident_kib);
        const auto one = ledger_load(folder + "/c" + std::to_string(r), 1, true, run_s);
        print("mixed calls, fsync", 1, one.m, disk.calls_per_s, "fdatasync", one.resident_kib);
    }
    std::filesystem::remove_all(folder);
    return 0;
}
