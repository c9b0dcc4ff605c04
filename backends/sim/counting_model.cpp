// SPDX-License-Identifier: Apache-2.0
#include "backends/sim/counting_model.hpp"

#include <charconv>
#include <sstream>
#include <utility>

#include "adapters/formats/json.hpp"
#include "backends/sim/rng.hpp"
#include "backends/storage/sha256.hpp"

namespace darlcore::sim {
namespace {

constexpr std::string_view delta_word = "delta";

/// Keeps the bytes of an upload and checks them at the end.
class counting_scanner final : public storage::blob_scanner {
public:
    explicit counting_scanner(bool is_delta) : is_delta_(is_delta) {}
    void update(std::string_view bytes) override { bytes_.append(bytes); }
    result<std::string> finish() override {
        if (!is_delta_) return std::string("init");
        auto delta = decode_delta(bytes_);
        if (!delta) return delta.error();
        delta->counters.clear();
        return encode(*delta);
    }

private:
    bool is_delta_;
    std::string bytes_;
};

storage::blob_facts wire_facts(generation g, const round::model_files& files) {
    return {files.wire.sha256, files.wire.bytes, storage::blob_purpose::wire, "f32", g.count, {}, {}, {}};
}

std::string meta_text(const std::string& run_id, const std::vector<std::string>& contributions) {
    json::value ids{json::array{}};
    for (const auto& id : contributions) ids.push_back(id);
    return json::dump(json::make_object({{"run_id", run_id}, {"contributions", std::move(ids)}}));
}

}  // namespace

std::string encode(const counting_delta& d) {
    std::string text(delta_word);
    text.append(" ").append(d.id).append(" ").append(d.site);
    for (const auto number : {d.base, d.tokens, d.steps}) text.append(" ").append(std::to_string(number));
    return text.append("\n").append(d.counters);
}

result<counting_delta> decode_delta(std::string_view bytes) {
    const auto bad = [] { return fail(errc::meta_mismatch, "not a delta of a counting model"); };
    const auto end = bytes.find('\n');
    if (end == std::string_view::npos) return bad();
    std::istringstream head{std::string(bytes.substr(0, end))};
    counting_delta d;
    std::string kind;
    if (!(head >> kind >> d.id >> d.site >> d.base >> d.tokens >> d.steps) || kind != delta_word) return bad();
    d.counters = bytes.substr(end + 1);
    return d;
}

result<std::unique_ptr<counting_store>> counting_store::open(storage::file_system& files, const std::string& path,
                                                             const options& o, const storage::model_in_journal& journal,
                                                             std::int64_t now_ms) {
    storage::model_mutants mutants;
    mutants.skip_file_fsync = o.plant == planted::merge_order;
    mutants.skip_dir_fsync = o.plant == planted::merge_order || o.plant == planted::directory_sync;
    mutants.skip_digests = o.plant == planted::model_digest;
    auto models = storage::model_directory::open(files, path, mutants);
    if (!models) return models.error();
    std::unique_ptr<counting_store> store(new counting_store(files, std::move(*models), o));
    storage::blob_limits limits;
    limits.reserve_bytes = 0;
    const auto scanner = [](const storage::blob_facts& f) {
        return std::make_unique<counting_scanner>(f.purpose == storage::blob_purpose::delta);
    };
    auto ids = std::make_shared<rng>(o.id_seed);
    const auto make_id = [ids] { return "u" + std::to_string(ids->next()); };
    auto blobs = storage::blob_store::open(files, path, limits, scanner, make_id, now_ms);
    if (!blobs) return blobs.error();
    store->blobs_ = std::move(*blobs);
    if (const auto good = store->models_.recover(journal, o.plant != planted::model_digest); !good) return good.error();
    for (const auto& id : store->blobs_->unprepared()) {
        const auto prepared = store->blobs_->prepare(id, now_ms);
        if (!prepared && store->blobs_->failed()) return prepared.error();
    }
    return store;
}

ledger::blob_verified counting_store::verified(const storage::blob_facts& f) const {
    const bool is_delta = f.purpose == storage::blob_purpose::delta;
    ledger::blob_verified told{
        site_id{f.site}, f.sha256, is_delta ? ledger::blob_purpose::delta : ledger::blob_purpose::init, {}};
    told.facts.bytes = f.bytes;
    if (!is_delta) return told;
    if (const auto d = decode_delta(f.scan)) {
        told.facts.metadata =
            contribution_claim{options_.run_id, site_id{d->site}, generation{d->base}, d->tokens, d->steps};
        told.facts.scan = delta_scan{true, 1.0F, 1.0};
    }
    return told;
}

std::vector<ledger::blob_verified> counting_store::stored() const {
    std::vector<ledger::blob_verified> all;
    for (const auto& f : blobs_->list())
        if (f.purpose != storage::blob_purpose::wire && !f.scan.empty()) all.push_back(verified(f));
    return all;
}

result<std::string> counting_store::read(const std::string& sha256, const std::string& client, std::int64_t now_ms) {
    const auto blob = blobs_->fetch(sha256, client, now_ms);
    if (!blob) return blob.error();
    std::string bytes(blob->facts.bytes, '\0');
    const auto got = storage::pread_all(*blob->bytes, bytes, 0);
    if (!got) return got.error();
    bytes.resize(*got);
    return bytes;
}

result<std::string> counting_store::read_generation(generation which, const char* name) {
    return storage::read_file(files_, storage::join(models_.path_of(which.count), name));
}

result<void> counting_store::write(const std::string& folder, const char* name, std::string_view bytes) {
    const auto file = files_.open(storage::join(folder, name), storage::open_mode::create);
    if (!file) return file.error();
    return storage::pwrite_all(**file, bytes, 0);
}

result<void> counting_store::write_generation(generation made, const std::string& counters,
                                              const std::vector<std::string>& contributions) {
    const auto folder = models_.begin(made.count);
    if (!folder) return folder.error();
    if (const auto ok = write(*folder, storage::global_file, counters); !ok) return ok;
    if (made.count > 0)
        if (const auto ok = write(*folder, storage::velocity_file, "velocity " + std::to_string(made.count)); !ok)
            return ok;
    if (const auto ok = write(*folder, storage::wire_file, std::to_string(made.count) + "\n" + counters); !ok)
        return ok;
    return write(*folder, storage::meta_file, meta_text(options_.run_id, contributions));
}

result<void> counting_store::begin_first(const std::string& sha256, std::int64_t now_ms) {
    const auto init = read(sha256, "merge", now_ms);
    if (!init) return init.error();
    if (storage::sha256_hex(*init) != sha256) return fail(errc::digest_mismatch, "the first weights are damaged");
    return write_generation(generation{0}, std::string(options_.counters, '\0'), {});
}

result<counting_store::begun_merge> counting_store::begin_merge(const ledger::effects::start_merge& wanted,
                                                                std::int64_t now_ms) {
    const auto before = read_model(generation{wanted.next.count - 1});
    if (!before) return before.error();
    auto now = *before;
    begun_merge out;
    bool twice = options_.plant == planted::double_merge;
    for (const auto& input : wanted.inputs) {
        const auto bytes = read(input.sha256, "merge", now_ms);
        if (!bytes && bytes.error().code != errc::blob_missing && bytes.error().code != errc::not_found)
            return bytes.error();
        const bool is_whole =
            bytes && (options_.plant == planted::blob_digest || storage::sha256_hex(*bytes) == input.sha256);
        const auto delta = is_whole ? decode_delta(*bytes) : fail(errc::digest_mismatch);
        if (!delta || delta->counters.size() != now.counters.size()) {
            out.rejected.push_back({input.id, input.site, errc::digest_mismatch});
            continue;
        }
        for (int times = std::exchange(twice, false) ? 2 : 1; times > 0; --times)
            for (std::size_t i = 0; i < now.counters.size(); ++i)
                now.counters[i] = static_cast<char>(now.counters[i] + delta->counters[i]);
        now.contributions.push_back(input.id.text);
        out.used_any = true;
    }
    if (!out.used_any) return out;
    if (const auto ok = write_generation(wanted.next, now.counters, now.contributions); !ok) return ok.error();
    return out;
}

result<round::model_files> counting_store::seal(generation made) { return models_.seal(made.count); }

result<void> counting_store::publish_wire(generation made, const round::model_files& files) {
    return blobs_->publish(storage::join(models_.path_of(made.count), storage::wire_file), wire_facts(made, files));
}

result<std::vector<std::string>> counting_store::collect(const ledger::effects::collect_garbage& rule,
                                                         generation current, std::int64_t now_ms) {
    storage::blob_retention keep;
    keep.current_generation = current.count;
    keep.oldest_kept = rule.oldest_kept.count;
    for (const generation g : rule.pinned) keep.pinned.insert(g.count);
    keep.blobs.insert(rule.blobs.begin(), rule.blobs.end());
    if (const auto gone = models_.collect(keep.oldest_kept, keep.pinned); !gone) return gone.error();
    return blobs_->collect(keep, now_ms);
}

result<counting_store::evidence> counting_store::read_model(generation which) {
    auto counters = read_generation(which, storage::global_file);
    if (!counters) return counters.error();
    const auto meta = read_generation(which, storage::meta_file);
    if (!meta) return meta.error();
    const auto document = json::parse(*meta);
    if (!document) return fail(errc::corrupt, "the meta of a generation cannot be read");
    evidence found{std::move(*counters), {}};
    const auto* ids = document->find("contributions");
    if (ids == nullptr || ids->as_array() == nullptr) return fail(errc::corrupt, "the meta names no contributions");
    for (const auto& id : *ids->as_array())
        if (id.as_string() != nullptr) found.contributions.push_back(*id.as_string());
    return found;
}

}  // namespace darlcore::sim
