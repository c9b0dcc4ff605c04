// SPDX-License-Identifier: Apache-2.0
#include "backends/slurm/durable_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

namespace darlcore::slurm {

error system_failure(const std::string& path, std::string_view what) {
    const int why = errno;
    const errc code = why == ENOSPC || why == EDQUOT ? errc::no_space : errc::io_error;
    return fail(code, path + ": " + std::string(what) + ": " + std::strerror(why));
}

result<void> append_durably(int fd, const std::string& path, std::string_view text) {
    while (!text.empty()) {
        const ssize_t n = ::write(fd, text.data(), text.size());
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return system_failure(path, "cannot be written");
        text.remove_prefix(static_cast<std::size_t>(n));
    }
    if (::fdatasync(fd) != 0) return system_failure(path, "cannot be synced");
    return {};
}

result<void> sync_folder(const std::string& folder) {
    const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool synced = fd >= 0 && ::fsync(fd) == 0;
    const error failure = system_failure(folder, "cannot be synced");
    if (fd >= 0) ::close(fd);
    if (!synced) return failure;
    return {};
}

result<void> replace_durably(const std::string& folder, const std::string& name, std::string_view text) {
    const std::string temporary = folder + "/." + name;
    const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return system_failure(temporary, "cannot be made");
    auto written = append_durably(fd, temporary, text);
    ::close(fd);
    if (!written) {
        ::unlink(temporary.c_str());
        return written;
    }
    if (::rename(temporary.c_str(), (folder + "/" + name).c_str()) != 0)
        return system_failure(temporary, "cannot be renamed");
    return sync_folder(folder);
}

std::string read_whole(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace darlcore::slurm
