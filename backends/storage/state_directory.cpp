// SPDX-License-Identifier: Apache-2.0
#include "backends/storage/state_directory.hpp"

#include <charconv>

#include "backends/storage/journal_format.hpp"

namespace darlcore::storage {
namespace {

template <class I>
void read_number(std::string_view text, I& into) {
    std::from_chars(text.data(), text.data() + text.size(), into);
}

result<std::uint32_t> read_term(file_system& fs, const std::string& path) {
    const std::string file_path = join(path, "term");
    const auto bytes = read_file(fs, file_path, 4096);
    if (!bytes) return bytes.error();
    const auto term = decode_term(*bytes);
    if (!term) return fail(term.error().code, file_path + ": " + term.error().context);
    return *term;
}

bool has_segments(file_system& fs, const std::string& path) {
    const auto entries = fs.list(join(path, "journal"));
    if (!entries) return false;
    for (const auto& entry : *entries)
        if (parse_segment_name(entry.name) || parse_snapshot_name(entry.name)) return true;
    return false;
}

result<std::uint32_t> next_term(file_system& fs, const std::string& path) {
    const auto term = read_term(fs, path);
    if (term) {
        if (*term == UINT32_MAX) return fail(errc::refused, join(path, "term") + ": no higher term is left");
        return *term + 1;
    }
    if (term.error().code != errc::not_found) return term.error();
    if (has_segments(fs, path))
        return fail(errc::corrupt, join(path, "term") +
                                       " is missing but there is a journal; `darl journal salvage` writes a "
                                       "directory with a new term");
    return 1U;
}

}  // namespace

std::string encode(const lock_owner& owner) {
    return "pid " + std::to_string(owner.pid) + "\nboot " + owner.boot_id + "\nhost " + owner.host + "\nterm " +
           std::to_string(owner.term) + "\naddress " + owner.address + "\n";
}

lock_owner decode_lock_owner(std::string_view text) {
    lock_owner owner;
    while (!text.empty()) {
        const auto line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
        const auto space = line.find(' ');
        if (space == std::string_view::npos) continue;
        const auto key = line.substr(0, space);
        const auto value = line.substr(space + 1);
        if (key == "pid") read_number(value, owner.pid);
        if (key == "boot") owner.boot_id = value;
        if (key == "host") owner.host = value;
        if (key == "term") read_number(value, owner.term);
        if (key == "address") owner.address = value;
    }
    return owner;
}

result<state_directory> state_directory::open(file_system& fs, const std::string& path, lock_owner self,
                                              const storage_mutants& mutants) {
    if (const auto made = ensure_directory(fs, path); !made) return made.error();
    state_directory state;
    state.fs_ = &fs;
    state.path_ = path;
    state.mutants_ = mutants;
    const std::string lock_path = join(path, "lock");
    auto lock = fs.lock(lock_path);
    if (!lock) {
        if (lock.error().code != errc::locked) return lock.error();
        const auto text = read_file(fs, lock_path, 4096);
        const auto owner = decode_lock_owner(text ? *text : std::string());
        return fail(errc::locked, path + " is served by process " + std::to_string(owner.pid) + " on " + owner.host +
                                      (owner.address.empty() ? "" : " at " + owner.address) +
                                      "; stop it or use another directory");
    }
    state.lock_ = std::move(*lock);
    const auto term = next_term(fs, path);
    if (!term) return term.error();
    self.term = *term;
    if (const auto written = replace_file(fs, join(path, "term"), encode_term(*term)); !written) return written.error();
    state.self_ = std::move(self);
    if (const auto told = state.tell_address(state.self_.address); !told) return told.error();
    if (const auto made = ensure_directory(fs, state.journal_path()); !made) return made.error();
    return state;
}

result<void> state_directory::check_term() const {
    if (mutants_.skip_term_check) return {};
    const auto term = read_term(*fs_, path_);
    if (!term) return term.error();
    if (*term == self_.term) return {};
    return fail(errc::fenced, "another server has taken over " + path_ + " with term " + std::to_string(*term) +
                                  ", ours was " + std::to_string(self_.term));
}

result<void> state_directory::tell_address(const std::string& address) {
    self_.address = address;
    // plain write: a note for people, whose loss costs nothing
    auto opened = fs_->open(join(path_, "lock"), open_mode::create);
    if (!opened) return opened.error();
    if (const auto cut = (*opened)->truncate(0); !cut) return cut;
    return pwrite_all(**opened, encode(self_), 0);
}

result<std::string> supersede(file_system& fs, const std::string& path, const std::string& name) {
    auto lock = fs.lock(join(path, "lock"));
    if (!lock) return lock.error();
    const std::string aside = join(path, "superseded-" + name);
    if (const auto made = fs.mkdir(aside); !made) return made.error();
    if (const auto synced = fs.sync_dir(path); !synced) return synced.error();
    // the journal goes first: a crash in between leaves "model, no journal", which every start refuses
    for (const char* entry : {"journal", "model", "blobs", "term"}) {
        const auto moved = fs.rename(join(path, entry), join(aside, entry));
        if (!moved && moved.error().code != errc::not_found) return moved.error();
        if (const auto synced = fs.sync_dir(aside); !synced) return synced.error();
        if (const auto synced = fs.sync_dir(path); !synced) return synced.error();
    }
    return aside;
}

}  // namespace darlcore::storage
