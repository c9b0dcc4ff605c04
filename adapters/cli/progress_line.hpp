// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace darl {

/// "[#####...............] 25 of 100"
inline std::string progress_bar(std::uint64_t done, std::uint64_t all) {
    constexpr std::uint64_t cells = 30;
    const std::uint64_t full = all > 0 ? std::min(cells, cells * done / all) : 0;
    return fmt::format("[{:#<{}}{:.<{}}] {} of {}", "", full, "", cells - full, done, all);
}

/// A line on stderr that is written over, on a terminal only; in a log it is not there. One thread at a time.
class progress_line {
public:
    explicit progress_line(bool wanted) : shown_(wanted && ::isatty(STDERR_FILENO) != 0) {}
    progress_line(const progress_line&) = delete;
    progress_line& operator=(const progress_line&) = delete;
    ~progress_line() {
        if (written_) fmt::print(stderr, "\n");
    }
    [[nodiscard]] bool shown() const { return shown_; }
    /// At most ten times a second; a text that comes sooner is left out.
    void show(std::string_view text) {
        const auto now = std::chrono::steady_clock::now();
        if (!shown_ || (written_ && now - last_ < std::chrono::milliseconds(100))) return;
        last_ = now;
        fmt::print(stderr, "\r{}\x1b[K", text);
        written_ = true;
    }
    /// A line of its own, in logs too; what was shown stays above it.
    void event(std::string_view text) {
        fmt::print(stderr, "{}{}\n", written_ ? "\n" : "", text);
        written_ = false;
    }

private:
    bool shown_;
    bool written_ = false;
    std::chrono::steady_clock::time_point last_{};
};

}  // namespace darl
