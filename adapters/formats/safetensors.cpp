// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/safetensors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

namespace darlcore::formats {

namespace {

error system_error(const std::string& path, std::string_view action) {
    const int number = errno;
    errc code = errc::io_error;
    if (number == ENOENT) code = errc::not_found;
    if (number == EEXIST) code = errc::already_exists;
    if (number == ENOSPC || number == EDQUOT) code = errc::no_space;
    return fail(code, path + ": " + std::string(action) + ": " + std::strerror(number));
}

error damaged(errc code, const std::string& path, const std::string& reason) {
    const char* fix = code == errc::out_of_memory ? "" : "; write or copy the file again";
    return fail(code, path + ": " + reason + fix);
}

// Linux moves at most 2 GiB - 4 KiB per call, so every transfer is a loop.
result<void> read_fully(int fd, const std::string& path, std::uint64_t offset, std::span<std::byte> out) {
    while (!out.empty()) {
        const ssize_t got =
            ::pread(fd, out.data(), std::min<std::size_t>(out.size(), 1U << 30U), static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return system_error(path, "cannot read at byte " + std::to_string(offset));
        if (got == 0)
            return fail(errc::short_read, path + ": ends at byte " + std::to_string(offset) + ", more was announced");
        offset += static_cast<std::uint64_t>(got);
        out = out.subspan(static_cast<std::size_t>(got));
    }
    return {};
}

result<void> write_fully(int fd, const std::string& path, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t put = ::write(fd, bytes.data(), std::min<std::size_t>(bytes.size(), 1U << 30U));
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return system_error(path, "cannot write");
        bytes = bytes.subspan(static_cast<std::size_t>(put));
    }
    return {};
}

std::uint64_t little_endian(std::span<const std::byte, 8> bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < 8; ++i) value |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
    return value;
}

result<std::uint64_t> regular_file_bytes(int fd, const std::string& path) {
    struct stat info {};
    if (::fstat(fd, &info) != 0) return system_error(path, "cannot stat");
    if (!S_ISREG(info.st_mode)) return fail(errc::io_error, path + ": is not a regular file");
    return static_cast<std::uint64_t>(info.st_size);
}

result<std::uint64_t> read_header_length(int fd, const std::string& path, std::uint64_t file_bytes,
                                         std::uint64_t header_bytes_max) {
    if (file_bytes < 8)
        return damaged(errc::truncated, path,
                       "has " + std::to_string(file_bytes) + " bytes, a header needs 8 and more");
    std::array<std::byte, 8> raw{};
    if (const auto ok = read_fully(fd, path, 0, raw); !ok) return ok.error();
    const std::uint64_t length = little_endian(raw);
    if (length > header_bytes_max)
        return damaged(errc::too_large, path,
                       "announces a header of " + std::to_string(length) + " bytes, the limit is " +
                           std::to_string(header_bytes_max));
    if (length > file_bytes - 8)
        return damaged(errc::truncated, path,
                       "announces a header of " + std::to_string(length) + " bytes, only " +
                           std::to_string(file_bytes - 8) + " follow");
    return length;
}

}  // namespace

result<safetensors_reader> safetensors_reader::open(std::string path, std::uint64_t header_bytes_max) {
    safetensors_reader reader;
    reader.path_ = std::move(path);
    reader.fd_ = ::open(reader.path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (reader.fd_ < 0) return system_error(reader.path_, "cannot open");
    const auto size = regular_file_bytes(reader.fd_, reader.path_);
    if (!size) return size.error();
    reader.file_bytes_ = *size;
    const auto length = read_header_length(reader.fd_, reader.path_, *size, header_bytes_max);
    if (!length) return length.error();
    std::string text(*length, '\0');
    if (const auto ok = read_fully(reader.fd_, reader.path_, 8, std::as_writable_bytes(std::span(text))); !ok)
        return ok.error();
    reader.data_begin_ = 8 + *length;
    auto header = parse_safetensors_header(text, *size - reader.data_begin_);
    if (!header) return damaged(header.error().code, reader.path_, header.error().context);
    reader.header_ = *std::move(header);
    return reader;
}

safetensors_reader::safetensors_reader(safetensors_reader&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      file_bytes_(other.file_bytes_),
      data_begin_(other.data_begin_),
      header_(std::move(other.header_)) {}

safetensors_reader& safetensors_reader::operator=(safetensors_reader&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(fd_, other.fd_);
    std::swap(file_bytes_, other.file_bytes_);
    std::swap(data_begin_, other.data_begin_);
    std::swap(header_, other.header_);
    return *this;
}

safetensors_reader::~safetensors_reader() {
    if (fd_ >= 0) ::close(fd_);
}

result<void> safetensors_reader::read(std::uint64_t offset_bytes, std::span<std::byte> out) const {
    return read_fully(fd_, path_, data_begin_ + offset_bytes, out);
}

result<void> safetensors_reader::read(const safetensors_entry& entry, std::uint64_t offset_bytes,
                                      std::span<std::byte> out) const {
    DARLCORE_ASSERT(offset_bytes <= entry.size_bytes() && out.size() <= entry.size_bytes() - offset_bytes);
    return read(entry.begin_bytes + offset_bytes, out);
}

result<safetensors_writer> safetensors_writer::create(std::string path, std::span<const tensor_spec> tensors,
                                                      const safetensors_metadata& metadata) {
    auto header = build_safetensors_header(tensors, metadata);
    if (!header) return fail(header.error().code, path + ": " + header.error().context);
    safetensors_writer writer;
    writer.header_ = *std::move(header);
    for (const tensor_spec& spec : tensors) writer.data_bytes_ += *byte_count(*element_count(spec.shape), spec.dtype);
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) return system_error(path, "cannot create");
    writer.path_ = std::move(path);
    writer.fd_ = fd;
    if (auto ok = write_fully(fd, writer.path_, std::as_bytes(std::span(writer.header_))); !ok) return ok.error();
    return writer;
}

safetensors_writer::safetensors_writer(safetensors_writer&& other) noexcept
    : path_(std::move(other.path_)),
      header_(std::move(other.header_)),
      fd_(std::exchange(other.fd_, -1)),
      data_bytes_(other.data_bytes_),
      written_bytes_(other.written_bytes_.load()) {}

safetensors_writer& safetensors_writer::operator=(safetensors_writer&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(header_, other.header_);
    std::swap(fd_, other.fd_);
    std::swap(data_bytes_, other.data_bytes_);
    other.written_bytes_ = written_bytes_.exchange(other.written_bytes_.load());
    return *this;
}

safetensors_writer::~safetensors_writer() { drop(); }

void safetensors_writer::drop() noexcept {
    if (fd_ < 0) return;
    ::close(std::exchange(fd_, -1));
    ::unlink(path_.c_str());
}

result<void> safetensors_writer::write(std::span<const std::byte> bytes) {
    DARLCORE_ASSERT(fd_ >= 0);
    DARLCORE_ASSERT_CMP(bytes.size(), <=, data_bytes_ - written_bytes_);
    if (auto ok = write_fully(fd_, path_, bytes); !ok) return ok;
    written_bytes_ += bytes.size();
    return {};
}

result<void> safetensors_writer::write_at(std::uint64_t offset_bytes, std::span<const std::byte> bytes) {
    DARLCORE_ASSERT(fd_ >= 0 && offset_bytes <= data_bytes_ && bytes.size() <= data_bytes_ - offset_bytes);
    written_bytes_ += bytes.size();
    std::uint64_t offset = header_.size() + offset_bytes;
    while (!bytes.empty()) {
        const ssize_t put =
            ::pwrite(fd_, bytes.data(), std::min<std::size_t>(bytes.size(), 1U << 30U), static_cast<off_t>(offset));
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return system_error(path_, "cannot write at byte " + std::to_string(offset));
        offset += static_cast<std::uint64_t>(put);
        bytes = bytes.subspan(static_cast<std::size_t>(put));
    }
    return {};
}

result<void> safetensors_writer::finish() {
    DARLCORE_ASSERT(fd_ >= 0);
    if (written_bytes_ != data_bytes_) {
        const std::uint64_t missing = data_bytes_ - written_bytes_;
        drop();
        return fail(errc::truncated,
                    path_ + ": " + std::to_string(missing) + " bytes of its tensors were never written");
    }
    if (::fsync(fd_) != 0) {
        const error failure = system_error(path_, "cannot make durable");
        drop();
        return failure;
    }
    // Nothing is buffered after fsync, so that an error of close could not tell about lost data.
    ::close(std::exchange(fd_, -1));
    return {};
}

std::string staging_name(const std::string& path) {
    static std::atomic<std::uint64_t> calls{0};
    return path + ".staging-" + std::to_string(::getpid()) + "-" + std::to_string(calls.fetch_add(1));
}

result<void> publish_file(const std::string& staging, const std::string& path) {
    if (::rename(staging.c_str(), path.c_str()) != 0) return system_error(path, "cannot rename " + staging + " to it");
    const std::size_t slash = path.find_last_of('/');
    const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
    const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return system_error(folder, "cannot open the folder");
    const bool synced = ::fsync(fd) == 0;
    error failure = synced ? error{} : system_error(folder, "cannot make the rename durable");
    ::close(fd);
    if (!synced) return failure;
    return {};
}

}  // namespace darlcore::formats
