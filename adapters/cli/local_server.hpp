// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "adapters/cli/child_process.hpp"
#include "adapters/cli/simulation_audit.hpp"
#include "adapters/formats/json.hpp"
#include "darlcore/error.hpp"

namespace darl {

/// A `darl serve` of our own on loopback, as `darl simulate` and `darl demo` use it.
class local_server {
public:
    explicit local_server(std::string program = own_program()) : program_(std::move(program)) {}

    /// Starts it on a port that the system picks; `arguments` are added to the command.
    /// Errors: errc::io_error naming the log to read.
    darlcore::result<void> start(const std::string& state_dir, const std::string& log_file,
                                 const std::vector<std::string>& arguments);
    /// SIGKILL, as a crash.
    void kill() { process_->kill(); }
    /// The same state on the same port.
    darlcore::result<void> restart(const std::vector<std::string>& arguments = {});
    /// SIGTERM, and waits.
    void stop();

    [[nodiscard]] const std::string& url() const { return url_; }
    /// GET of a path; nothing when it does not answer with JSON.
    [[nodiscard]] std::optional<darlcore::json::value> get(const std::string& path) const;

private:
    darlcore::result<void> launch(const std::vector<std::string>& arguments);

    std::string program_;
    std::string state_dir_;
    std::string log_file_;
    std::optional<child_process> process_;
    std::string url_;
    std::uint16_t port_ = 0;
};

/// A whole number of a JSON object; 0 when it is not there.
std::uint64_t count_of(const darlcore::json::value& object, std::string_view key);

/// Reads what was merged from the metas of all generations that a state directory still has.
/// Errors: errc::not_found, errc::corrupt naming the file.
darlcore::result<std::vector<merged_contribution>> merged_in(const std::string& state_dir);

/// The folder of the current generation.
/// Errors: errc::not_found.
darlcore::result<std::string> current_generation(const std::string& state_dir);

/// The lines of a text file.
std::vector<std::string> lines_of(const std::string& path);

}  // namespace darl
