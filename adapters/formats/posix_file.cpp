// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/posix_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace darlcore::formats {

namespace {

error system_failure(const std::string& path, std::string_view action) {
    const int number = errno;
    errc code = errc::io_error;
    if (number == ENOENT) code = errc::not_found;
    if (number == EEXIST) code = errc::already_exists;
    if (number == ENOSPC || number == EDQUOT) code = errc::no_space;
    return fail(code, path + ": " + std::string(action) + ": " + std::strerror(number));
}

// Linux moves at most 2 GiB - 4 KiB per call.
constexpr std::size_t transfer_bytes_max = std::size_t{1} << 30U;

}  // namespace

posix_file::~posix_file() {
    if (fd_ >= 0) ::close(fd_);
}

result<posix_file> posix_file::open_for_reading(std::string path) {
    posix_file file;
    file.path_ = std::move(path);
    // A named pipe must not block the open; for a regular file the flag means nothing.
    file.fd_ = ::open(file.path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file.fd_ < 0) return system_failure(file.path_, "cannot open");
    const auto size = file.size_bytes();
    if (!size) return size.error();
    return file;
}

result<posix_file> posix_file::create(std::string path) {
    posix_file file;
    file.path_ = std::move(path);
    file.fd_ = ::open(file.path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file.fd_ < 0) return system_failure(file.path_, "cannot create");
    return file;
}

result<std::uint64_t> posix_file::size_bytes() const {
    struct stat info {};
    if (::fstat(fd_, &info) != 0) return system_failure(path_, "cannot stat");
    if (!S_ISREG(info.st_mode)) return fail(errc::io_error, path_ + ": is not a regular file");
    return static_cast<std::uint64_t>(info.st_size);
}

result<void> posix_file::read_at(std::uint64_t offset_bytes, std::span<std::byte> out) const {
    while (!out.empty()) {
        const ssize_t got =
            ::pread(fd_, out.data(), std::min(out.size(), transfer_bytes_max), static_cast<off_t>(offset_bytes));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return system_failure(path_, "cannot read at byte " + std::to_string(offset_bytes));
        if (got == 0)
            return fail(errc::short_read, path_ + ": ends at byte " + std::to_string(offset_bytes) + ", " +
                                              std::to_string(out.size()) + " more bytes were expected");
        offset_bytes += static_cast<std::uint64_t>(got);
        out = out.subspan(static_cast<std::size_t>(got));
    }
    return {};
}

result<void> posix_file::write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t put = ::write(fd_, bytes.data(), std::min(bytes.size(), transfer_bytes_max));
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return system_failure(path_, "cannot write");
        bytes = bytes.subspan(static_cast<std::size_t>(put));
    }
    return {};
}

result<void> posix_file::sync_and_close() {
    if (::fsync(fd_) != 0) return system_failure(path_, "cannot make durable");
    const int closed = ::close(std::exchange(fd_, -1));
    if (closed != 0) return system_failure(path_, "cannot close");
    return {};
}

result<void> sync_folder(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return system_failure(path, "cannot open");
    const int synced = ::fsync(fd);
    const auto failure = synced != 0 ? system_failure(path, "cannot make durable") : error{};
    ::close(fd);
    if (synced != 0) return failure;
    return {};
}

result<std::string> read_text_file(const std::string& path, std::uint64_t bytes_max) {
    const auto file = posix_file::open_for_reading(path);
    if (!file) return file.error();
    const auto size = file->size_bytes();
    if (!size) return size.error();
    if (*size > bytes_max)
        return fail(errc::too_large,
                    path + ": has " + std::to_string(*size) + " bytes, the limit is " + std::to_string(bytes_max));
    std::string text(static_cast<std::size_t>(*size), '\0');
    if (const auto ok = file->read_at(0, std::as_writable_bytes(std::span(text))); !ok) return ok.error();
    return text;
}

}  // namespace darlcore::formats
