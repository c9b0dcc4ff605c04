// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/local_server.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

#include "backends/curl/http_client.hpp"
#include "backends/curl/json_call.hpp"

namespace darl {

using namespace darlcore;
using namespace std::chrono_literals;

result<void> local_server::start(const std::string& state_dir, const std::string& log_file,
                                 const std::vector<std::string>& arguments) {
    state_dir_ = state_dir;
    log_file_ = log_file;
    return launch(arguments);
}

result<void> local_server::restart(const std::vector<std::string>& arguments) { return launch(arguments); }

result<void> local_server::launch(const std::vector<std::string>& arguments) {
    child_process::options o;
    o.argv = {program_, "serve", "--state-dir", state_dir_, "--listen", fmt::format("127.0.0.1:{}", port_)};
    o.argv.insert(o.argv.end(), arguments.begin(), arguments.end());
    o.read_stdout = true;
    o.stderr_file = log_file_;
    auto child = child_process::start(o);
    if (!child) return child.error();
    process_.emplace(*std::move(child));
    const auto failed = [&] {
        (void)process_->wait(5s);  // its last words
        const auto log = lines_of(log_file_);
        return fail(errc::io_error,
                    fmt::format("the server did not start: {} (see {})", log.empty() ? "" : log.back(), log_file_));
    };
    const auto line = process_->read_line(30s);
    if (!line) return failed();
    const auto first = json::parse(*line);
    const auto* url = first ? first->find("url") : nullptr;
    if (url == nullptr || url->as_string() == nullptr) return failed();
    url_ = *url->as_string();
    const std::size_t colon = url_.rfind(':');
    std::from_chars(url_.data() + colon + 1, url_.data() + url_.size(), port_);
    return {};
}

void local_server::stop() {
    if (!process_) return;
    process_->signal(SIGTERM);
    (void)process_->wait(20s);
    process_.reset();
}

std::optional<json::value> local_server::get(const std::string& path) const {
    client::client_options o;
    o.base_url = url_;
    o.call_ms = 5'000;
    auto client = client::http_client::make(o);
    if (!client) return std::nullopt;
    const auto reply = client::json_call(*client, path, json::value());
    if (!reply || !reply->ok()) return std::nullopt;
    return reply->body;
}

std::uint64_t count_of(const json::value& object, std::string_view key) {
    const auto* member = object.find(key);
    return member != nullptr ? member->as_u64().value_or(0) : 0;
}

namespace {

result<void> read_meta(const std::string& path, std::vector<merged_contribution>& merged) {
    std::ifstream file(path);
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const auto meta = json::parse(text);
    if (!meta) return fail(errc::corrupt, fmt::format("{}: {}", path, meta.error().context));
    const auto* list = meta->find("contributions");
    if (list == nullptr || list->as_array() == nullptr) return {};
    for (const auto& one : *list->as_array()) {
        const auto* id = one.find("id");
        const auto* share = one.find("share");
        if (id == nullptr || id->as_string() == nullptr || share == nullptr || !share->as_double())
            return fail(errc::corrupt, fmt::format("{}: a contribution without id or share", path));
        merged.push_back({*id->as_string(), static_cast<float>(*share->as_double())});
    }
    return {};
}

}  // namespace

result<std::vector<merged_contribution>> merged_in(const std::string& state_dir) {
    const std::filesystem::path folder = state_dir + "/model";
    std::error_code failed;
    std::vector<std::filesystem::path> generations;
    for (const auto& entry : std::filesystem::directory_iterator(folder, failed))
        if (entry.is_directory() && entry.path().filename().string().starts_with("gen-"))
            generations.push_back(entry.path());
    if (failed) return fail(errc::not_found, fmt::format("{}: {}", folder.string(), failed.message()));
    std::sort(generations.begin(), generations.end());
    std::vector<merged_contribution> merged;
    for (const auto& path : generations)
        if (auto read = read_meta((path / "meta.json").string(), merged); !read) return read.error();
    return merged;
}

result<std::string> current_generation(const std::string& state_dir) {
    const std::string pointer = state_dir + "/model/CURRENT";
    std::ifstream in(pointer);
    std::string name;
    std::getline(in, name);
    if (name.empty()) return fail(errc::not_found, fmt::format("{}: names no generation", pointer));
    return state_dir + "/model/" + name;
}

std::vector<std::string> lines_of(const std::string& path) {
    std::ifstream file(path);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
}

}  // namespace darl
