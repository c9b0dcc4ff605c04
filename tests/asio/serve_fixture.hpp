// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "adapters/cli/child_process.hpp"
#include "adapters/formats/json.hpp"
#include "backends/curl/json_call.hpp"

namespace darlcore::http::testing {

/// A folder of this test alone, removed at its end.
class temporary_folder {
public:
    temporary_folder() {
        std::string pattern = (std::filesystem::temp_directory_path() / "darl_serve_XXXXXX").string();
        path_ = ::mkdtemp(pattern.data());
    }
    ~temporary_folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    temporary_folder(const temporary_folder&) = delete;
    temporary_folder& operator=(const temporary_folder&) = delete;
    [[nodiscard]] std::string operator/(const std::string& name) const {
        return (std::filesystem::path(path_) / name).string();
    }

private:
    std::string path_;
};

/// The real `darl serve` on port 0. It ends with this object, whatever way the test ends.
class served {
public:
    served(std::string state_dir, std::vector<std::string> arguments, const std::string& token = "",
           const std::string& listen = "127.0.0.1:0",
           const std::vector<std::pair<std::string, std::string>>& environment = {}) {
        darl::child_process::options o;
        o.argv = {DARL_PROGRAM, "serve", "--state-dir", std::move(state_dir), "--listen", listen, "--reserve-mib", "1"};
        o.argv.insert(o.argv.end(), arguments.begin(), arguments.end());
        o.environment = environment;
        if (!token.empty()) o.environment.emplace_back("DARL_TOKEN", token);
        o.stderr_file = log_ / "server.log";
        o.read_stdout = true;
        auto started = darl::child_process::start(o);
        if (!started) return;
        child_.emplace(std::move(*started));
        const auto line = child_->read_line(std::chrono::seconds(60));
        if (!line) return;
        const auto parsed = json::parse(*line);
        if (parsed && parsed->contains("url")) url_ = *parsed->at("url").as_string();
        if (parsed && parsed->contains("term")) term_ = parsed->at("term").as_u64().value_or(0);
    }

    [[nodiscard]] bool up() const { return !url_.empty(); }
    [[nodiscard]] const std::string& url() const { return url_; }
    [[nodiscard]] std::uint16_t port() const {
        return static_cast<std::uint16_t>(std::stoi(url_.substr(url_.rfind(':') + 1)));
    }
    [[nodiscard]] std::uint64_t term() const { return term_; }
    [[nodiscard]] std::string log() const {
        std::ifstream in(log_ / "server.log");
        return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    }
    darl::child_process& child() { return *child_; }
    /// Waits for the end; -1 when there is none within a minute.
    int exit_code() { return child_ ? child_->wait(std::chrono::seconds(60)).value_or(-1) : -1; }
    int stop() {
        child_->signal(SIGTERM);
        return exit_code();
    }

    [[nodiscard]] client::http_client client(const std::string& token = "") const {
        client::client_options o;
        o.base_url = url_;
        o.token = token;
        return client::http_client::make(o).value();
    }

private:
    temporary_folder log_;
    std::optional<darl::child_process> child_;
    std::string url_;
    std::uint64_t term_ = 0;
};

/// POST without retries; an answer without a connection counts as status 0.
inline client::json_answer post(client::http_client& c, const std::string& path, const json::value& body) {
    auto got = client::json_call(c, path, body);
    return got ? std::move(*got) : client::json_answer{};
}
inline client::json_answer get(client::http_client& c, const std::string& path) { return post(c, path, {}); }

}  // namespace darlcore::http::testing
