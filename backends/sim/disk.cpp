// SPDX-License-Identifier: Apache-2.0
#include "backends/sim/disk.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "backends/sim/rng.hpp"
#include "darlcore/assert.hpp"

namespace darlcore::sim {
namespace {

using storage::open_mode;

void apply_write(std::string& to, std::uint64_t offset, std::string_view bytes) {
    if (to.size() < offset + bytes.size()) to.resize(offset + bytes.size(), '\0');
    std::copy(bytes.begin(), bytes.end(), to.begin() + static_cast<std::ptrdiff_t>(offset));
}

void apply_name(std::map<std::uint64_t, disk_image::inode>& inodes, std::uint64_t directory,
                const disk_image::name_change& change, std::map<std::string, std::uint64_t> disk_image::inode::*names) {
    if (change.other_directory != 0) (inodes.at(change.other_directory).*names).erase(change.other_name);
    auto& map = inodes.at(directory).*names;
    if (change.inode == 0)
        map.erase(change.name);
    else
        map[change.name] = change.inode;
}

std::vector<std::string_view> parts_of(std::string_view path) {
    std::vector<std::string_view> parts;
    while (!path.empty()) {
        const auto slash = path.find('/');
        const auto part = path.substr(0, slash);
        if (!part.empty() && part != ".") parts.push_back(part);
        path = slash == std::string_view::npos ? std::string_view{} : path.substr(slash + 1);
    }
    return parts;
}

std::string base_name(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

bool keeps_data(loss mode, rng& random, bool is_late) {
    switch (mode) {
        case loss::dropped:
        case loss::names_only:
            return false;
        case loss::kept:
        case loss::data_only:
            return true;
        case loss::random_512:
        case loss::random_8:
            return random.one_in(2);
        case loss::late_only:
            return is_late;
    }
    return false;
}

bool keeps_name(loss mode, rng& random) {
    switch (mode) {
        case loss::dropped:
        case loss::data_only:
            return false;
        case loss::kept:
        case loss::names_only:
            return true;
        default:
            return random.one_in(2);
    }
}

// The parts of an unsynced write that reached the disk, sector by sector.
void keep_sectors(std::string& content, const disk_image::change& change, loss mode, rng& random, bool is_late_change) {
    const std::uint64_t sector = mode == loss::random_8 || mode == loss::late_only ? 8 : 512;
    const std::uint64_t end = change.offset + change.bytes.size();
    for (std::uint64_t from = change.offset; from < end;) {
        const std::uint64_t to = std::min(end, (from / sector + 1) * sector);
        const bool is_late = is_late_change && 2 * (from - change.offset) >= change.bytes.size();
        if (keeps_data(mode, random, is_late))
            apply_write(content, from, std::string_view(change.bytes).substr(from - change.offset, to - from));
        from = to;
    }
}

bool takes_space(io_kind kind) {
    return kind == io_kind::open || kind == io_kind::pwrite || kind == io_kind::preallocate || kind == io_kind::mkdir ||
           kind == io_kind::link || kind == io_kind::rename;
}

bool is_sync(io_kind kind) { return kind == io_kind::fsync || kind == io_kind::fdatasync || kind == io_kind::sync_dir; }

}  // namespace

std::string_view word(io_kind kind) {
    static constexpr std::array<std::string_view, 17> words{
        "open",   "pread", "pwrite", "fsync", "fdatasync", "truncate", "preallocate", "size", "rename",
        "unlink", "link",  "mkdir",  "rmdir", "list",      "sync_dir", "free",        "lock"};
    return words[static_cast<std::size_t>(kind)];
}

std::string_view word(loss mode) {
    static constexpr std::array<std::string_view, 7> words{"dropped",    "kept",     "names_only", "data_only",
                                                           "random_512", "random_8", "late_only"};
    return words[static_cast<std::size_t>(mode)];
}

namespace {

/// Inodes that some directory names; the others are gone for the next start.
std::set<std::uint64_t> named_inodes(const disk_image& image) {
    std::set<std::uint64_t> named{disk_image::root};
    for (const auto& [number, node] : image.inodes)
        for (const auto& [name, target] : node.names) named.insert(target);
    return named;
}

}  // namespace

disk_image disk_image::after_power_cut(loss mode, std::uint64_t seed) const {
    rng random(seed);
    disk_image left = *this;
    for (auto& [number, node] : left.inodes) {
        for (std::size_t i = 0; i < node.pending.size(); ++i) {
            const auto& made = node.pending[i];
            const bool is_late = 2 * i + 1 >= node.pending.size();
            if (!made.is_resize)
                keep_sectors(node.durable, made, mode, random, is_late);
            else if (keeps_data(mode, random, is_late))
                node.durable.resize(made.offset, '\0');
        }
        node.pending.clear();
        node.current = node.durable;
    }
    std::map<std::uint64_t, std::pair<std::uint64_t, name_change>> in_order;
    for (auto& [number, node] : left.inodes) {
        for (auto& made : node.pending_names) in_order.emplace(made.order, std::pair(number, made));
        node.pending_names.clear();
    }
    for (const auto& [order, made] : in_order)
        if (keeps_name(mode, random)) apply_name(left.inodes, made.first, made.second, &inode::durable_names);
    for (auto& [number, node] : left.inodes) node.names = node.durable_names;
    const auto named = named_inodes(left);
    std::erase_if(left.inodes, [&](const auto& entry) { return !named.contains(entry.first); });
    return left;
}

class simulated_file final : public storage::file {
public:
    simulated_file(disk& on, std::uint64_t inode, std::string path)
        : disk_(on), inode_(inode), path_(std::move(path)) {}

    result<std::size_t> pread(std::span<char> into, std::uint64_t offset) override {
        return disk_.call(io_kind::pread, path_, [&](const disk::verdict& v) -> result<std::size_t> {
            if (v.fails) return v.failure;
            const auto& content = disk_.at(inode_).current;
            if (offset >= content.size()) return std::size_t{0};
            std::size_t count = std::min<std::size_t>(into.size(), content.size() - offset);
            if (v.is_short) count = (count + 1) / 2;
            std::copy_n(content.begin() + static_cast<std::ptrdiff_t>(offset), count, into.begin());
            return count;
        });
    }

    result<std::size_t> pwrite(std::string_view bytes, std::uint64_t offset) override {
        return disk_.call(io_kind::pwrite, path_, [&](const disk::verdict& v) -> result<std::size_t> {
            // a write that fails may have moved a part
            if (v.fails) write(bytes.substr(0, bytes.size() / 2), offset);
            if (v.fails) return v.failure;
            const auto& content = disk_.at(inode_).current;
            const std::uint64_t end = offset + bytes.size();
            if (end > content.size() && end - content.size() > disk_.room_bytes())
                return fail(errc::no_space, path_ + ": the simulated disk is full");
            const std::size_t count = v.is_short ? (bytes.size() + 1) / 2 : bytes.size();
            write(bytes.substr(0, count), offset);
            return count;
        });
    }

    result<void> fsync() override { return sync(io_kind::fsync); }
    result<void> fdatasync() override { return sync(io_kind::fdatasync); }

    result<void> truncate(std::uint64_t size_bytes) override {
        return disk_.call(io_kind::truncate, path_, [&](const disk::verdict& v) -> result<void> {
            if (v.fails) return v.failure;
            return disk_.resize(inode_, path_, size_bytes);
        });
    }
    result<void> preallocate(std::uint64_t size_bytes) override {
        return disk_.call(io_kind::preallocate, path_, [&](const disk::verdict& v) -> result<void> {
            if (v.fails) return v.failure;
            if (disk_.at(inode_).current.size() >= size_bytes) return {};
            return disk_.resize(inode_, path_, size_bytes);
        });
    }
    result<std::uint64_t> size_bytes() override {
        return disk_.call(io_kind::size, path_, [&](const disk::verdict& v) -> result<std::uint64_t> {
            if (v.fails) return v.failure;
            return static_cast<std::uint64_t>(disk_.at(inode_).current.size());
        });
    }

private:
    void write(std::string_view bytes, std::uint64_t offset) {
        auto& node = disk_.at(inode_);
        apply_write(node.current, offset, bytes);
        node.pending.push_back({false, offset, std::string(bytes)});
    }

    result<void> sync(io_kind kind) {
        return disk_.call(kind, path_, [&](const disk::verdict& v) -> result<void> {
            auto& node = disk_.at(inode_);
            if (v.loses_pages) node.pending.clear();
            if (v.fails) return v.failure;
            for (const auto& change : node.pending) {
                if (change.is_resize)
                    node.durable.resize(change.offset, '\0');
                else
                    apply_write(node.durable, change.offset, change.bytes);
            }
            node.pending.clear();
            return {};
        });
    }

    disk& disk_;
    std::uint64_t inode_;
    std::string path_;
};

class simulated_lock final : public storage::file_lock {
public:
    simulated_lock(std::shared_ptr<std::set<std::string>> locked, std::string path)
        : locked_(std::move(locked)), path_(std::move(path)) {}
    ~simulated_lock() override { locked_->erase(path_); }

private:
    std::shared_ptr<std::set<std::string>> locked_;
    std::string path_;
};

disk::disk(disk_image image, std::uint64_t capacity_bytes)
    : image_(std::move(image)), capacity_bytes_(capacity_bytes) {}

disk::verdict disk::begin(io_kind kind, const std::string& path) {
    ++calls_;
    last_call_ = {calls_, kind, path};
    verdict v;
    for (const auto& fault : faults_) {
        if (calls_ < fault.at_call ||
            (calls_ > fault.at_call && !fault.persistent && fault.kind != fault_kind::power_cut))
            continue;
        const auto fails = [&](errc code, const char* why) {
            v.fails = true;
            v.failure = fail(code, path + ": " + std::string(word(kind)) + ": " + why);
        };
        if (fault.kind == fault_kind::power_cut) fails(errc::io_error, "simulated power cut");
        if (fault.kind == fault_kind::io_error) fails(errc::io_error, "simulated I/O error");
        if (fault.kind == fault_kind::no_space && takes_space(kind)) fails(errc::no_space, "simulated full disk");
        if (fault.kind == fault_kind::short_transfer) v.is_short = true;
        if (fault.kind == fault_kind::failed_sync && is_sync(kind)) fails(errc::io_error, "simulated failed sync");
        if (v.fails && is_sync(kind) && fault.kind != fault_kind::power_cut) v.loses_pages = true;
    }
    return v;
}

void disk::end() const {
    if (hook_) hook_(last_call_);
}

template <class F>
auto disk::call(io_kind kind, const std::string& path, F&& body) -> decltype(body(std::declval<const verdict&>())) {
    const verdict v = begin(kind, path);
    auto answer = body(v);
    end();
    return answer;
}

std::uint64_t disk::find(const std::string& path) const {
    std::uint64_t number = disk_image::root;
    for (const auto part : parts_of(path)) {
        const auto& node = image_.inodes.at(number);
        const auto entry = node.names.find(std::string(part));
        if (entry == node.names.end()) return 0;
        number = entry->second;
    }
    return number;
}

std::uint64_t disk::room_bytes() const {
    if (capacity_bytes_ == UINT64_MAX) return capacity_bytes_;
    std::uint64_t used = 0;
    for (const std::uint64_t number : named_inodes(image_)) used += image_.inodes.at(number).current.size();
    return capacity_bytes_ - std::min(capacity_bytes_, used);
}

void disk::set_name(std::uint64_t directory, disk_image::name_change change) {
    change.order = image_.next_order++;
    apply_name(image_.inodes, directory, change, &disk_image::inode::names);
    at(directory).pending_names.push_back(std::move(change));
}

result<void> disk::resize(std::uint64_t inode, const std::string& path, std::uint64_t size_bytes) {
    auto& node = at(inode);
    if (size_bytes > node.current.size() && size_bytes - node.current.size() > room_bytes())
        return fail(errc::no_space, path + ": the simulated disk is full");
    node.current.resize(size_bytes, '\0');
    node.pending.push_back({true, size_bytes, {}});
    return {};
}

result<std::unique_ptr<storage::file>> disk::open(const std::string& path, open_mode mode) {
    using opened = result<std::unique_ptr<storage::file>>;
    const bool may_create = mode == open_mode::create || mode == open_mode::create_new;
    return call(io_kind::open, path, [&](const verdict& v) -> opened {
        std::uint64_t number = find(path);
        if (v.fails && (v.failure.code != errc::no_space || (may_create && number == 0))) return v.failure;
        if (number != 0 && mode == open_mode::create_new) return fail(errc::already_exists, path + ": exists");
        if (number != 0 && at(number).is_directory) {
            // as the operating system: a directory opens for reading only, and cannot be read as a file
            return fail(errc::io_error, path + ": is a directory");
        }
        if (number == 0) {
            const std::uint64_t directory = find(storage::parent_directory(path));
            if (!may_create || directory == 0) return fail(errc::not_found, path + ": does not exist");
            number = image_.next_inode++;
            image_.inodes[number] = {};
            set_name(directory, {base_name(path), number, 0, {}, 0});
        }
        return std::unique_ptr<storage::file>(std::make_unique<simulated_file>(*this, number, path));
    });
}

result<void> disk::rename(const std::string& from, const std::string& to) {
    return call(io_kind::rename, from, [&](const verdict& v) -> result<void> {
        if (v.fails) return v.failure;
        const std::uint64_t number = find(from);
        const std::uint64_t to_directory = find(storage::parent_directory(to));
        if (number == 0 || to_directory == 0) return fail(errc::not_found, from + ": does not exist");
        const std::uint64_t target = find(to);
        if (target != 0 && at(target).is_directory && !at(target).names.empty())
            return fail(errc::already_exists, to + ": is a directory that holds something");
        const std::uint64_t from_directory = find(storage::parent_directory(from));
        set_name(to_directory, {base_name(to), number, from_directory, base_name(from), 0});
        return {};
    });
}

result<void> disk::unlink(const std::string& path) {
    return call(io_kind::unlink, path, [&](const verdict& v) -> result<void> {
        if (v.fails) return v.failure;
        const std::uint64_t number = find(path);
        if (number == 0) return fail(errc::not_found, path + ": does not exist");
        if (at(number).is_directory) return fail(errc::io_error, path + ": is a directory");
        set_name(find(storage::parent_directory(path)), {base_name(path), 0, 0, {}, 0});
        return {};
    });
}

result<void> disk::link(const std::string& from, const std::string& to) {
    return call(io_kind::link, from, [&](const verdict& v) -> result<void> {
        if (v.fails) return v.failure;
        if (no_hard_links_) return fail(errc::unsupported, to + ": this file system has no hard links");
        const std::uint64_t number = find(from);
        const std::uint64_t directory = find(storage::parent_directory(to));
        if (number == 0 || directory == 0) return fail(errc::not_found, from + ": does not exist");
        if (find(to) != 0) return fail(errc::already_exists, to + ": exists");
        set_name(directory, {base_name(to), number, 0, {}, 0});
        return {};
    });
}

result<void> disk::mkdir(const std::string& path) {
    return call(io_kind::mkdir, path, [&](const verdict& v) -> result<void> {
        if (v.fails && (v.failure.code != errc::no_space || find(path) == 0)) return v.failure;
        if (find(path) != 0) return fail(errc::already_exists, path + ": exists");
        const std::uint64_t directory = find(storage::parent_directory(path));
        if (directory == 0) return fail(errc::not_found, path + ": its parent does not exist");
        const std::uint64_t number = image_.next_inode++;
        image_.inodes[number].is_directory = true;
        set_name(directory, {base_name(path), number, 0, {}, 0});
        return {};
    });
}

result<void> disk::rmdir(const std::string& path) {
    return call(io_kind::rmdir, path, [&](const verdict& v) -> result<void> {
        if (v.fails) return v.failure;
        const std::uint64_t number = find(path);
        if (number == 0) return fail(errc::not_found, path + ": does not exist");
        if (!at(number).is_directory) return fail(errc::not_found, path + ": is no directory");
        if (!at(number).names.empty()) return fail(errc::already_exists, path + ": is not empty");
        set_name(find(storage::parent_directory(path)), {base_name(path), 0, 0, {}, 0});
        return {};
    });
}

result<std::vector<storage::directory_entry>> disk::list(const std::string& path) {
    using entries = result<std::vector<storage::directory_entry>>;
    return call(io_kind::list, path, [&](const verdict& v) -> entries {
        if (v.fails) return v.failure;
        const std::uint64_t number = find(path);
        if (number == 0 || !at(number).is_directory) return fail(errc::not_found, path + ": no such directory");
        std::vector<storage::directory_entry> found;
        for (const auto& [name, inode] : at(number).names)
            found.push_back(
                {name, at(inode).is_directory ? storage::entry_kind::directory : storage::entry_kind::file});
        return found;
    });
}

result<void> disk::sync_dir(const std::string& path) {
    return call(io_kind::sync_dir, path, [&](const verdict& v) -> result<void> {
        const std::uint64_t number = find(path);
        if (v.fails) return v.failure;
        if (number == 0) return fail(errc::not_found, path + ": no such directory");
        const auto made = std::exchange(at(number).pending_names, {});
        for (const auto& change : made) {
            apply_name(image_.inodes, number, change, &disk_image::inode::durable_names);
            if (change.other_directory == 0) continue;
            // the old name went with the rename: how it came is of no interest any more
            std::erase_if(at(change.other_directory).pending_names, [&](const auto& earlier) {
                return earlier.name == change.other_name && earlier.order < change.order;
            });
        }
        return {};
    });
}

result<std::uint64_t> disk::free_bytes(const std::string& path) {
    return call(io_kind::free, path, [&](const verdict& v) -> result<std::uint64_t> {
        if (v.fails) return v.failure;
        return room_bytes();
    });
}

result<std::unique_ptr<storage::file_lock>> disk::lock(const std::string& path) {
    using locked = result<std::unique_ptr<storage::file_lock>>;
    return call(io_kind::lock, path, [&](const verdict& v) -> locked {
        if (v.fails) return v.failure;
        if (find(path) == 0) {
            const std::uint64_t directory = find(storage::parent_directory(path));
            if (directory == 0) return fail(errc::not_found, path + ": its directory does not exist");
            const std::uint64_t number = image_.next_inode++;
            image_.inodes[number] = {};
            set_name(directory, {base_name(path), number, 0, {}, 0});
        }
        auto holders = ignore_locks_ ? std::make_shared<std::set<std::string>>() : locked_;
        if (!holders->insert(path).second) return fail(errc::locked, path + " is held by another process");
        return std::unique_ptr<storage::file_lock>(std::make_unique<simulated_lock>(std::move(holders), path));
    });
}

std::vector<std::string> disk::files_below(const std::string& path) const {
    std::vector<std::string> files;
    const std::uint64_t number = find(path);
    if (number == 0) return files;
    for (const auto& [name, inode] : image_.inodes.at(number).names) {
        const std::string below = storage::join(path, name);
        if (!image_.inodes.at(inode).is_directory) {
            files.push_back(below);
            continue;
        }
        const auto inner = files_below(below);
        files.insert(files.end(), inner.begin(), inner.end());
    }
    return files;
}

const std::string& disk::content(const std::string& path) const {
    const std::uint64_t number = find(path);
    DARLCORE_ASSERT(number != 0);
    return image_.inodes.at(number).current;
}

void disk::set_content(const std::string& path, std::string bytes) {
    const std::uint64_t number = find(path);
    DARLCORE_ASSERT(number != 0);
    at(number).pending.clear();
    at(number).durable = bytes;
    at(number).current = std::move(bytes);
}

void disk::flip_bit(const std::string& path, std::uint64_t bit) {
    std::string bytes = content(path);
    DARLCORE_ASSERT_CMP(bit / 8, <, bytes.size());
    bytes[bit / 8] = static_cast<char>(static_cast<unsigned char>(bytes[bit / 8]) ^ (1U << (bit % 8)));
    set_content(path, std::move(bytes));
}

void disk::remove(const std::string& path) {
    const std::uint64_t directory = find(storage::parent_directory(path));
    DARLCORE_ASSERT(directory != 0);
    at(directory).names.erase(base_name(path));
    at(directory).durable_names.erase(base_name(path));
}

}  // namespace darlcore::sim
