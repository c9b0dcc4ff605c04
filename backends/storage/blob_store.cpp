// SPDX-License-Identifier: Apache-2.0
#include "backends/storage/blob_store.hpp"

#include <algorithm>
#include <utility>

#include "darlcore/units.hpp"

namespace darlcore::storage {
namespace {

constexpr std::uint64_t header_bytes_max = std::uint64_t{1} << 20U;

}  // namespace

/// An upload: its announcement and how far it came. While `busy` it belongs to the part that is under way.
struct blob_store::upload {
    std::string id;
    blob_facts facts;
    std::unique_ptr<file> bytes;
    std::uint64_t offset = 0;
    std::int64_t touched_ms = 0;
    bool busy = false;
    bool dropped = false;
    /// Digest and scan of [0, hashed).
    std::uint64_t hashed = 0;
    sha256 hash;
    std::unique_ptr<blob_scanner> scanner;

    void feed(std::string_view more) {
        hash.update(more);
        if (scanner) scanner->update(more);
        hashed += more.size();
    }
    /// Forgets digest and scan; the next part reads the file again.
    void forget(std::unique_ptr<blob_scanner> fresh) {
        hash = sha256();
        scanner = std::move(fresh);
        hashed = 0;
    }
};

struct part_writer::state {
    blob_store* store = nullptr;
    std::shared_ptr<blob_store::upload> upload;
    std::uint64_t length = 0;
    std::uint64_t received = 0;
    std::optional<std::string> checksum;
    sha256 part_hash;
    bool failed = false;
};

part_writer::part_writer(std::unique_ptr<state> s) : state_(std::move(s)) {}
part_writer::part_writer(part_writer&& other) noexcept = default;

part_writer::~part_writer() {
    if (!state_) return;
    auto& u = *state_->upload;
    if (state_->checksum) {
        // unverified bytes do not count; if the cut fails the next part writes over them
        const auto cut = u.bytes->truncate(u.offset);
        static_cast<void>(cut);
    }
    state_->store->release(state_->upload);
}

result<void> part_writer::write(std::string_view bytes) {
    DARLCORE_ASSERT(state_ != nullptr);
    auto& s = *state_;
    if (s.failed) return fail(errc::io_error, "this part failed before");
    if (s.received + bytes.size() > s.length) return fail(errc::too_large, "the part is longer than announced");
    const std::uint64_t at = s.checksum ? s.upload->offset + s.received : s.upload->offset;
    if (const auto written = pwrite_all(*s.upload->bytes, bytes, at); !written) {
        s.failed = true;
        return written;
    }
    s.received += bytes.size();
    if (s.checksum) {
        s.part_hash.update(bytes);
    } else {
        s.upload->feed(bytes);
        s.upload->offset += bytes.size();
    }
    return {};
}

result<part_accepted> part_writer::finish(std::int64_t now_ms) {
    DARLCORE_ASSERT(state_ != nullptr);
    auto& s = *state_;
    auto& u = *s.upload;
    if (s.failed) return fail(errc::io_error, "this part failed before");
    u.touched_ms = now_ms;
    if (s.received < s.length)
        return fail(errc::short_read, "the part ended after " + std::to_string(s.received) + " of " +
                                          std::to_string(s.length) + " bytes");
    if (s.checksum) {
        if (s.part_hash.hex() != *s.checksum)
            return fail(errc::checksum_mismatch, "the part does not have the announced checksum; send it again");
        if (const auto fed = s.store->catch_up(u, u.offset + s.received); !fed) return fed.error();
        u.offset += s.received;
        s.checksum.reset();
    }
    if (u.offset < u.facts.bytes) return part_accepted{u.offset, false, {}};
    return s.store->complete(s.upload);
}

blob_store::blob_store(file_system& fs, const std::string& state_path, blob_limits limits, scanner_factory make_scanner,
                       std::function<std::string()> make_id)
    : fs_(fs),
      root_(join(state_path, "blobs")),
      limits_(limits),
      make_scanner_(std::move(make_scanner)),
      make_id_(std::move(make_id)) {}

blob_store::~blob_store() = default;

result<std::unique_ptr<blob_store>> blob_store::open(file_system& fs, const std::string& state_path, blob_limits limits,
                                                     scanner_factory make_scanner, std::function<std::string()> make_id,
                                                     std::int64_t now_ms) {
    std::unique_ptr<blob_store> store(
        new blob_store(fs, state_path, limits, std::move(make_scanner), std::move(make_id)));
    for (const auto& folder : {store->root_, join(store->root_, "staging"), join(store->root_, "sha256")})
        if (const auto made = ensure_directory(fs, folder); !made) return made.error();
    if (const auto loaded = store->load_blobs(); !loaded) return loaded.error();
    if (const auto loaded = store->load_staging(now_ms); !loaded) return loaded.error();
    return store;
}

result<void> blob_store::load_blobs() {
    const std::string root = join(root_, "sha256");
    const auto folders = fs_.list(root);
    if (!folders) return folders.error();
    for (const auto& folder : *folders) {
        if (folder.kind != entry_kind::directory) continue;
        if (const auto loaded = load_folder(join(root, folder.name)); !loaded) return loaded;
    }
    return {};
}

result<void> blob_store::load_folder(const std::string& folder) {
    const auto entries = fs_.list(folder);
    if (!entries) return entries.error();
    std::set<std::string, std::less<>> names;
    for (const auto& entry : *entries) names.insert(entry.name);
    for (const auto& name : names) {
        const std::string path = join(folder, name);
        if (name.ends_with(".json.tmp")) {
            if (const auto removed = fs_.unlink(path); !removed) return removed;
        }
        if (!name.ends_with(".json")) continue;
        const std::string hex = name.substr(0, name.size() - 5);
        if (!names.contains(hex)) {
            // the entry is written before the bytes get their name, and goes after them
            if (const auto removed = fs_.unlink(path); !removed) return removed;
            continue;
        }
        const auto text = read_file(fs_, path, header_bytes_max);
        if (!text) return text.error();
        const auto facts = decode_blob_facts(*text);
        // a damaged entry makes its blob unknown: reported, never deleted
        if (facts && facts->sha256 == hex) blobs_.emplace(hex, *facts);
    }
    return {};
}

result<void> blob_store::load_staging(std::int64_t now_ms) {
    const std::string staging = join(root_, "staging");
    const auto entries = fs_.list(staging);
    if (!entries) return entries.error();
    for (const auto& entry : *entries) {
        if (!entry.name.ends_with(".json")) continue;
        const auto text = read_file(fs_, join(staging, entry.name), header_bytes_max);
        if (!text) return text.error();
        const auto facts = decode_blob_facts(*text);
        if (!facts || blobs_.contains(facts->sha256)) continue;
        auto u = std::make_shared<upload>();
        u->id = entry.name.substr(0, entry.name.size() - 5);
        u->facts = *facts;
        auto opened = fs_.open(staging_path(u->id, ".part"), open_mode::create);
        if (!opened) return opened.error();
        u->bytes = std::move(*opened);
        const auto size = u->bytes->size_bytes();
        if (!size) return size.error();
        u->offset = std::min(*size, facts->bytes);
        u->touched_ms = now_ms;
        u->scanner = make_scanner_ ? make_scanner_(u->facts) : nullptr;
        uploads_.emplace(u->id, std::move(u));
    }
    for (const auto& entry : *entries) {
        const auto id = std::string_view(entry.name).substr(0, entry.name.find('.'));
        if (uploads_.contains(id) && !entry.name.ends_with(".tmp")) continue;
        if (const auto removed = remove_tree(fs_, join(staging, entry.name)); !removed) return removed;
    }
    return fs_.sync_dir(staging);
}

std::string blob_store::staging_path(std::string_view id, std::string_view ending) const {
    return join(join(root_, "staging"), std::string(id).append(ending));
}

std::string blob_store::path_of(std::string_view sha256) const {
    return join(join(join(root_, "sha256"), sha256.substr(0, 2)), sha256);
}

upload_status blob_store::status_of(const upload& u, std::int64_t now_ms) const {
    return {u.id, u.offset, u.facts.bytes, limits_.upload_expires_ms - (now_ms - u.touched_ms)};
}

result<void> blob_store::check_announcement(const blob_facts& facts, const blob_standing& standing) const {
    if (!is_sha256_hex(facts.sha256)) return fail(errc::bad_request, "sha256: 64 lower-case hex digits are needed");
    if (facts.bytes == 0) return fail(errc::bad_request, "bytes: must be at least 1");
    if (!is_valid_name(facts.site)) return fail(errc::bad_request, "cluster: not a site name");
    if (facts.purpose == blob_purpose::wire) return fail(errc::bad_request, "purpose: delta or init");
    const bool is_stale = facts.purpose == blob_purpose::delta ? standing.current_generation != facts.generation
                                                               : standing.current_generation.has_value();
    if (is_stale)
        return fail(
            errc::stale_generation,
            "the current generation is " + (standing.current_generation ? std::to_string(*standing.current_generation)
                                                                        : std::string("not there yet")));
    if (standing.layout_bytes != 0 &&
        (facts.bytes < standing.layout_bytes || facts.bytes - standing.layout_bytes > header_bytes_max))
        return fail(errc::bad_request, "bytes: the layout has " + std::to_string(standing.layout_bytes) +
                                           " bytes in this codec, plus at most 1 MiB of header");
    return {};
}

result<void> blob_store::check_room(const blob_facts& facts, const blob_standing& standing) const {
    std::uint64_t of_site = facts.bytes;
    std::uint64_t outstanding = facts.bytes;
    std::uint32_t open_of_site = 0;
    for (const auto& [id, u] : uploads_) {
        outstanding += u->facts.bytes - std::min(u->facts.bytes, u->offset);
        if (u->facts.site != facts.site) continue;
        of_site += u->facts.bytes;
        ++open_of_site;
    }
    for (const auto& [hex, blob] : blobs_) {
        const bool is_unmerged =
            blob.purpose == blob_purpose::init || (blob.purpose == blob_purpose::delta && standing.current_generation &&
                                                   blob.generation >= *standing.current_generation);
        if (blob.site == facts.site && is_unmerged) of_site += blob.bytes;
    }
    if (open_of_site >= limits_.open_uploads_max)
        return fail(errc::quota,
                    "this site has " + std::to_string(open_of_site) + " open uploads; finish or delete one");
    if (of_site > limits_.site_bytes_max)
        return fail(errc::quota, "staged and unmerged blobs of this site would have " + std::to_string(of_site) +
                                     " bytes, allowed are " + std::to_string(limits_.site_bytes_max));
    const auto free = fs_.free_bytes(root_);
    if (!free) return free.error();
    const std::uint64_t reserve = std::max(limits_.reserve_bytes, standing.merge_bytes);
    if (*free < reserve || *free - reserve < outstanding)
        return fail(errc::no_room, "no room for " + std::to_string(facts.bytes) +
                                       " bytes now: " + std::to_string(*free) + " are free, " +
                                       std::to_string(reserve) + " stay reserved");
    return {};
}

bool blob_store::failed() const {
    const std::lock_guard held(mutex_);
    return failed_;
}

// A sync that failed is never repeated: what it should have written may be gone although it can still be read.
result<void> blob_store::durable(result<void> outcome) {
    if (!outcome && outcome.error().code == errc::io_error) failed_ = true;
    return outcome;
}

result<announced> blob_store::announce(const blob_facts& facts, const blob_standing& standing, std::int64_t now_ms) {
    if (const auto good = check_announcement(facts, standing); !good) return good.error();
    const std::lock_guard held(mutex_);
    if (failed_) return fail(errc::io_error, "the blob store failed before; restart the server");
    if (const auto blob = blobs_.find(facts.sha256); blob != blobs_.end())
        return announced{true, blob->second.scan, {"", blob->second.bytes, blob->second.bytes, 0}};
    for (const auto& [id, u] : uploads_) {
        if (u->facts.site != facts.site || u->facts.sha256 != facts.sha256 || u->facts.bytes != facts.bytes) continue;
        u->touched_ms = now_ms;
        u->facts.incarnation = facts.incarnation;  // whoever asks goes on with it
        return announced{false, {}, status_of(*u, now_ms)};
    }
    drop_abandoned(facts, now_ms);
    if (const auto room = check_room(facts, standing); !room) return room.error();
    return start_upload(facts, now_ms);
}

// What nobody will finish must not count against the site: uploads that expired, and those of its replaced processes.
// The lock is held.
void blob_store::drop_abandoned(const blob_facts& facts, std::int64_t now_ms) {
    std::vector<std::shared_ptr<upload>> going;
    for (const auto& [id, u] : uploads_) {
        const bool is_expired = !u->busy && now_ms - u->touched_ms >= limits_.upload_expires_ms;
        if (is_expired || (u->facts.site == facts.site && u->facts.incarnation != facts.incarnation))
            going.push_back(u);
    }
    for (const auto& u : going) drop(u);
}

result<announced> blob_store::start_upload(const blob_facts& facts, std::int64_t now_ms) {
    auto u = std::make_shared<upload>();
    u->id = make_id_();
    u->facts = facts;
    u->facts.scan.clear();
    u->touched_ms = now_ms;
    auto opened = fs_.open(staging_path(u->id, ".part"), open_mode::create_new);
    if (!opened) return opened.error();
    u->bytes = std::move(*opened);
    u->scanner = make_scanner_ ? make_scanner_(u->facts) : nullptr;
    if (const auto written = durable(replace_file(fs_, staging_path(u->id, ".json"), encode(u->facts))); !written) {
        const auto removed = fs_.unlink(staging_path(u->id, ".part"));
        static_cast<void>(removed);  // a leftover without announcement goes at the next start
        return written.error();
    }
    const auto status = status_of(*u, now_ms);
    uploads_.emplace(u->id, std::move(u));
    return announced{false, {}, status};
}

result<upload_status> blob_store::status(std::string_view id, std::int64_t now_ms) const {
    const std::lock_guard held(mutex_);
    const auto found = uploads_.find(id);
    if (found == uploads_.end()) return fail(errc::gone, "no such upload; announce the blob anew");
    return status_of(*found->second, now_ms);
}

result<std::shared_ptr<blob_store::upload>> blob_store::claim(std::string_view id, std::string_view site) {
    const std::lock_guard held(mutex_);
    const auto found = uploads_.find(id);
    if (found == uploads_.end()) return fail(errc::gone, "no such upload; announce the blob anew");
    if (failed_) return fail(errc::io_error, "the blob store failed before; restart the server");
    auto& u = found->second;
    if (u->facts.site != site) return fail(errc::not_owner, "this upload belongs to another site");
    if (u->busy) return fail(errc::offset_mismatch, "another part of this upload is under way");
    u->busy = true;
    return u;
}

void blob_store::release(const std::shared_ptr<upload>& u) {
    const std::lock_guard held(mutex_);
    u->busy = false;
    if (u->dropped) drop(u);
}

// Removes an upload with its files; while a part is under way its end does it. The lock is held.
void blob_store::drop(const std::shared_ptr<upload>& u) {
    uploads_.erase(u->id);
    u->dropped = true;
    if (u->busy) return;
    // what cannot be removed now goes at the next start: the announcement first, it is what makes the rest known
    for (const char* ending : {".json", ".part"}) {
        const auto removed = fs_.unlink(staging_path(u->id, ending));
        static_cast<void>(removed);
    }
}

result<void> blob_store::catch_up(upload& u, std::uint64_t to) {
    std::string buffer(static_cast<std::size_t>(std::min<std::uint64_t>(to - u.hashed, std::uint64_t{1} << 20U)), '\0');
    while (u.hashed < to) {
        const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(to - u.hashed, buffer.size()));
        const auto got = pread_all(*u.bytes, std::span(buffer).first(wanted), u.hashed);
        if (!got || *got < wanted) {
            u.forget(make_scanner_ ? make_scanner_(u.facts) : nullptr);
            if (!got) return got.error();
            return fail(errc::io_error, staging_path(u.id, ".part") + " is shorter than it was");
        }
        u.feed(std::string_view(buffer).substr(0, wanted));
    }
    return {};
}

result<part_writer> blob_store::begin_part(std::string_view id, std::string_view site, std::uint64_t offset,
                                           std::uint64_t length, std::optional<std::string> checksum,
                                           std::int64_t now_ms) {
    if (length > limits_.part_bytes_max)
        return fail(errc::too_large, "a part has at most " + std::to_string(limits_.part_bytes_max) + " bytes");
    if (checksum && !is_sha256_hex(*checksum))
        return fail(errc::bad_request, "Upload-Checksum: sha256 and 64 hex digits");
    auto claimed = claim(id, site);
    if (!claimed) return claimed.error();
    auto s = std::make_unique<part_writer::state>();
    s->store = this;
    s->upload = *claimed;
    s->length = length;
    auto& u = *s->upload;
    part_writer part(std::move(s));  // from here on its end releases the upload
    u.touched_ms = now_ms;
    if (offset != u.offset) return fail(errc::offset_mismatch, "the stored offset is " + std::to_string(u.offset));
    if (length > u.facts.bytes - u.offset)
        return fail(errc::too_large, "the part ends behind the announced " + std::to_string(u.facts.bytes) + " bytes");
    if (const auto fed = catch_up(u, u.offset); !fed) return fed.error();
    part.state_->checksum = std::move(checksum);
    return part;
}

result<part_accepted> blob_store::append(std::string_view id, std::string_view site, std::uint64_t offset,
                                         std::string_view bytes, std::optional<std::string> checksum,
                                         std::int64_t now_ms) {
    auto part = begin_part(id, site, offset, bytes.size(), std::move(checksum), now_ms);
    if (!part) return part.error();
    if (const auto written = part->write(bytes); !written) return written.error();
    return part->finish(now_ms);
}

result<part_accepted> blob_store::put(const blob_facts& facts, std::string_view bytes, const blob_standing& standing,
                                      std::int64_t now_ms) {
    if (facts.bytes != bytes.size())
        return fail(errc::bad_request, "bytes: the body has " + std::to_string(bytes.size()));
    const auto begun = announce(facts, standing, now_ms);
    if (!begun) return begun.error();
    if (begun->stored) return part_accepted{facts.bytes, true, begun->scan};
    if (begun->upload.offset > bytes.size()) return fail(errc::offset_mismatch, "the upload is longer than the body");
    return append(begun->upload.id, facts.site, begun->upload.offset, bytes.substr(begun->upload.offset), std::nullopt,
                  now_ms);
}

result<part_accepted> blob_store::complete(const std::shared_ptr<upload>& u) {
    const auto refuse = [&](error failure) {
        const std::lock_guard held(mutex_);
        drop(u);
        return failure;
    };
    if (u->hash.hex() != u->facts.sha256)
        return refuse(
            fail(errc::digest_mismatch, "the uploaded bytes do not have the announced digest; upload them again"));
    blob_facts facts = u->facts;
    if (u->scanner) {
        auto scan = u->scanner->finish();
        if (!scan) return refuse(scan.error());
        facts.scan = *scan;
    }
    if (const auto synced = u->bytes->fsync(); !synced) {
        // also the next start must not believe the bytes that can still be read
        const std::lock_guard held(mutex_);
        drop(u);
        return durable(synced).error();
    }
    const auto stored = store(*u, facts);
    const std::lock_guard held(mutex_);
    if (!durable(stored)) return stored.error();
    blobs_.emplace(facts.sha256, facts);
    drop(u);
    return part_accepted{facts.bytes, true, facts.scan};
}

// Behind the sync of the bytes: the catalogue entry, then the name; each step is durable before the next.
result<void> blob_store::store(upload& u, const blob_facts& facts) {
    const std::string path = path_of(facts.sha256);
    if (const auto made = ensure_directory(fs_, parent_directory(path)); !made) return made;
    if (const auto written = replace_file(fs_, path + ".json", encode(facts)); !written) return written;
    if (const auto renamed = fs_.rename(staging_path(u.id, ".part"), path); !renamed) return renamed;
    return fs_.sync_dir(parent_directory(path));
}

result<void> blob_store::abandon(std::string_view id, std::string_view site) {
    const std::lock_guard held(mutex_);
    const auto found = uploads_.find(id);
    if (found == uploads_.end()) return fail(errc::gone, "no such upload");
    if (found->second->facts.site != site) return fail(errc::not_owner, "this upload belongs to another site");
    drop(std::shared_ptr<upload>(found->second));
    return {};
}

std::vector<std::string> blob_store::unprepared() const {
    const std::lock_guard held(mutex_);
    std::vector<std::string> ids;
    for (const auto& [id, u] : uploads_)
        if (!u->busy && (u->hashed < u->offset || u->offset == u->facts.bytes)) ids.push_back(id);
    return ids;
}

result<void> blob_store::prepare(std::string_view id, std::int64_t now_ms) {
    std::string site;
    std::uint64_t offset = 0;
    bool is_complete = false;
    {
        const std::lock_guard held(mutex_);
        const auto found = uploads_.find(id);
        if (found == uploads_.end()) return {};
        site = found->second->facts.site;
        offset = found->second->offset;
        is_complete = offset == found->second->facts.bytes;
    }
    auto part = begin_part(id, site, offset, 0, std::nullopt, now_ms);
    if (!part)
        return part.error().code == errc::gone || part.error().code == errc::offset_mismatch ? result<void>{}
                                                                                             : part.error();
    if (!is_complete) return {};
    const auto finished = part->finish(now_ms);
    return finished ? result<void>{} : result<void>(finished.error());
}

result<blob_store::opened_blob> blob_store::fetch(std::string_view sha256, const std::string& client,
                                                  std::int64_t now_ms) {
    const std::lock_guard held(mutex_);
    const auto found = blobs_.find(sha256);
    if (found == blobs_.end()) return fail(errc::blob_missing, "no such blob; ask for the current one");
    auto opened = fs_.open(path_of(sha256), open_mode::read);
    if (!opened) return opened.error();
    std::erase_if(fetching_, [&](const auto& f) { return now_ms - f.second.at_ms > limits_.fetch_grace_ms; });
    fetching_[client] = {std::string(sha256), now_ms};
    return opened_blob{std::move(*opened), found->second};
}

std::optional<blob_facts> blob_store::find(std::string_view sha256) const {
    const std::lock_guard held(mutex_);
    const auto found = blobs_.find(sha256);
    if (found == blobs_.end()) return std::nullopt;
    return found->second;
}

std::vector<blob_facts> blob_store::list() const {
    const std::lock_guard held(mutex_);
    std::vector<blob_facts> all;
    for (const auto& [hex, facts] : blobs_) all.push_back(facts);
    return all;
}

result<void> blob_store::publish(const std::string& file_path, const blob_facts& facts) {
    const std::lock_guard held(mutex_);
    if (failed_) return fail(errc::io_error, "the blob store failed before; restart the server");
    if (blobs_.contains(facts.sha256)) return {};
    return durable(link_or_copy(file_path, facts));
}

// The lock is held.
result<void> blob_store::link_or_copy(const std::string& file_path, const blob_facts& facts) {
    const std::string path = path_of(facts.sha256);
    const std::string folder = parent_directory(path);
    if (const auto made = ensure_directory(fs_, folder); !made) return made;
    if (const auto written = replace_file(fs_, path + ".json", encode(facts)); !written) return written;
    const auto linked = storage::link_or_copy(fs_, file_path, path);
    if (!linked && linked.error().code != errc::already_exists) return linked;
    if (const auto synced = fs_.sync_dir(folder); !synced) return synced;
    blobs_.emplace(facts.sha256, facts);
    return {};
}

std::size_t blob_store::drop_uploads(std::optional<std::uint64_t> current_generation, std::int64_t now_ms) {
    const std::lock_guard held(mutex_);
    std::vector<std::shared_ptr<upload>> going;
    for (const auto& [id, u] : uploads_) {
        const bool is_stale = u->facts.purpose == blob_purpose::delta ? current_generation != u->facts.generation
                                                                      : current_generation.has_value();
        const bool is_expired = !u->busy && now_ms - u->touched_ms >= limits_.upload_expires_ms;
        if (is_stale || is_expired) going.push_back(u);
    }
    for (const auto& u : going) drop(u);
    return going.size();
}

result<void> blob_store::remove(std::string_view sha256) {
    const std::lock_guard held(mutex_);
    const auto found = blobs_.find(sha256);
    if (found == blobs_.end()) return {};
    const std::string path = path_of(sha256);
    blobs_.erase(found);
    // the entry goes when the bytes are gone for good: bytes without an entry would stay for ever
    const auto bytes_removed = fs_.unlink(path);
    if (!bytes_removed && bytes_removed.error().code != errc::not_found) return bytes_removed;
    if (const auto synced = fs_.sync_dir(parent_directory(path)); !synced) return synced;
    return fs_.unlink(path + ".json");
}

result<std::vector<std::string>> blob_store::collect(const blob_retention& keep, std::int64_t now_ms) {
    std::vector<std::string> garbage;
    {
        const std::lock_guard held(mutex_);
        std::set<std::string> fetched;
        for (const auto& [client, f] : fetching_)
            if (now_ms - f.at_ms <= limits_.fetch_grace_ms) fetched.insert(f.sha256);
        for (const auto& [hex, facts] : blobs_)
            if (!is_kept(facts, keep) && !fetched.contains(hex)) garbage.push_back(hex);
    }
    result<void> outcome;
    for (const auto& hex : garbage)
        if (const auto removed = remove(hex); !removed && outcome) outcome = removed;
    if (!outcome) return outcome.error();
    return garbage;
}

}  // namespace darlcore::storage
