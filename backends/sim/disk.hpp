// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "backends/storage/file_system.hpp"

namespace darlcore::sim {

enum class io_kind : std::uint8_t {
    open,
    pread,
    pwrite,
    fsync,
    fdatasync,
    truncate,
    preallocate,
    size,
    rename,
    unlink,
    link,
    mkdir,
    rmdir,
    list,
    sync_dir,
    free,
    lock
};
std::string_view word(io_kind kind);

/// One call that the program made, counted from 1.
struct io_call {
    std::uint64_t number = 0;
    io_kind kind = io_kind::open;
    std::string path;
};

enum class fault_kind : std::uint8_t {
    /// errc::no_space from every call that takes space.
    no_space,
    /// errc::io_error from every call.
    io_error,
    /// Reads and writes move half of what was asked (at least one byte).
    short_transfer,
    /// A sync fails. Of a file: what it should have made durable never will be, although it is still read back. Of a
    /// directory: its names stay unsynced (journalling file systems stop altogether).
    failed_sync,
    /// This call and every later one fail: the machine is off.
    power_cut,
};

/// What goes wrong, at call `at_call` or, if persistent, from there on.
struct disk_fault {
    std::uint64_t at_call = 0;
    fault_kind kind = fault_kind::io_error;
    bool persistent = false;
};

/// What a power cut leaves of everything that was not synced: data in sectors of 512 or 8 bytes, names as operations.
enum class loss : std::uint8_t { dropped, kept, names_only, data_only, random_512, random_8, late_only };
inline constexpr loss every_loss[] = {loss::dropped,    loss::kept,     loss::names_only, loss::data_only,
                                      loss::random_512, loss::random_8, loss::late_only};
std::string_view word(loss mode);

/// The bytes and names of a simulated disk; a value.
struct disk_image {
    struct change {
        bool is_resize = false;
        std::uint64_t offset = 0;  ///< or the new size
        std::string bytes;
    };
    struct name_change {
        std::string name;
        std::uint64_t inode = 0;  ///< 0 removes the name
        std::uint64_t other_directory = 0;
        std::string other_name;   ///< removed from other_directory together with it (rename)
        std::uint64_t order = 0;  ///< among all changes of names of this disk
    };
    struct inode {
        bool is_directory = false;
        std::string current;
        std::string durable;
        std::vector<change> pending;
        std::map<std::string, std::uint64_t> names;
        std::map<std::string, std::uint64_t> durable_names;
        std::vector<name_change> pending_names;
    };
    static constexpr std::uint64_t root = 1;
    std::map<std::uint64_t, inode> inodes{{root, inode{true, {}, {}, {}, {}, {}, {}}}};
    std::uint64_t next_inode = 2;
    std::uint64_t next_order = 1;

    /// The disk as the next start finds it.
    [[nodiscard]] disk_image after_power_cut(loss mode, std::uint64_t seed) const;
};

/// A disk in memory: keeps what was synced and, at a power cut, a chosen part of the rest. Directory entries need a
/// sync of their directory, file contents a sync of the file. One run is a function of the calls and the seed.
/// Thread-safety: none.
class disk final : public storage::file_system {
public:
    explicit disk(disk_image image = {}, std::uint64_t capacity_bytes = UINT64_MAX);

    result<std::unique_ptr<storage::file>> open(const std::string& path, storage::open_mode mode) override;
    result<void> rename(const std::string& from, const std::string& to) override;
    result<void> unlink(const std::string& path) override;
    result<void> link(const std::string& from, const std::string& to) override;
    result<void> mkdir(const std::string& path) override;
    result<void> rmdir(const std::string& path) override;
    result<std::vector<storage::directory_entry>> list(const std::string& path) override;
    result<void> sync_dir(const std::string& path) override;
    result<std::uint64_t> free_bytes(const std::string& path) override;
    result<std::unique_ptr<storage::file_lock>> lock(const std::string& path) override;

    // Controls of the simulation.
    void inject(const disk_fault& fault) { faults_.push_back(fault); }
    void clear_faults() { faults_.clear(); }
    /// Called behind every call with what it was; the disk may be copied there.
    void on_call(std::function<void(const io_call&)> hook) { hook_ = std::move(hook); }
    void set_capacity(std::uint64_t bytes) { capacity_bytes_ = bytes; }
    /// Locks always succeed, as on some network file systems.
    void ignore_locks(bool ignore) { ignore_locks_ = ignore; }
    void no_hard_links(bool missing) { no_hard_links_ = missing; }
    [[nodiscard]] std::uint64_t calls() const { return calls_; }
    [[nodiscard]] const disk_image& image() const { return image_; }

    // A look from outside: no call is counted, nothing fails.
    /// Paths of all files below `path`, ascending.
    [[nodiscard]] std::vector<std::string> files_below(const std::string& path) const;
    /// Precondition (asserted): the file exists.
    [[nodiscard]] const std::string& content(const std::string& path) const;
    void set_content(const std::string& path, std::string bytes);
    /// Flips one bit at rest; bit 0 is the lowest of byte 0.
    void flip_bit(const std::string& path, std::uint64_t bit);
    void remove(const std::string& path);

private:
    friend class simulated_file;
    friend class simulated_lock;
    struct verdict {
        bool fails = false;
        bool is_short = false;
        bool loses_pages = false;
        error failure;
    };
    verdict begin(io_kind kind, const std::string& path);
    void end() const;
    template <class F>
    auto call(io_kind kind, const std::string& path, F&& body) -> decltype(body(std::declval<const verdict&>()));

    [[nodiscard]] std::uint64_t find(const std::string& path) const;
    [[nodiscard]] std::uint64_t room_bytes() const;
    disk_image::inode& at(std::uint64_t number) { return image_.inodes.at(number); }
    void set_name(std::uint64_t directory, disk_image::name_change change);
    result<void> resize(std::uint64_t inode, const std::string& path, std::uint64_t size_bytes);

    disk_image image_;
    std::uint64_t capacity_bytes_;
    std::uint64_t calls_ = 0;
    io_call last_call_;
    std::vector<disk_fault> faults_;
    std::function<void(const io_call&)> hook_;
    std::shared_ptr<std::set<std::string>> locked_ = std::make_shared<std::set<std::string>>();
    bool ignore_locks_ = false;
    bool no_hard_links_ = false;
};

}  // namespace darlcore::sim
