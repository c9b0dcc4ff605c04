// SPDX-License-Identifier: Apache-2.0
#include "backends/storage/snapshot_store.hpp"

#include <vector>

namespace darlcore::storage {
namespace {

result<void> write_and_check(const state_directory& state, const std::string& path, std::string_view bytes) {
    file_system& fs = state.files();
    const std::string temporary = path + ".tmp";
    {
        auto opened = fs.open(temporary, open_mode::create);
        if (!opened) return opened.error();
        if (const auto cut = (*opened)->truncate(0); !cut) return cut;
        if (const auto written = pwrite_all(**opened, bytes, 0); !written) return written;
        if (!state.mutants().skip_file_fsync)
            if (const auto synced = (*opened)->fsync(); !synced) return synced;
    }
    if (const auto renamed = fs.rename(temporary, path); !renamed) return renamed;
    if (!state.mutants().skip_dir_fsync)
        if (const auto synced = fs.sync_dir(state.journal_path()); !synced) return synced;
    const auto back = read_file(fs, path);
    if (!back) return back.error();
    if (*back != bytes) return fail(errc::corrupt, path + ": reads back differently from what was written");
    return {};
}

}  // namespace

result<void> write_snapshot(const state_directory& state, const snapshot_info& info, std::string_view payload) {
    const std::string path = join(state.journal_path(), snapshot_name(info.sequence));
    const auto written = write_and_check(state, path, encode_snapshot(info, payload));
    if (written) return {};
    // a snapshot that failed must not be the newest one that the next start finds
    for (const std::string& leftover : {path + ".tmp", path}) {
        const auto removed = state.files().unlink(leftover);
        if (!removed && removed.error().code != errc::not_found)
            return fail(written.error().code, written.error().context + "; and " + removed.error().context);
    }
    return written;
}

result<void> remove_superseded(const state_directory& state) {
    file_system& fs = state.files();
    const auto entries = fs.list(state.journal_path());
    if (!entries) return entries.error();
    std::vector<std::uint64_t> snapshots;
    std::vector<std::uint64_t> segments;
    for (const auto& entry : *entries) {
        if (const auto sequence = parse_snapshot_name(entry.name)) snapshots.push_back(*sequence);
        if (const auto first = parse_segment_name(entry.name)) segments.push_back(*first);
    }
    if (snapshots.size() < 2) return {};
    if (const auto ours = state.check_term(); !ours) return ours;
    const std::uint64_t older = snapshots[snapshots.size() - 2];
    for (std::size_t i = 0; i + 1 < segments.size() && segments[i + 1] <= older + 1; ++i)
        if (const auto removed = fs.unlink(join(state.journal_path(), segment_name(segments[i]))); !removed)
            return removed;
    for (std::size_t i = 0; i + 2 < snapshots.size(); ++i)
        if (const auto removed = fs.unlink(join(state.journal_path(), snapshot_name(snapshots[i]))); !removed)
            return removed;
    return fs.sync_dir(state.journal_path());
}

result<void> remove_leftovers(file_system& fs, const std::string& journal_path) {
    const auto entries = fs.list(journal_path);
    if (!entries) return entries.error();
    for (const auto& entry : *entries) {
        if (!entry.name.ends_with(".tmp")) continue;
        if (const auto removed = fs.unlink(join(journal_path, entry.name)); !removed) return removed;
    }
    return {};
}

}  // namespace darlcore::storage
