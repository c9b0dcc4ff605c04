// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/doctor_checks.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "adapters/cli/train_inputs.hpp"
#include "adapters/formats/token_corpus.hpp"
#include "backends/curl/json_call.hpp"
#include "backends/torch/compute_environment.hpp"
#include "backends/torch/model_spec.hpp"
#include "darlcore/sizing.hpp"

namespace darl {
namespace {

using namespace darlcore;
namespace fs = std::filesystem;

using stopwatch = std::chrono::steady_clock;
double ms_since(stopwatch::time_point begun) {
    return std::chrono::duration<double, std::milli>(stopwatch::now() - begun).count();
}

health_check pass(std::string group, std::string name, std::string value) {
    return {std::move(group), std::move(name), std::move(value), verdict::pass, {}};
}
health_check warn(std::string group, std::string name, std::string value, std::string fix) {
    return {std::move(group), std::move(name), std::move(value), verdict::warn, std::move(fix)};
}
health_check failed(std::string group, std::string name, std::string value, std::string fix) {
    return {std::move(group), std::move(name), std::move(value), verdict::fail, std::move(fix)};
}

std::string mib(double bytes) { return fmt::format("{:.1f} MiB", bytes / 1048576.0); }

// Write, sync, rename, sync the folder: what every checkpoint does. Empty, or what went wrong.
std::string try_files(const std::string& folder, double& sync_ms) {
    const std::string part = folder + "/.darl-doctor.part", whole = folder + "/.darl-doctor";
    const auto problem = [&](const char* what) {
        const std::string text = fmt::format("{}: {}", what, std::strerror(errno));
        ::unlink(part.c_str());
        ::unlink(whole.c_str());
        return text;
    };
    const int file = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) return problem("a file cannot be made");
    const std::string text(4096, 'd');
    const bool written = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    const auto begun = stopwatch::now();
    const bool synced = written && ::fsync(file) == 0;
    sync_ms = ms_since(begun);
    ::close(file);
    if (!synced) return problem(written ? "fsync failed" : "a file cannot be written");
    if (::rename(part.c_str(), whole.c_str()) != 0) return problem("a file cannot be renamed");
    const int directory = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool folder_synced = directory >= 0 && ::fsync(directory) == 0;
    if (directory >= 0) ::close(directory);
    if (!folder_synced) return problem("the folder cannot be synced");
    ::unlink(whole.c_str());
    return {};
}

// The nearest folder above a path that exists.
fs::path existing_above(const std::string& folder) {
    std::error_code ignored;
    fs::path at = fs::absolute(folder.empty() ? "." : folder, ignored);
    while (!fs::exists(at, ignored) && at.has_parent_path() && at.parent_path() != at) at = at.parent_path();
    return at;
}

struct resolved {
    int status = 0;
    std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list{nullptr, &::freeaddrinfo};
};

resolved resolve(const std::string& host, const std::string& port, int flags) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags;
    addrinfo* found = nullptr;
    resolved out;
    out.status = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
    if (out.status == 0) out.list.reset(found);
    return out;
}

std::pair<std::string, std::string> host_and_port(std::string text, const std::string& default_port) {
    const auto colon = text.rfind(':');
    std::string port = default_port;
    if (colon != std::string::npos && text.find(']', colon) == std::string::npos) {
        port = text.substr(colon + 1);
        text.resize(colon);
    }
    if (text.size() >= 2 && text.front() == '[' && text.back() == ']') text = text.substr(1, text.size() - 2);
    return {text, port};
}

// Address families of the server's host. Empty: the name is not known.
std::string families_of(const std::string& url) {
    const auto scheme = url.find("://");
    std::string rest = scheme == std::string::npos ? url : url.substr(scheme + 3);
    rest = rest.substr(0, rest.find('/'));
    const auto [host, port] = host_and_port(rest, url.starts_with("https") ? "443" : "80");
    const auto found = resolve(host, port, 0);
    bool four = false, six = false;
    for (const addrinfo* a = found.list.get(); a != nullptr; a = a->ai_next) {
        four = four || a->ai_family == AF_INET;
        six = six || a->ai_family == AF_INET6;
    }
    return four && six ? "IPv4 and IPv6" : four ? "IPv4" : six ? "IPv6" : "";
}

std::optional<double> seconds_ahead_of(const std::string& http_date) {
    std::tm parts{};
    if (::strptime(http_date.c_str(), "%a, %d %b %Y %H:%M:%S", &parts) == nullptr) return std::nullopt;
    return static_cast<double>(std::time(nullptr)) - static_cast<double>(::timegm(&parts));
}

health_check check_one_corpus(const std::string& path, const char* key, bool deep, std::uint64_t& vocabulary) {
    if (path.empty())
        return failed("corpus", key, "not set",
                      fmt::format("set {} to a manifest.json; darl tokenize writes one", key));
    const auto corpus = formats::token_corpus::open(path);
    if (!corpus) return failed("corpus", key, corpus.error().context, "copy the corpus again, or run darl tokenize");
    std::vector<std::uint32_t> ids(static_cast<std::size_t>(corpus->window()));
    const std::uint64_t n = corpus->num_windows();
    for (const std::uint64_t w : {std::uint64_t{0}, n / 2, n - 1})
        if (auto read = corpus->read_window(w, ids); !read)
            return failed("corpus", key, read.error().context, "copy the corpus again");
    if (deep)
        if (auto all = corpus->verify_all(); !all)
            return failed("corpus", key, all.error().context, "copy the corpus again");
    vocabulary = corpus->manifest().vocab_size;
    return pass("corpus", key,
                fmt::format("{} windows of {} ids{}", n, corpus->window(), deep ? ", every byte checked" : ""));
}

void check_sizes(const run_config& c, const models::model_config& model, std::uint64_t& folder_bytes,
                 health_report& out) {
    std::uint64_t parameters = 0;
    for (const auto& spec : models::parameter_specs(model)) parameters += static_cast<std::uint64_t>(spec.elements());
    out.push_back(pass("model", "model.flavour", fmt::format("{}: {} parameters", c.flavour, parameters)));
    // two checkpoints of two moments in f32, one being written, two generations and two deltas in bf16
    folder_bytes = parameters * (3 * 8 + 4 * 2);
    out.push_back(
        pass("derived", "sizes",
             fmt::format("generation and contribution {} each way, checkpoint {}",
                         mib(2.0 * static_cast<double>(parameters)), mib(8.0 * static_cast<double>(parameters)))));
}

health_report check_pictures(const run_config& c, std::uint64_t& folder_bytes) {
    const auto parts = open_parts(c);
    if (!parts) return {failed("corpus", "data.manifest", parts.error().context, "darl init shows the forms")};
    health_report out{pass("corpus", "data.manifest", fmt::format("{} pictures", parts->num_windows))};
    check_sizes(c, parts->settings.model, folder_bytes, out);
    return out;
}

}  // namespace

health_report check_run_folder(const std::string& folder) {
    std::error_code trouble;
    fs::create_directories(folder, trouble);
    if (trouble)
        return {failed("disk", "run folder", fmt::format("{}: {}", folder, trouble.message()),
                       "choose a run.work_dir that you may write")};
    double sync_ms = 0;
    if (const auto problem = try_files(folder, sync_ms); !problem.empty())
        return {failed("disk", "run folder", fmt::format("{}: {}", folder, problem),
                       "choose a run.work_dir on a file system that writes, syncs and renames")};
    health_report out{pass("disk", "run folder", folder + ": writes, syncs and renames")};
    const std::string took = fmt::format("{:.1f} ms", sync_ms);
    out.push_back(sync_ms < 200 ? pass("disk", "time of an fsync", took)
                                : warn("disk", "time of an fsync", took, "a faster disk shortens every phase"));
    return out;
}

health_report check_disk_space(const std::string& folder, std::uint64_t needed) {
    struct statvfs about {};
    const fs::path at = existing_above(folder);
    if (::statvfs(at.c_str(), &about) != 0)
        return {failed("disk", "free space", fmt::format("{}: {}", at.string(), std::strerror(errno)),
                       "choose another run.work_dir")};
    const double free = static_cast<double>(about.f_bavail) * static_cast<double>(about.f_frsize);
    const double wanted = static_cast<double>(needed);
    const std::string value = fmt::format("{} free, a run folder holds about {}", mib(free), mib(wanted));
    const std::string fix = "free some space, or choose a run.work_dir on another disk";
    health_report out;
    out.push_back(free < wanted       ? failed("disk", "free space", value, fix)
                  : free < 2 * wanted ? warn("disk", "free space", value, fix)
                                      : pass("disk", "free space", value));
    if (about.f_files > 0 && about.f_favail < 1000)
        out.push_back(warn("disk", "free inodes", std::to_string(about.f_favail), "remove files"));
    return out;
}

health_check check_clock(double offset_s) {
    const std::string value = fmt::format("{:+.0f} s against the server", offset_s);
    const std::string fix = "set the clock (chrony, ntpd): tokens and certificates depend on it";
    if (std::abs(offset_s) > 120) return failed("clock", "offset", value, fix);
    return std::abs(offset_s) > 10 ? warn("clock", "offset", value, fix) : pass("clock", "offset", value);
}

health_report check_token_file(const std::string& path, const variable_lookup& environment) {
    if (path.empty())
        return {environment("DARL_TOKEN").empty()
                    ? warn("secrets", "token", "none", "a server beyond this machine wants one: --token-file FILE")
                    : pass("secrets", "token", "from DARL_TOKEN")};
    struct stat about {};
    if (::stat(path.c_str(), &about) != 0)
        return {failed("secrets", "token file", fmt::format("{}: {}", path, std::strerror(errno)),
                       "ask the server's owner for the file that darl token new wrote")};
    if ((about.st_mode & 077U) != 0)
        return {failed("secrets", "token file", fmt::format("{}: mode {:o}", path, about.st_mode & 0777U),
                       fmt::format("chmod 600 {}", path))};
    if (about.st_size == 0) return {failed("secrets", "token file", path + ": is empty", "copy it again")};
    return {pass("secrets", "token file", path + ": mode 600")};
}

health_report check_environment(const run_config& c, const variable_lookup& environment) {
    health_report out;
    std::string proxies;
    for (const char* name : {"http_proxy", "https_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy", "no_proxy"})
        if (!environment(name).empty()) proxies += (proxies.empty() ? "" : ", ") + std::string(name);
    if (proxies.empty())
        out.push_back(c.proxy == "env" ? warn("network", "proxy variables", "none, though network.proxy is \"env\"",
                                              "set https_proxy, or network.proxy to a URL or \"none\"")
                                       : pass("network", "proxy variables", "none"));
    else
        out.push_back(
            c.proxy == "none"
                ? warn("network", "proxy variables", proxies + ": set, not used",
                       "if the server is beyond that proxy: network.proxy = \"env\", or --proxy env")
                : pass("network", "proxy variables", fmt::format("{}; network.proxy = {}", proxies, c.proxy)));
    for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_WAIT_POLICY", "OPENBLAS_CORETYPE"})
        if (const std::string value = environment(name); !value.empty())
            out.push_back(
                warn("machine", name, value, "yours wins over what darl train would choose; unset it if unsure"));
    return out;
}

health_report check_machine() {
    const auto facts = training::this_machine();
    health_report out{pass("machine", "libtorch", facts.torch_version)};
    const auto chosen = training::worker_environment(facts, [](std::string_view) { return false; });
    std::string cure;
    for (const auto& [name, value] : chosen)
        if (name == "OPENBLAS_CORETYPE") cure = value;
    if (facts.blas_core.empty())
        out.push_back(warn("machine", "matrix kernels", "not OpenBLAS: up to thirty times slower",
                           "apt-get install libopenblas0-pthread"));
    else if (facts.blas_core == "Prescott" && cure.empty())
        out.push_back(
            warn("machine", "matrix kernels", "OpenBLAS does not know this processor", "set OPENBLAS_CORETYPE"));
    else
        out.push_back(pass("machine", "matrix kernels",
                           cure.empty()
                               ? "OpenBLAS " + facts.blas_core
                               : fmt::format("OpenBLAS {}, training processes take {}", facts.blas_core, cure)));
    out.push_back(pass("machine", "cores of this process", std::to_string(facts.cores)));
    rlimit files{};
    ::getrlimit(RLIMIT_NOFILE, &files);
    const std::string open_files = std::to_string(files.rlim_cur);
    out.push_back(files.rlim_cur < 256 ? failed("machine", "open files", open_files, "ulimit -n 1024")
                  : files.rlim_cur < 1024
                      ? warn("machine", "open files", open_files, "a server of many sites wants ulimit -n 4096")
                      : pass("machine", "open files", open_files));
    return out;
}

health_report check_phase(const run_config& c, std::uint64_t ranks) {
    const batch_shape shape{static_cast<std::uint64_t>(c.batch), ranks, static_cast<std::uint64_t>(c.accumulate)};
    const auto h = static_cast<std::uint64_t>(c.inner_steps), k = static_cast<std::uint64_t>(c.block_size);
    const auto blocks = blocks_nearest(h, shape, k);
    const auto step = global_batch(shape);
    if (!blocks || !step)
        return {failed("derived", "phase", blocks ? step.error().context : blocks.error().context,
                       "smaller train.batch or train.inner_steps")};
    const std::uint64_t steps = (*blocks * k + *step - 1) / *step;
    const std::string value = fmt::format("{} blocks of {} windows = {} steps of {} windows", *blocks, k, steps, *step);
    if (*blocks * k == h * *step) return {pass("derived", "phase", value)};
    std::uint64_t better = std::min(k, h * *step);  // the largest divisor of H G that is not above K
    while (better > 1 && (h * *step) % better != 0) --better;
    return {warn("derived", "phase", fmt::format("{}, {} wanted", value, h),
                 fmt::format("data.block_size = {} gives exactly {}", better, h))};
}

health_report check_inputs(const run_config& c, bool deep, std::uint64_t& folder_bytes) {
    if (c.flavour == "resnet18") return check_pictures(c, folder_bytes);
    health_report out;
    std::uint64_t vocabulary = 512, held_out_vocabulary = 512;
    out.push_back(check_one_corpus(c.manifest, "data.manifest", deep, vocabulary));
    if (c.held_out.empty())
        out.push_back(warn("corpus", "data.held_out", "not set", "without a held-out set no perplexity is known"));
    else
        out.push_back(check_one_corpus(c.held_out, "data.held_out", deep, held_out_vocabulary));
    const auto model = models::flavour(c.flavour, static_cast<std::int64_t>((vocabulary + 255) / 256 * 256));
    if (!model) {
        out.push_back(failed("model", "model.flavour", model.error().context, "darl init shows the names"));
        return out;
    }
    check_sizes(c, *model, folder_bytes, out);
    return out;
}

health_check check_listen(const std::string& address_and_port) {
    const auto [host, port] = host_and_port(address_and_port, "8760");
    const auto found = resolve(host, port, AI_PASSIVE | AI_NUMERICSERV);
    if (found.status != 0)
        return failed("network", "listen", fmt::format("{}: {}", address_and_port, ::gai_strerror(found.status)),
                      "give ADDRESS:PORT, for example 127.0.0.1:8760");
    const addrinfo* a = found.list.get();
    const int socket = ::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const bool free = socket >= 0 && ::bind(socket, a->ai_addr, a->ai_addrlen) == 0;
    const int why = errno;
    if (socket >= 0) ::close(socket);
    if (free) return pass("network", "listen", address_and_port + ": free");
    return failed("network", "listen", fmt::format("{}: {}", address_and_port, std::strerror(why)),
                  "choose another port, or stop what listens there");
}

health_report check_server(const client::client_options& options) {
    health_report out;
    const std::string families = families_of(options.base_url);
    if (families.empty())
        return {failed("server", "address", options.base_url + ": the host name is not known",
                       "check the URL and the resolver of this machine")};
    out.push_back(pass("server", "address", options.base_url + ": " + families));
    auto client = client::http_client::make(options);
    if (!client) {
        out.push_back(failed("server", "settings", client.error().context, "see darl train --help"));
        return out;
    }
    client::call ask;
    ask.path = "/health";
    const auto begun = stopwatch::now();
    const auto reply = client->perform(ask);
    if (!reply) {
        out.push_back(failed("server", "reach", reply.error().context,
                             "is darl serve up, and is a tunnel or proxy (network.proxy) needed from here?"));
        return out;
    }
    if (!reply->from_darl) {
        out.push_back(failed("server", "reach", fmt::format("something else answered with {}", reply->status),
                             "a proxy or another server is at this URL"));
        return out;
    }
    const std::string round_trip = fmt::format("answers in {:.1f} ms", ms_since(begun));
    out.push_back(reply->status == 200 ? pass("server", "reach", round_trip)
                                       : warn("server", "reach", fmt::format("{} with {}", round_trip, reply->status),
                                              "read the server's log: it is degraded or stopping"));
    if (const auto* date = reply->header("date"); date != nullptr)
        if (const auto offset = seconds_ahead_of(*date)) out.push_back(check_clock(*offset));
    const auto status = client::json_call(*client, "/status", json::value());
    if (status && (status->status == 401 || status->status == 403))
        out.push_back(failed("server", "token", status->sentence, "ask the server's owner for a token of this site"));
    else if (status && status->ok())
        out.push_back(pass("server", "token", "accepted"));
    return out;
}

}  // namespace darl
