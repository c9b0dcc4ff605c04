// SPDX-License-Identifier: Apache-2.0
#include "backends/sim/ledger_node.hpp"

#include <algorithm>
#include <string_view>
#include <variant>

#include "backends/storage/ledger_replay.hpp"

namespace darlcore::sim {
namespace {

constexpr const char* run_path = "/run";
constexpr std::int64_t tick_ms = 2'000;  // the longest that one turn of the ledger's clock counts

std::string text_of(const digest16& digest) { return {digest.begin(), digest.end()}; }

storage::model_in_journal model_of(const ledger::machine* machine, const std::string& run_id) {
    storage::model_in_journal journal;
    journal.has_journal = machine != nullptr;
    if (machine == nullptr) return journal;
    const auto& rounds = machine->rounds().durable();
    if (rounds.has_model) journal.generation = rounds.current.count;
    journal.files = rounds.files;
    journal.run_id = run_id;
    return journal;
}

}  // namespace

ledger_node::ledger_node(event_loop& loop, ledger_node_settings settings)
    : loop_(loop), settings_(std::move(settings)), random_(settings_.seed), me_(loop, "server") {}

std::string ledger_node::layout() { return std::string(32, '1'); }

// --- a start -------------------------------------------------------------------------------------------------------

storage::store_options ledger_node::store_options() {
    storage::store_options options;
    options.journal.preallocate_bytes = settings_.preallocate_bytes;
    options.journal.salt = [this] { return static_cast<std::uint32_t>(random_.next()); };
    options.mutants.skip_checksum = settings_.plant == planted::checksum;
    options.mutants.skip_fsync = settings_.plant == planted::sync;
    options.mutants.skip_dir_fsync = settings_.plant == planted::directory_sync;
    options.mutants.skip_file_fsync = settings_.plant == planted::file_sync;
    options.mutants.skip_tail_rewrite = settings_.plant == planted::tail_rewrite;
    options.identity = storage::identity_of(ledger::machine(settings_.run));
    return options;
}

result<void> ledger_node::open_stores(disk& on) {
    storage::ledger_replay replay;
    auto target = replay.target();
    if (settings_.plant == planted::steal_replay) target = storage::without_steals(std::move(target));
    auto store = storage::ledger_store::open(on, run_path, {}, store_options(), target);
    if (!store) return store.error();
    machine_ = replay.take();
    const counting_store::options o{settings_.run.run_id, settings_.counters, random_.next(), settings_.plant};
    auto models = counting_store::open(on, run_path, o, model_of(machine_.get(), settings_.run.run_id),
                                       store->recovered().position.ledger_ms);
    if (!models) return models.error();
    models_ = std::move(*models);
    store_.emplace(std::move(*store));
    return {};
}

void ledger_node::start() {
    me_.start();
    if (const auto opened = open_stores(*disk_); !opened) return refused_to_start(opened.error());
    check_start(store_->recovered());
    clock_ = ledger::clock(ledger_time{store_->recovered().position.ledger_ms});
    if (!machine_) {
        machine_ = std::make_unique<ledger::machine>(settings_.run);
        const auto first = machine_->first_record();
        append({first}, clock_.now());
        const auto applied = machine_->replay(first, clock_.now());
        if (!applied) violations_.push_back(to_text(applied.error()));
    }
    ledger::order_switches order;
    order.pledge_before_merge = settings_.plant != planted::pledge;
    machine_->set_switches_for_testing(order);
    if (machine_->rounds().current().count < told_generation_) violations_.push_back("the model went back");
    learn_processes();
    handle(ledger::start_input{term{store_->term()}}, [](const auto&) {});
    retell_blobs();
    tick();
}

// A full or broken disk may forbid a start, and a flipped bit must; anything else is a broken promise.
void ledger_node::refused_to_start(const error& why) {
    machine_.reset();
    store_.reset();
    models_.reset();
    const bool is_disk = why.code == errc::no_space || why.code == errc::io_error;
    if (!is_disk && before_flip_) {
        ++faults_["bit flip refused"];
        disk_ = std::make_unique<disk>(*std::exchange(before_flip_, std::nullopt));
        expected_.reset();
    } else if (!is_disk) {
        violations_.push_back("the server refuses to start: " + to_text(why));
    }
    down();
}

void ledger_node::check_start(const storage::recovered_journal& found) {
    const std::uint64_t sequence = found.position.sequence;
    if (sequence < acked_sequence_)
        violations_.push_back("acknowledged through " + std::to_string(acked_sequence_) + ", recovered " +
                              std::to_string(sequence) + flipped_);
    if (expected_ && expected_->sequence == sequence && machine_ && expected_->digest != text_of(machine_->digest()))
        violations_.push_back("another state than before" + flipped_);
    if (before_flip_) ++faults_["bit flip harmless"];
    before_flip_.reset();
    expected_.reset();
    flipped_.clear();
    acked_sequence_ = std::max(acked_sequence_, sequence);
}

// Which process of each site counts, by the ledger as it was recovered.
void ledger_node::learn_processes() {
    for (auto& [name, current] : newest_)
        if (const auto site = machine_->leases().find_site(name))
            current = machine_->leases().site(*site, {}).incarnation;
}

// Blobs are durable before their upload is answered; a start tells the ledger what there is.
void ledger_node::retell_blobs() {
    for (const auto& blob : models_->stored()) {
        auto out = machine_->handle(blob, clock_.now());
        append(out.records, clock_.now());
        settle([this, effects = out.effects] { carry_out(effects); });
    }
}

// --- faults ----------------------------------------------------------------------------------------------------------

void ledger_node::kill() {
    me_.kill();
    waiting_.clear();
    commit_is_due_ = false;
    models_.reset();
    machine_.reset();
    store_.reset();
}

void ledger_node::cut_power(loss mode) {
    kill();
    power_goes_.reset();
    bool is_unsynced = false;
    for (const auto& [number, node] : disk_->image().inodes) is_unsynced = is_unsynced || !node.pending.empty();
    if (is_unsynced && (mode == loss::random_512 || mode == loss::random_8)) ++faults_["torn sectors"];
    if (is_unsynced && mode != loss::dropped && mode != loss::kept) ++faults_["unsynced writes reordered"];
    disk_ = std::make_unique<disk>(disk_->image().after_power_cut(mode, random_.next()));
    arm_faults();
}

void ledger_node::cut_power_at_call(std::uint64_t calls, loss mode) {
    power_goes_ = mode;
    disk_->inject({disk_->calls() + std::max<std::uint64_t>(calls, 1), fault_kind::power_cut, true});
}

std::optional<ledger_node::recovery_result> ledger_node::try_recovery(const disk_image& image) {
    disk copy(image);
    storage::ledger_replay replay;
    const auto store = storage::ledger_store::open(copy, run_path, {}, store_options(), replay.target());
    if (!store || !replay.machine()) return std::nullopt;
    return recovery_result{store->recovered().position.sequence, text_of(replay.machine()->digest())};
}

void ledger_node::flip_bit_at_rest() {
    if (before_flip_) return;
    auto files = disk_->files_below(run_path);
    std::erase_if(files, [&](const std::string& path) { return disk_->content(path).empty(); });
    if (files.empty()) return;
    // half of them into the journal, where most of the promises are
    const bool journal_only = random_.one_in(2);
    if (journal_only)
        std::erase_if(files, [](const std::string& path) { return path.find("/journal/") == std::string::npos; });
    if (files.empty()) return;
    const auto& path = files[random_.below(files.size())];
    const std::uint64_t bits = disk_->content(path).size() * 8;
    const std::uint64_t bit = random_.below(bits);
    before_flip_ = disk_->image();
    expected_ = try_recovery(*before_flip_);
    flipped_ = " (bit " + std::to_string(bit) + " of " + path + " was flipped)";
    disk_->flip_bit(path, bit);
}

void ledger_node::arm_faults() {
    disk_->clear_faults();
    if (disk_full_) disk_->inject({disk_->calls() + 1, fault_kind::no_space, true});
    if (io_broken_) disk_->inject({disk_->calls() + 1, fault_kind::io_error, true});
    if (short_transfers_) disk_->inject({disk_->calls() + 1, fault_kind::short_transfer, true});
}
void ledger_node::set_disk_full(bool full) {
    disk_full_ = full;
    if (!full) clock_.hold(false);
    arm_faults();
}
void ledger_node::set_io_broken(bool broken) {
    io_broken_ = broken;
    arm_faults();
}
void ledger_node::set_short_transfers(bool on) {
    short_transfers_ = on;
    arm_faults();
}
void ledger_node::fail_next_sync() {
    // wherever the next syncs are: one of the next calls that sync
    for (std::uint64_t n = 1; n <= 8; ++n) disk_->inject({disk_->calls() + n, fault_kind::failed_sync, false});
}
void ledger_node::fail_one_call() {
    disk_->inject({disk_->calls() + 1 + random_.below(12), fault_kind::io_error, false});
}

// --- requests and batches ------------------------------------------------------------------------------------------

ledger_time ledger_node::turn() {
    const ledger_time before = clock_.now();
    clock_.turn(me_.monotonic_ms());
    return before;
}

void ledger_node::append(const std::vector<ledger::record>& records, ledger_time at) {
    for (const auto& r : records) {
        const std::string payload = ledger::encode(r);
        for (const char c : payload) record_digest_ = (record_digest_ ^ static_cast<unsigned char>(c)) * 1099511628211U;
        store_->append(ledger::type_number(r), at.ms, payload);
    }
    records_since_snapshot_ += records.size();
}

// One sync for everything that arrives within a few milliseconds; replies of reads wait as well.
void ledger_node::settle(std::function<void()> then) {
    waiting_.push_back(std::move(then));
    if (commit_is_due_) return;
    commit_is_due_ = true;
    me_.after(1 + static_cast<std::int64_t>(random_.below(8)), [this] { commit(); });
}

void ledger_node::commit() {
    commit_is_due_ = false;
    if (!store_->commit()) return down();
    acked_sequence_ = std::max(acked_sequence_, store_->batches().durable_position().sequence);
    told_generation_ = std::max(told_generation_, machine_->rounds().current().count);
    if (records_since_snapshot_ >= settings_.snapshot_records) snapshot();
    if (!is_serving()) return;
    for (auto& then : std::exchange(waiting_, {})) {
        if (!is_serving()) return;  // what was asked before may have ended the process
        then();
    }
}

void ledger_node::snapshot() {
    records_since_snapshot_ = 0;
    if (const auto good = machine_->verify(); !good) violations_.push_back("books: " + to_text(good.error()));
    if (store_->snapshot(machine_->snapshot()))
        ++snapshots_;
    else if (store_->writer().failed())
        down();
}

// The process ends by itself; with the power gone, also the page cache is.
void ledger_node::down() {
    if (power_goes_)
        cut_power(*std::exchange(power_goes_, std::nullopt));
    else
        kill();
    arm_faults();
    if (on_exit_) on_exit_();
}

void ledger_node::tick() {
    me_.after(tick_ms, [this] {
        if (store_->has_room(settings_.room_bytes)) {
            clock_.hold(false);
            handle(ledger::tick_input{}, [](const auto&) {});
            // what an operator does when merges failed again and again
            if (machine_->rounds().state() == round::phase::paused && !disk_full_) insist(ledger::resume_request{});
        } else {
            clock_.hold(true);  // an expiry could not be recorded
        }
        tick();
    });
}

// --- blobs -----------------------------------------------------------------------------------------------------------

bool ledger_node::is_lost() {
    if (!models_->blobs().failed() && !power_goes_) return false;
    if (!models_->blobs().failed() && store_->commit()) return false;
    down();
    return true;
}

storage::blob_standing ledger_node::standing() const {
    storage::blob_standing s;
    const auto& rounds = machine_->rounds().durable();
    if (rounds.has_model) s.current_generation = rounds.current.count;
    return s;
}

void ledger_node::announce(const ledger::announce_upload& may, const storage::blob_facts& facts,
                           announced_answer answer) {
    handle(may, [this, facts, answer = std::move(answer)](const auto& out) {
        if (!out.ok()) return answer(fail(out.refused().code, out.refused().context));
        const auto begun = models_->blobs().announce(facts, standing(), clock_.now().ms);
        if (!is_lost()) answer(begun);
    });
}

void ledger_node::take_part(const lease::caller& who, const storage::upload_status& at, const std::string& sha256,
                            const std::string& bytes, part_answer answer) {
    const auto take = [this, who, at, sha256, bytes, answer = std::move(answer)](const auto& out) {
        if (!out.ok()) return answer(fail(out.refused().code, out.refused().context));
        const auto taken = models_->blobs().append(at.id, who.site.name, at.offset, bytes, storage::sha256_hex(bytes),
                                                   clock_.now().ms);
        if (is_lost()) return;
        if (!taken || !taken->stored) return answer(taken);
        if (const auto facts = models_->blobs().find(sha256)) insist(models_->verified(*facts));
        settle([answer, taken] { answer(taken); });
    };
    handle(ledger::upload_progress{who, 50}, take);
}

void ledger_node::fetch(const std::string& sha256, const std::string& client, const bytes_answer& answer) {
    const auto bytes = models_->read(sha256, client, clock_.now().ms);
    if (!is_lost()) answer(bytes);
}

result<counting_store::evidence> ledger_node::model() {
    disk_->clear_faults();
    return models_->read_model(machine_->rounds().current());
}

// --- effects ---------------------------------------------------------------------------------------------------------

void ledger_node::carry_out(const std::vector<ledger::effect>& effects) {
    for (const auto& e : effects) {
        if (!is_serving()) return;
        std::visit([this](const auto& one) { carry_out(one); }, e);
    }
}

void ledger_node::carry_out(const ledger::effects::initialise_model& wanted) {
    me_.after(200, [this, wanted] {
        if (machine_->rounds().durable().has_model) return;
        const auto begun = models_->begin_first(wanted.sha256, clock_.now().ms);
        if (is_lost()) return;
        if (!begun) return insist(ledger::init_failed{to_text(begun.error())});
        me_.after(50, [this, wanted] { seal_first(wanted); });
    });
}

void ledger_node::seal_first(const ledger::effects::initialise_model& wanted) {
    const auto files = models_->seal(generation{0});
    if (is_lost()) return;
    if (!files) return insist(ledger::init_failed{to_text(files.error())});
    me_.after(20, [this, wanted, files] {
        const auto published = models_->publish_wire(generation{0}, *files);
        if (is_lost()) return;
        if (!published) return insist(ledger::init_failed{to_text(published.error())});
        me_.after(20, [this, wanted, files] { insist(ledger::model_initialised{wanted.by, layout(), *files, 0}); });
    });
}

void ledger_node::carry_out(const ledger::effects::start_merge& wanted) {
    me_.after(500 + static_cast<std::int64_t>(random_.below(2'000)), [this, wanted] {
        if (machine_->rounds().current().count + 1 != wanted.next.count) return;  // told twice
        const auto begun = models_->begin_merge(wanted, clock_.now().ms);
        if (is_lost()) return;
        if (!begun) return insist(ledger::merge_failed{wanted.next, to_text(begun.error()), {}});
        if (!begun->used_any) return insist(ledger::merge_failed{wanted.next, "nothing was usable", begun->rejected});
        me_.after(100 + static_cast<std::int64_t>(random_.below(500)),
                  [this, wanted, begun = *begun] { seal_merge(wanted, begun); });
    });
}

void ledger_node::seal_merge(const ledger::effects::start_merge& wanted, const counting_store::begun_merge& begun) {
    if (machine_->rounds().current().count + 1 != wanted.next.count) return;
    const auto files = models_->seal(wanted.next);
    if (is_lost()) return;
    if (!files) return insist(ledger::merge_failed{wanted.next, to_text(files.error()), {}});
    me_.after(20, [this, wanted, begun, files] {
        const auto published = models_->publish_wire(wanted.next, *files);
        if (is_lost()) return;
        if (!published) return insist(ledger::merge_failed{wanted.next, to_text(published.error()), {}});
        ledger::merge_done done;
        done.next = wanted.next;
        done.files = *files;
        done.rejected = begun.rejected;
        me_.after(20, [this, done] { insist(done); });
    });
}

void ledger_node::carry_out(const ledger::effects::publish_generation& wanted) {
    me_.after(10, [this, wanted] {
        const auto pointed = models_->point(wanted.published);
        const auto published = pointed ? models_->publish_wire(wanted.published, wanted.files) : pointed;
        if (is_lost() || published) return;
        me_.after(5'000, [this, wanted] {
            if (machine_->rounds().current() == wanted.published) carry_out(wanted);
        });
    });
}

void ledger_node::carry_out(const ledger::effects::collect_garbage& wanted) {
    me_.after(40, [this, wanted] {
        const auto removed = models_->collect(wanted, machine_->rounds().current(), clock_.now().ms);
        if (is_lost() || !removed) return;
        for (const auto& sha256 : *removed) handle(ledger::blob_gone{sha256}, [](const auto&) {});
    });
}

void ledger_node::carry_out(const ledger::effects::delete_blob& wanted) {
    const auto removed = models_->blobs().remove(wanted.sha256);
    if (is_lost() || !removed) return;
    handle(ledger::blob_gone{wanted.sha256}, [](const auto&) {});
}

void ledger_node::carry_out(const ledger::effects::drop_stale_uploads& wanted) {
    models_->blobs().drop_uploads(wanted.current.count, clock_.now().ms);
}

}  // namespace darlcore::sim
