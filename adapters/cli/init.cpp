// SPDX-License-Identifier: Apache-2.0
// `darl init`: a commented run.toml.
#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "adapters/cli/cli_support.hpp"
#include "adapters/cli/run_config.hpp"
#include "adapters/formats/json.hpp"

namespace darl {
namespace {

using darlcore::errc;
using darlcore::fail;

darlcore::result<std::string> write_run_file(const std::string& folder) {
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    if (failed) return fail(errc::io_error, fmt::format("{}: cannot be made: {}", folder, failed.message()));
    const std::string path = (std::filesystem::path(folder) / "run.toml").string();
    // O_EXCL: an existing run file is somebody's work
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 && errno == EEXIST)
        return fail(errc::already_exists, fmt::format("{}: exists already; remove it or choose another folder", path));
    if (fd < 0) return fail(errc::io_error, fmt::format("{}: {}", path, std::strerror(errno)));
    const std::string text = run_config_text();
    const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(fd) == 0;
    ::close(fd);
    if (!written) return fail(errc::io_error, fmt::format("{}: could not be written: {}", path, std::strerror(errno)));
    return path;
}

}  // namespace

void add_init(CLI::App& app, session& s) {
    auto* command =
        app.add_subcommand("init", "write a commented run.toml: every key with its default, unit and reason");
    auto* folder = command->add_option("DIR", "folder of the run file")->default_str(".");
    command->footer("Example: darl init my-run && $EDITOR my-run/run.toml");
    command->callback([&s, folder] {
        const auto path = write_run_file(folder->empty() ? "." : folder->as<std::string>());
        if (!path) return report(s, path.error());
        print_line(s.json ? darlcore::json::dump(darlcore::json::make_object({{"path", *path}})) : *path);
    });
}

}  // namespace darl
