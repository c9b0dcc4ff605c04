// SPDX-License-Identifier: Apache-2.0
#include "backends/asio/model_service.hpp"

#include <algorithm>
#include <fstream>
#include <thread>

#include <fmt/format.h>
#include <asio/post.hpp>

#include "backends/asio/on_pool.hpp"
#include "backends/asio/scan_text.hpp"
#include "backends/asio/token_file.hpp"
#include "backends/asio/wire_fields.hpp"
#include "darlcore/ledger/machine_class.hpp"

namespace darlcore::http {

namespace {

std::string upload_id() {
    auto id = new_token();
    return id ? id->substr(0, 32) : std::string();
}

std::uint64_t little_endian(const char (&bytes)[8]) {
    std::uint64_t n = 0;
    for (std::size_t i = 8; i-- > 0;) n = (n << 8U) | static_cast<unsigned char>(bytes[i]);
    return n;
}

}  // namespace

model_service::model_service(asio::io_context& loop, asio::thread_pool& bulk, ledger_service& service,
                             storage::file_system& files, std::string state_path, std::unique_ptr<model_work> work)
    : loop_(loop),
      bulk_(bulk),
      service_(service),
      core_(service.core()),
      files_(files),
      state_path_(std::move(state_path)),
      work_(std::move(work)) {}

model_service::~model_service() { stop(); }

void model_service::stop() {
    alive_.reset();
    merges_.join();
}

result<void> model_service::open(bool new_run) {
    storage::blob_limits limits;
    limits.part_bytes_max = service_.options().part_bytes_max;
    limits.reserve_bytes = service_.options().reserve_bytes;
    auto blobs = storage::blob_store::open(
        files_, state_path_, limits, [this](const storage::blob_facts& f) { return work_->scanner(f); }, upload_id,
        core_.now().ms);
    if (!blobs) return blobs.error();
    blobs_ = std::move(*blobs);
    auto models = storage::model_directory::open(files_, state_path_, {},
                                                 static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
    if (!models) return models.error();
    models_.emplace(std::move(*models));
    const auto& rounds = core_.machine().rounds().durable();
    storage::model_in_journal journal;
    journal.has_journal = !new_run;
    if (rounds.has_model) journal.generation = rounds.current.count;
    journal.files = rounds.files;
    journal.run_id = core_.machine().settings().run_id;
    const auto recovered = models_->recover(journal);
    if (!recovered) return recovered.error();
    if (recovered->rolled_forward) core_.add_event("model_rolled_forward", {}, "CURRENT was behind the journal");
    if (rounds.has_model) learn_sizes(storage::join(models_->path_of(rounds.current.count), storage::global_file));
    return {};
}

// Header length first: the rest is data.
void model_service::learn_sizes(const std::string& global_path) {
    std::ifstream in(global_path, std::ios::binary | std::ios::ate);
    const auto size = static_cast<std::uint64_t>(std::max<std::streamoff>(0, in.tellg()));
    in.seekg(0);
    char head[8] = {};
    if (!in.read(head, sizeof head)) return;
    const std::uint64_t header = little_endian(head) + 8;
    if (header < size) data_bytes_ = size - header;
}

void model_service::start(const std::string& init_file, fatal_handler on_fatal) {
    on_fatal_ = std::move(on_fatal);
    for (const storage::blob_facts& f : blobs_->list())
        if (f.purpose != storage::blob_purpose::wire && !f.scan.empty()) stored(f.sha256);
    for (const std::string& id : blobs_->unprepared())
        asio::post(bulk_, [this, id, alive = std::weak_ptr<bool>(alive_), now = core_.now().ms] {
            if (alive.lock()) (void)blobs_->prepare(id, now);
        });
    if (!init_file.empty() && !core_.machine().rounds().durable().has_model) initialise(init_file, std::nullopt, {});
}

template <class Request>
void model_service::tell(Request request) {
    asio::post(loop_, [this, request = std::move(request), alive = std::weak_ptr<bool>(alive_)] {
        if (alive.lock()) core_.apply(request);
    });
}

void model_service::report(const std::string& what, const error& why) {
    asio::post(loop_, [this, what, why, alive = std::weak_ptr<bool>(alive_)] {
        if (!alive.lock()) return;
        core_.add_event(what, {}, to_text(why));
        if (blobs_->failed() && on_fatal_) on_fatal_(why);
    });
}

storage::blob_standing model_service::standing(const std::string& codec) const {
    storage::blob_standing s;
    const auto& rounds = core_.machine().rounds().durable();
    if (rounds.has_model) s.current_generation = rounds.current.count;
    const std::uint64_t data = data_bytes_;
    if (codec == "f32")
        s.layout_bytes = data;
    else if (codec == "bf16" || codec == "f16")
        s.layout_bytes = data / 2;
    s.merge_bytes = data * 5 / 2;
    return s;
}

void model_service::stored(const std::string& sha256) {
    const auto facts = blobs_->find(sha256);
    if (!facts) return;
    auto scan = parse_scan_text(facts->scan);
    if (!scan) return;
    scan->bytes = facts->bytes;
    const bool init = facts->purpose == storage::blob_purpose::init;
    core_.apply(ledger::blob_verified{
        {facts->site}, sha256, init ? ledger::blob_purpose::init : ledger::blob_purpose::delta, *scan});
}

// --- effects -----------------------------------------------------------------------------------------------------

void model_service::on_effect(const ledger::effect& e) {
    using namespace ledger::effects;
    if (const auto* m = std::get_if<start_merge>(&e)) return merge(*m);
    if (const auto* i = std::get_if<initialise_model>(&e))
        return initialise(blobs_->path_of(i->sha256), i->by, i->sha256);
    if (const auto* p = std::get_if<publish_generation>(&e)) return publish(*p);
    if (const auto* g = std::get_if<collect_garbage>(&e)) return collect(*g);
    if (const auto* d = std::get_if<delete_blob>(&e)) return remove_blob(d->sha256);
    if (const auto* p = std::get_if<ledger::effects::prepare_epoch>(&e)) return this->prepare_epoch(p->epoch);
    if (const auto* u = std::get_if<drop_stale_uploads>(&e)) {
        asio::post(bulk_,
                   [this, current = u->current.count, now = core_.now().ms, alive = std::weak_ptr<bool>(alive_)] {
                       if (alive.lock()) blobs_->drop_uploads(current, now);
                   });
    }
}

void model_service::merge(const ledger::effects::start_merge& e) {
    merge_order order;
    order.next = e.next;
    order.run_id = core_.machine().settings().run_id;
    order.current = models_->path_of(e.next.count - 1);
    order.has_velocity = !e.base.velocity.sha256.empty();
    order.policy = e.policy;
    order.norms = core_.machine().kept().norms;
    order.clip = core_.machine().settings().guards.clip;
    order.global_step = core_.machine().rounds().durable().global_step;
    order.tokens_total = core_.machine().rounds().durable().tokens_total;
    for (const auto& input : e.inputs) {
        merge_file file{input, blobs_->path_of(input.sha256), {}};
        if (const auto facts = blobs_->find(input.sha256)) {
            if (auto scan = parse_scan_text(facts->scan)) file.facts = *scan;
        }
        order.deltas.push_back(std::move(file));
    }
    asio::post(merges_, [this, order = std::move(order)]() mutable { merge_now(order); });
}

// On the merge thread.
void model_service::merge_now(const merge_order& given) {
    merge_order order = given;
    const auto give_up = [&](const error& why) {
        report("merge_failed", why);
        tell(ledger::merge_failed{order.next, to_text(why), {}});
    };
    const auto staging = models_->begin(order.next.count);
    if (!staging) return give_up(staging.error());
    order.staging = *staging;
    auto merged = work_->merge(order);
    if (!merged) return give_up(merged.error());
    if (!merged->merged) return tell(ledger::merge_failed{order.next, "nothing was usable", merged->rejected});
    const auto files = models_->seal(order.next.count, merged->files);
    if (!files) return give_up(files.error());
    // its bytes are final: pollers that hear of the new generation find them at once
    const std::string wire = storage::join(models_->path_of(order.next.count), storage::wire_file);
    const storage::blob_facts facts{
        files->wire.sha256, files->wire.bytes, storage::blob_purpose::wire, "bf16", order.next.count, {}, {}, {}};
    if (auto ok = blobs_->publish(wire, facts); !ok) return give_up(ok.error());
    tell(ledger::merge_done{order.next, *files, merged->rejected, merged->figures, merged->max_abs_weight});
}

void model_service::initialise(const std::string& source, std::optional<site_id> by, std::string sha256) {
    const std::string run_id = core_.machine().settings().run_id;
    asio::post(merges_, [this, source, by = std::move(by), sha256 = std::move(sha256), run_id] {
        const auto give_up = [&](const error& why) {
            report("init_failed", why);
            tell(ledger::init_failed{to_text(why)});
            if (!sha256.empty()) (void)blobs_->remove(sha256);
        };
        const auto staging = models_->begin(0);
        if (!staging) return give_up(staging.error());
        const auto made = work_->initialise(source, *staging, run_id);
        if (!made) return give_up(made.error());
        const auto files = models_->seal(0, made->files);
        if (!files) return give_up(files.error());
        learn_sizes(storage::join(models_->path_of(0), storage::global_file));
        const std::string wire = storage::join(models_->path_of(0), storage::wire_file);
        const storage::blob_facts facts{
            files->wire.sha256, files->wire.bytes, storage::blob_purpose::wire, "bf16", 0, {}, {}, {}};
        if (auto ok = blobs_->publish(wire, facts); !ok) return give_up(ok.error());
        tell(ledger::model_initialised{by, made->layout_digest, *files, made->max_abs_weight});
    });
}

void model_service::publish(const ledger::effects::publish_generation& e) {
    asio::post(merges_, [this, e] {
        if (auto ok = models_->point(e.published.count); !ok) report("publish_failed", ok.error());
        const std::string wire = storage::join(models_->path_of(e.published.count), storage::wire_file);
        const storage::blob_facts facts{e.files.wire.sha256,
                                        e.files.wire.bytes,
                                        storage::blob_purpose::wire,
                                        "bf16",
                                        e.published.count,
                                        {},
                                        {},
                                        {}};
        if (auto ok = blobs_->publish(wire, facts); !ok) report("publish_failed", ok.error());
    });
}

void model_service::collect(const ledger::effects::collect_garbage& e) {
    storage::blob_retention keep;
    keep.current_generation = core_.machine().rounds().current().count;
    keep.oldest_kept = e.oldest_kept.count;
    for (const generation g : e.pinned) keep.pinned.insert(g.count);
    keep.blobs.insert(e.blobs.begin(), e.blobs.end());
    asio::post(merges_, [this, keep, now = core_.now().ms] {
        if (auto gone = models_->collect(keep.oldest_kept, keep.pinned); !gone) report("collect_failed", gone.error());
        const auto removed = blobs_->collect(keep, now);
        if (!removed) return report("collect_failed", removed.error());
        for (const std::string& sha256 : *removed) tell(ledger::blob_gone{sha256});
    });
}

void model_service::remove_blob(const std::string& sha256) {
    asio::post(bulk_, [this, sha256, alive = std::weak_ptr<bool>(alive_)] {
        if (!alive.lock()) return;
        if (auto ok = blobs_->remove(sha256); !ok && ok.error().code != errc::blob_missing)
            report("delete_failed", ok.error());
        tell(ledger::blob_gone{sha256});
    });
}

void model_service::prepare_epoch(epoch_index epoch) {
    asio::post(bulk_, [this, epoch, space = core_.machine().settings().space, alive = std::weak_ptr<bool>(alive_)] {
        const auto map = block_space::build(space, epoch);
        if (!map) return report("prepare_failed", map.error());
        asio::post(loop_, [this, map = *map, alive] {
            if (alive.lock()) core_.adopt(map);
        });
    });
}

void model_service::add_status(json::value& status) const {
    const auto free = files_.free_bytes(state_path_);
    status.set("disk", json::make_object({{"free", free ? wire::count(*free) : json::value(nullptr)},
                                          {"reserve", wire::count(service_.options().reserve_bytes)},
                                          {"needed_next", wire::count(data_bytes_ * 5 / 2)}}));
    const auto& durable = core_.machine().rounds().durable();
    if (durable.has_model)
        status.set("wire", json::make_object({{"generation", wire::count(durable.current.count)},
                                              {"sha256", durable.files.wire.sha256},
                                              {"bytes", wire::count(durable.files.wire.bytes)}}));
    status.set("wan_bytes", json::make_object({{"up", wire::count(bytes_up_)}, {"down", wire::count(bytes_down_)}}));
}

void model_service::add_metrics(std::string& text) const {
    text += fmt::format(
        "# HELP darl_blob_bytes_up_total Bytes of uploads received.\n# TYPE darl_blob_bytes_up_total counter\n"
        "darl_blob_bytes_up_total {}\n"
        "# HELP darl_blob_bytes_down_total Bytes of blobs sent.\n# TYPE darl_blob_bytes_down_total counter\n"
        "darl_blob_bytes_down_total {}\n",
        bytes_up_, bytes_down_);
}

}  // namespace darlcore::http
