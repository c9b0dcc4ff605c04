// SPDX-License-Identifier: Apache-2.0
#include "backends/storage/file_system.hpp"

#include <algorithm>

namespace darlcore::storage {

std::string join(std::string_view directory, std::string_view name) {
    std::string path(directory);
    if (!path.empty() && path.back() != '/') path.push_back('/');
    return path.append(name);
}

std::string parent_directory(std::string_view path) {
    const auto slash = path.find_last_of('/');
    if (slash == std::string_view::npos) return ".";
    return slash == 0 ? "/" : std::string(path.substr(0, slash));
}

result<void> pwrite_all(file& to, std::string_view bytes, std::uint64_t offset) {
    while (!bytes.empty()) {
        const auto written = to.pwrite(bytes, offset);
        if (!written) return written.error();
        if (*written == 0) return fail(errc::io_error, "a write took no bytes");
        bytes.remove_prefix(*written);
        offset += *written;
    }
    return {};
}

result<std::size_t> pread_all(file& from, std::span<char> into, std::uint64_t offset) {
    std::size_t filled = 0;
    while (filled < into.size()) {
        const auto got = from.pread(into.subspan(filled), offset + filled);
        if (!got) return got.error();
        if (*got == 0) break;
        filled += *got;
    }
    return filled;
}

result<std::string> read_file(file_system& fs, const std::string& path, std::uint64_t bytes_max) {
    auto opened = fs.open(path, open_mode::read);
    if (!opened) return opened.error();
    const auto size = (*opened)->size_bytes();
    if (!size) return size.error();
    if (*size > bytes_max)
        return fail(errc::too_large, path + " has " + std::to_string(*size) + " bytes, at most " +
                                         std::to_string(bytes_max) + " are read");
    std::string bytes(static_cast<std::size_t>(*size), '\0');
    const auto got = pread_all(**opened, bytes, 0);
    if (!got) return got.error();
    bytes.resize(*got);
    return bytes;
}

bool exists(file_system& fs, const std::string& path) { return fs.open(path, open_mode::read).has_value(); }

result<void> ensure_directory(file_system& fs, const std::string& path) {
    const auto made = fs.mkdir(path);
    if (!made && made.error().code != errc::already_exists) return made;
    // also when it was there: whoever made it may have died before the sync
    return fs.sync_dir(parent_directory(path));
}

result<void> replace_file(file_system& fs, const std::string& path, std::string_view bytes) {
    const std::string temporary = path + ".tmp";
    {
        auto opened = fs.open(temporary, open_mode::create);
        if (!opened) return opened.error();
        if (const auto cut = (*opened)->truncate(0); !cut) return cut;
        if (const auto written = pwrite_all(**opened, bytes, 0); !written) return written;
        if (const auto synced = (*opened)->fsync(); !synced) return synced;
    }
    if (const auto renamed = fs.rename(temporary, path); !renamed) return renamed;
    return fs.sync_dir(parent_directory(path));
}

result<void> link_or_copy(file_system& fs, const std::string& from, const std::string& to) {
    const auto linked = fs.link(from, to);
    if (linked || linked.error().code != errc::unsupported) return linked;
    const std::string temporary = to + ".tmp";
    {
        const auto source = fs.open(from, open_mode::read);
        if (!source) return source.error();
        const auto copy = fs.open(temporary, open_mode::create);
        if (!copy) return copy.error();
        if (const auto cut = (*copy)->truncate(0); !cut) return cut;
        std::string piece(std::size_t{1} << 20U, '\0');
        for (std::uint64_t at = 0;; at += piece.size()) {
            const auto got = pread_all(**source, piece, at);
            if (!got) return got.error();
            if (const auto written = pwrite_all(**copy, std::string_view(piece).substr(0, *got), at); !written)
                return written;
            if (*got < piece.size()) break;
        }
        if (const auto synced = (*copy)->fsync(); !synced) return synced;
    }
    return fs.rename(temporary, to);
}

result<void> remove_tree(file_system& fs, const std::string& path) {
    const auto entries = fs.list(path);
    if (!entries) {
        const auto removed = fs.unlink(path);
        if (!removed && removed.error().code != errc::not_found) return removed;
        return {};
    }
    for (const auto& entry : *entries)
        if (const auto removed = remove_tree(fs, join(path, entry.name)); !removed) return removed;
    return fs.rmdir(path);
}

}  // namespace darlcore::storage
