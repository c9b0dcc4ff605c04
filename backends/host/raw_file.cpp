// SPDX-License-Identifier: Apache-2.0
#include "backends/host/raw_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace darlcore::host {

result<raw_file> raw_file::open(const std::string& path) {
    raw_file file;
    file.path_ = path;
    file.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file.fd_ < 0)
        return fail(errno == ENOENT ? errc::not_found : errc::io_error,
                    path + ": cannot open: " + std::strerror(errno));
    struct stat info {};
    if (::fstat(file.fd_, &info) != 0 || !S_ISREG(info.st_mode))
        return fail(errc::io_error, path + ": is not a regular file");
    file.size_bytes_ = static_cast<std::uint64_t>(info.st_size);
    return file;
}

raw_file::raw_file(raw_file&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_bytes_(other.size_bytes_) {}

raw_file::~raw_file() {
    if (fd_ >= 0) ::close(fd_);
}

result<void> raw_file::read(std::uint64_t offset, std::span<std::byte> out) const {
    while (!out.empty()) {
        const ssize_t got =
            ::pread(fd_, out.data(), std::min<std::size_t>(out.size(), 1U << 30U), static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return fail(errc::io_error,
                        path_ + ": cannot read at byte " + std::to_string(offset) + ": " + std::strerror(errno));
        if (got == 0) return fail(errc::short_read, path_ + ": ends at byte " + std::to_string(offset));
        offset += static_cast<std::uint64_t>(got);
        out = out.subspan(static_cast<std::size_t>(got));
    }
    return {};
}

}  // namespace darlcore::host
