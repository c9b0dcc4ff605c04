// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "backends/storage/file_system.hpp"
#include "backends/storage/sha256.hpp"
#include "darlcore/error.hpp"

namespace darlcore::storage {

enum class blob_purpose : std::uint8_t { delta, init, wire };
std::string_view word(blob_purpose purpose);
std::optional<blob_purpose> blob_purpose_from_word(std::string_view text);

/// What is known of a blob beside its bytes; kept in a file next to them (the catalogue), so it survives a restart.
struct blob_facts {
    std::string sha256;
    std::uint64_t bytes = 0;
    blob_purpose purpose = blob_purpose::delta;
    std::string codec;
    /// Of a delta: the generation it was trained from. Of a wire blob: the generation it carries.
    std::uint64_t generation = 0;
    std::string site;
    std::string incarnation;
    /// JSON text of what the scanner found; empty until the blob is complete.
    std::string scan;
    friend bool operator==(const blob_facts&, const blob_facts&) = default;
};

/// Looks at the bytes of an upload in their order, once (finite values, norms, header).
class blob_scanner {
public:
    blob_scanner() = default;
    blob_scanner(const blob_scanner&) = delete;
    blob_scanner& operator=(const blob_scanner&) = delete;
    virtual ~blob_scanner() = default;
    virtual void update(std::string_view bytes) = 0;
    /// JSON text of the findings. Errors (the upload is dropped and answered 422): errc::meta_mismatch, not_finite, ...
    virtual result<std::string> finish() = 0;
};
using scanner_factory = std::function<std::unique_ptr<blob_scanner>(const blob_facts&)>;

struct blob_limits {
    std::uint64_t part_bytes_max = std::uint64_t{16} << 20U;
    /// Free space that uploads never touch; the space of the next merge is given per announcement.
    std::uint64_t reserve_bytes = std::uint64_t{1} << 30U;
    /// Of one site: staging and unmerged together (2 x the largest legal delta).
    std::uint64_t site_bytes_max = UINT64_MAX;
    std::uint32_t open_uploads_max = 2;
    std::int64_t upload_expires_ms = 3'600'000;
    /// A blob that a client still fetches stays this long after its last range.
    std::int64_t fetch_grace_ms = 600'000;
};

/// What the ledger says at the time of an announcement.
struct blob_standing {
    /// Nothing before generation 0 exists.
    std::optional<std::uint64_t> current_generation;
    /// Size of the layout in the announced codec; the blob may have up to 1 MiB of header more. 0: not known yet.
    std::uint64_t layout_bytes = 0;
    std::uint64_t merge_bytes = 0;
};

struct upload_status {
    std::string id;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    std::int64_t expires_in_ms = 0;
};

struct announced {
    /// The bytes are here and verified already; no upload is needed.
    bool stored = false;
    std::string scan;
    upload_status upload;
};

struct part_accepted {
    std::uint64_t offset = 0;
    /// The blob is complete, verified and durable under its name.
    bool stored = false;
    std::string scan;
};

/// What must stay when garbage is collected. Rules: the wire blobs of generations that are kept or pinned; deltas of
/// the current generation; everything in `blobs` (pledges, inputs of the last merge). Never by age.
struct blob_retention {
    std::optional<std::uint64_t> current_generation;
    std::uint64_t oldest_kept = 0;
    std::set<std::uint64_t> pinned;
    std::set<std::string> blobs;
};
/// True when the rules keep this blob.
bool is_kept(const blob_facts& blob, const blob_retention& keep);

class blob_store;

/// One part on its way in. Destroying it without `finish` ends a part that was cut short: what arrived stays, unless a
/// checksum was announced.
class part_writer {
public:
    part_writer(part_writer&& other) noexcept;
    part_writer& operator=(part_writer&&) = delete;
    part_writer(const part_writer&) = delete;
    ~part_writer();

    /// Errors: errc::too_large (more than announced), io_error, no_space.
    result<void> write(std::string_view bytes);
    /// Errors: errc::short_read (fewer bytes than announced; as cut short), checksum_mismatch (the part is discarded);
    /// behind the last part also digest_mismatch and the scanner's (the upload is dropped).
    result<part_accepted> finish(std::int64_t now_ms);

private:
    friend class blob_store;
    struct state;
    explicit part_writer(std::unique_ptr<state> s);
    std::unique_ptr<state> state_;
};

/// Content-addressed blobs under `blobs/` of a state directory, and the uploads that become blobs.
/// Promises: a name under `sha256/` always holds the bytes of that digest, durable; a catalogue entry appears with it.
/// Bytes of an upload that were handed to the file system are its offset, also after a restart. Times are milliseconds
/// of any clock that does not go back; after a restart uploads count as just touched. Thread-safety: all members; a
/// part_writer belongs to one thread. Source: 6 of the blob interface in docs/storage.md.
class blob_store {
public:
    /// Reads the catalogue; removes staging files that it does not know.
    /// `make_id` gives new upload ids: [A-Za-z0-9_-]+, never one twice.
    static result<std::unique_ptr<blob_store>> open(file_system& fs, const std::string& state_path, blob_limits limits,
                                                    scanner_factory make_scanner, std::function<std::string()> make_id,
                                                    std::int64_t now_ms);
    blob_store(const blob_store&) = delete;
    blob_store& operator=(const blob_store&) = delete;
    ~blob_store();

    /// Errors: errc::bad_request, stale_generation, quota (429), no_room (507), io_error, no_space.
    result<announced> announce(const blob_facts& facts, const blob_standing& standing, std::int64_t now_ms);
    /// Errors: errc::gone (unknown, expired or made stale: announce anew).
    result<upload_status> status(std::string_view id, std::int64_t now_ms) const;
    /// `checksum`: SHA-256 of this part as hex, or nothing.
    /// Errors: errc::gone, not_owner, offset_mismatch (ask `status`; also while another part of this upload is under
    /// way), too_large, bad_request.
    result<part_writer> begin_part(std::string_view id, std::string_view site, std::uint64_t offset,
                                   std::uint64_t length, std::optional<std::string> checksum, std::int64_t now_ms);
    /// The whole of a part, or of a small blob, at once.
    result<part_accepted> append(std::string_view id, std::string_view site, std::uint64_t offset,
                                 std::string_view bytes, std::optional<std::string> checksum, std::int64_t now_ms);
    result<part_accepted> put(const blob_facts& facts, std::string_view bytes, const blob_standing& standing,
                              std::int64_t now_ms);
    /// The owner gives up. Errors: errc::gone, not_owner.
    result<void> abandon(std::string_view id, std::string_view site);

    /// Uploads whose bytes must be read again after a restart; `prepare` does it for one (begin_part does it if nobody
    /// has), and finishes an upload that was complete.
    [[nodiscard]] std::vector<std::string> unprepared() const;
    result<void> prepare(std::string_view id, std::int64_t now_ms);

    struct opened_blob {
        std::unique_ptr<file> bytes;
        blob_facts facts;
    };
    /// Errors: errc::blob_missing. `client` (a site or address) keeps this blob alive for the fetch grace.
    result<opened_blob> fetch(std::string_view sha256, const std::string& client, std::int64_t now_ms);
    [[nodiscard]] std::optional<blob_facts> find(std::string_view sha256) const;
    [[nodiscard]] std::vector<blob_facts> list() const;
    [[nodiscard]] std::string path_of(std::string_view sha256) const;
    /// An I/O error on the way to durability: nothing more is accepted (errc::io_error); stop the server, the next
    /// start reads the disk.
    [[nodiscard]] bool failed() const;

    /// Makes a finished file a blob: a hard link, or a copy where links fail. Harmless when it is there already.
    result<void> publish(const std::string& file_path, const blob_facts& facts);

    /// Removes uploads that expired or whose base generation is no longer current. Gives how many went.
    std::size_t drop_uploads(std::optional<std::uint64_t> current_generation, std::int64_t now_ms);
    /// Removes every blob of the catalogue that the rules do not keep and nobody fetches. Unknown files are never
    /// touched. Errors: the first of the file system's; the rest is tried all the same.
    result<std::vector<std::string>> collect(const blob_retention& keep, std::int64_t now_ms);
    result<void> remove(std::string_view sha256);

private:
    friend class part_writer;
    struct upload;
    blob_store(file_system& fs, const std::string& state_path, blob_limits limits, scanner_factory make_scanner,
               std::function<std::string()> make_id);
    result<void> load_staging(std::int64_t now_ms);
    result<void> load_blobs();
    result<void> load_folder(const std::string& folder);
    void drop_abandoned(const blob_facts& facts, std::int64_t now_ms);
    result<announced> start_upload(const blob_facts& facts, std::int64_t now_ms);
    [[nodiscard]] result<void> check_announcement(const blob_facts& facts, const blob_standing& standing) const;
    [[nodiscard]] result<void> check_room(const blob_facts& facts, const blob_standing& standing) const;
    result<std::shared_ptr<upload>> claim(std::string_view id, std::string_view site);
    void release(const std::shared_ptr<upload>& u);
    void drop(const std::shared_ptr<upload>& u);
    result<void> catch_up(upload& u, std::uint64_t to);
    result<part_accepted> complete(const std::shared_ptr<upload>& u);
    result<void> store(upload& u, const blob_facts& facts);
    result<void> link_or_copy(const std::string& file_path, const blob_facts& facts);
    /// Remembers an I/O error; a full disk passes.
    result<void> durable(result<void> outcome);
    [[nodiscard]] upload_status status_of(const upload& u, std::int64_t now_ms) const;
    [[nodiscard]] std::string staging_path(std::string_view id, std::string_view ending) const;

    file_system& fs_;
    std::string root_;
    blob_limits limits_;
    scanner_factory make_scanner_;
    std::function<std::string()> make_id_;
    mutable std::mutex mutex_;
    std::map<std::string, std::shared_ptr<upload>, std::less<>> uploads_;
    std::map<std::string, blob_facts, std::less<>> blobs_;
    struct fetching {
        std::string sha256;
        std::int64_t at_ms = 0;
    };
    std::map<std::string, fetching> fetching_;
    bool failed_ = false;
};

/// Catalogue entry as JSON text, and back.
std::string encode(const blob_facts& facts);
result<blob_facts> decode_blob_facts(std::string_view text);

}  // namespace darlcore::storage
