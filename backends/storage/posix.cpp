// SPDX-License-Identifier: Apache-2.0
#include "backends/storage/posix.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace darlcore::storage {
namespace {

error from_errno(int number, const char* call, const std::string& path) {
    errc code = errc::io_error;
    if (number == ENOSPC || number == EDQUOT || number == EFBIG) code = errc::no_space;
    if (number == ENOENT || number == ENOTDIR) code = errc::not_found;
    if (number == EEXIST || number == ENOTEMPTY) code = errc::already_exists;
    std::array<char, 128> buffer{};
    const char* text = strerror_r(number, buffer.data(), buffer.size());
    return fail(code, path + ": " + call + ": " + text);
}

template <class F>
auto uninterrupted(F&& call) {
    auto answer = call();
    while (answer < 0 && errno == EINTR) answer = call();
    return answer;
}

result<void> done(int answer, const char* call, const std::string& path) {
    if (answer != 0) return from_errno(errno, call, path);
    return {};
}

// A failed sync is an I/O error whatever its number (a full disk too), reported as it is: repeating it could succeed
// although pages were lost.
result<void> synced(int answer, const char* call, const std::string& path) {
    if (answer != 0) return fail(errc::io_error, from_errno(errno, call, path).context);
    return {};
}

class descriptor {
public:
    explicit descriptor(int number) : number_(number) {}
    descriptor(const descriptor&) = delete;
    descriptor& operator=(const descriptor&) = delete;
    ~descriptor() {
        if (number_ >= 0) ::close(number_);
    }
    [[nodiscard]] int number() const { return number_; }

private:
    int number_;
};

class posix_file final : public file {
public:
    posix_file(int number, std::string path) : descriptor_(number), path_(std::move(path)) {}

    result<std::size_t> pread(std::span<char> into, std::uint64_t offset) override {
        const auto got = uninterrupted(
            [&] { return ::pread(descriptor_.number(), into.data(), into.size(), static_cast<off_t>(offset)); });
        if (got < 0) return from_errno(errno, "read", path_);
        return static_cast<std::size_t>(got);
    }
    result<std::size_t> pwrite(std::string_view bytes, std::uint64_t offset) override {
        const auto written = uninterrupted(
            [&] { return ::pwrite(descriptor_.number(), bytes.data(), bytes.size(), static_cast<off_t>(offset)); });
        if (written < 0) return from_errno(errno, "write", path_);
        return static_cast<std::size_t>(written);
    }
    result<void> fsync() override { return synced(::fsync(descriptor_.number()), "fsync", path_); }
    result<void> fdatasync() override { return synced(::fdatasync(descriptor_.number()), "fdatasync", path_); }
    result<void> truncate(std::uint64_t size_bytes) override {
        return done(uninterrupted([&] { return ::ftruncate(descriptor_.number(), static_cast<off_t>(size_bytes)); }),
                    "truncate", path_);
    }
    result<void> preallocate(std::uint64_t size_bytes) override {
        const auto size = this->size_bytes();
        if (!size) return size.error();
        if (*size >= size_bytes) return {};
        int number = EINTR;
        while (number == EINTR)
            number = ::posix_fallocate(descriptor_.number(), static_cast<off_t>(*size),
                                       static_cast<off_t>(size_bytes - *size));
        if (number != 0) return from_errno(number, "preallocate", path_);
        return {};
    }
    result<std::uint64_t> size_bytes() override {
        struct stat info {};
        if (::fstat(descriptor_.number(), &info) != 0) return from_errno(errno, "stat", path_);
        return static_cast<std::uint64_t>(info.st_size);
    }

private:
    descriptor descriptor_;
    std::string path_;
};

class posix_lock final : public file_lock {
public:
    explicit posix_lock(int number) : descriptor_(number) {}

private:
    descriptor descriptor_;
};

int open_flags(open_mode mode) {
    switch (mode) {
        case open_mode::read:
            return O_RDONLY | O_CLOEXEC;
        case open_mode::read_write:
            return O_RDWR | O_CLOEXEC;
        case open_mode::create_new:
            return O_RDWR | O_CLOEXEC | O_CREAT | O_EXCL;
        case open_mode::create:
            return O_RDWR | O_CLOEXEC | O_CREAT;
    }
    return O_RDONLY | O_CLOEXEC;
}

entry_kind kind_of(const std::string& directory, const dirent& entry) {
    if (entry.d_type == DT_REG) return entry_kind::file;
    if (entry.d_type == DT_DIR) return entry_kind::directory;
    struct stat info {};
    if (entry.d_type != DT_UNKNOWN || ::lstat(join(directory, entry.d_name).c_str(), &info) != 0)
        return entry_kind::other;
    if (S_ISREG(info.st_mode)) return entry_kind::file;
    return S_ISDIR(info.st_mode) ? entry_kind::directory : entry_kind::other;
}

}  // namespace

result<std::unique_ptr<file>> posix_file_system::open(const std::string& path, open_mode mode) {
    const int number = uninterrupted([&] { return ::open(path.c_str(), open_flags(mode), 0600); });
    if (number < 0) return from_errno(errno, "open", path);
    return std::unique_ptr<file>(std::make_unique<posix_file>(number, path));
}

result<void> posix_file_system::rename(const std::string& from, const std::string& to) {
    return done(::rename(from.c_str(), to.c_str()), "rename", from);
}

result<void> posix_file_system::unlink(const std::string& path) { return done(::unlink(path.c_str()), "unlink", path); }

result<void> posix_file_system::link(const std::string& from, const std::string& to) {
    if (::link(from.c_str(), to.c_str()) == 0) return {};
    if (errno == EPERM || errno == EXDEV || errno == EOPNOTSUPP || errno == EMLINK)
        return fail(errc::unsupported, to + ": this file system has no hard links");
    return from_errno(errno, "link", from);
}

result<void> posix_file_system::mkdir(const std::string& path) {
    return done(::mkdir(path.c_str(), 0700), "mkdir", path);
}

result<void> posix_file_system::rmdir(const std::string& path) { return done(::rmdir(path.c_str()), "rmdir", path); }

result<std::vector<directory_entry>> posix_file_system::list(const std::string& path) {
    DIR* directory = ::opendir(path.c_str());
    if (directory == nullptr) return from_errno(errno, "list", path);
    std::vector<directory_entry> entries;
    errno = 0;
    while (const dirent* entry = ::readdir(directory)) {
        const std::string_view name(entry->d_name);
        if (name != "." && name != "..") entries.push_back({std::string(name), kind_of(path, *entry)});
        errno = 0;
    }
    const int number = errno;
    ::closedir(directory);
    if (number != 0) return from_errno(number, "list", path);
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return entries;
}

result<void> posix_file_system::sync_dir(const std::string& path) {
    const descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (directory.number() < 0) return from_errno(errno, "open", path);
    return synced(::fsync(directory.number()), "fsync", path);
}

result<std::uint64_t> posix_file_system::free_bytes(const std::string& path) {
    struct statvfs info {};
    if (::statvfs(path.c_str(), &info) != 0) return from_errno(errno, "statvfs", path);
    return static_cast<std::uint64_t>(info.f_bavail) * static_cast<std::uint64_t>(info.f_frsize);
}

result<std::unique_ptr<file_lock>> posix_file_system::lock(const std::string& path) {
    const int number = uninterrupted([&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600); });
    if (number < 0) return from_errno(errno, "open", path);
    auto held = std::make_unique<posix_lock>(number);
    if (uninterrupted([&] { return ::flock(number, LOCK_EX | LOCK_NB); }) != 0) {
        if (errno == EWOULDBLOCK) return fail(errc::locked, path + " is held by another process");
        return from_errno(errno, "flock", path);
    }
    return std::unique_ptr<file_lock>(std::move(held));
}

std::string file_system_type(const std::string& path) {
    struct statfs info {};
    if (::statfs(path.c_str(), &info) != 0) return "unknown";
    const auto magic = static_cast<std::uint64_t>(info.f_type) & 0xffffffffU;
    static constexpr std::pair<std::uint64_t, const char*> known[] = {
        {0xef53, "ext4"},    {0x58465342, "xfs"},    {0x9123683e, "btrfs"}, {0x01021994, "tmpfs"},
        {0x6969, "nfs"},     {0x0bd00bd0, "lustre"}, {0x47504653, "gpfs"},  {0x794c7630, "overlay"},
        {0x2fc12fc1, "zfs"}, {0x19830326, "beegfs"}, {0x00c36400, "ceph"},  {0x65735546, "fuse"},
    };
    for (const auto& [number, name] : known)
        if (number == magic) return name;
    static constexpr char digits[] = "0123456789abcdef";
    std::string text = "0x";
    for (int shift = 28; shift >= 0; shift -= 4) text.push_back(digits[(magic >> static_cast<unsigned>(shift)) & 15U]);
    return text;
}

std::string boot_id() {
    posix_file_system fs;
    // a file of /proc has no size: read it by hand
    auto opened = fs.open("/proc/sys/kernel/random/boot_id", open_mode::read);
    if (!opened) return {};
    std::array<char, 64> buffer{};
    const auto got = (*opened)->pread(buffer, 0);
    std::string text(buffer.data(), got ? *got : 0);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
}

std::string host_name() {
    std::array<char, 256> buffer{};
    if (::gethostname(buffer.data(), buffer.size() - 1) != 0) return {};
    return buffer.data();
}

}  // namespace darlcore::storage
