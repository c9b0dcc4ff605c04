// SPDX-License-Identifier: Apache-2.0
#include "backends/sim/ledger_node.hpp"

#include <algorithm>
#include <variant>

#include "backends/storage/ledger_replay.hpp"

namespace darlcore::sim {

ledger_node::ledger_node(event_loop& loop, ledger_node_settings settings)
    : loop_(loop), settings_(std::move(settings)), random_(settings_.seed), me_(loop, "server") {}

round::model_files ledger_node::files_of(std::uint64_t generation) {
    std::string sha = std::to_string(generation);
    sha.insert(0, 64 - sha.size(), '0');
    return {{sha, 100}, {sha, 100}, {sha, 50}, {sha, 10}};
}

std::string ledger_node::layout() { return std::string(32, '1'); }

void ledger_node::start() {
    me_.start();
    storage::store_options options;
    options.journal.preallocate_bytes = settings_.preallocate_bytes;
    options.journal.salt = [this] { return static_cast<std::uint32_t>(random_.next()); };
    options.mutants = settings_.storage_mutants;
    ledger::machine fresh(settings_.run);
    options.identity = storage::identity_of(fresh);
    storage::ledger_replay replay;
    auto store = storage::ledger_store::open(*disk_, "/run", {}, options, replay.target());
    if (!store) {
        // a full disk may forbid the start; anything else is a broken promise
        if (store.error().code != errc::no_space && store.error().code != errc::io_error)
            violations_.push_back("the server refuses to start: " + to_text(store.error()));
        return down();
    }
    check_start(store->recovered());
    store_.emplace(std::move(*store));
    clock_ = ledger::clock(ledger_time{store_->recovered().position.ledger_ms});
    machine_ = replay.take();
    if (!machine_) {
        machine_ = std::make_unique<ledger::machine>(std::move(fresh));
        const auto first = machine_->first_record();
        append({first}, clock_.now());
        const auto applied = machine_->replay(first, clock_.now());
        if (!applied) violations_.push_back(to_text(applied.error()));
    }
    machine_->set_switches_for_testing(settings_.order);
    if (machine_->rounds().current().count < told_generation_) violations_.push_back("the model went back");
    handle(ledger::start_input{term{store_->term()}}, [](const auto&) {});
    retell_blobs();
    tick();
}

void ledger_node::check_start(const storage::recovered_journal& found) {
    if (found.position.sequence < acked_sequence_)
        violations_.push_back("acknowledged through " + std::to_string(acked_sequence_) + ", recovered " +
                              std::to_string(found.position.sequence));
    acked_sequence_ = std::max(acked_sequence_, found.position.sequence);
}

// Blobs are durable before their upload is answered; a start tells the ledger what there is.
void ledger_node::retell_blobs() {
    for (const auto& blob : std::vector(stored_blobs_)) {
        auto out = machine_->handle(blob, clock_.now());
        append(out.records, clock_.now());
        settle([this, effects = out.effects] { carry_out(effects); });
    }
}

void ledger_node::kill() {
    me_.kill();
    waiting_.clear();
    commit_is_due_ = false;
    machine_.reset();
    store_.reset();
}

void ledger_node::cut_power(loss mode) {
    kill();
    disk_ = std::make_unique<disk>(disk_->image().after_power_cut(mode, random_.next()));
}

void ledger_node::cut_power_at_call(std::uint64_t calls, loss mode) {
    power_goes_ = mode;
    disk_->inject({disk_->calls() + std::max<std::uint64_t>(calls, 1), fault_kind::power_cut, true});
}

void ledger_node::set_disk_full(bool full) {
    disk_->clear_faults();
    if (full)
        disk_->inject({disk_->calls() + 1, fault_kind::no_space, true});
    else
        clock_.hold(false);
}

void ledger_node::fail_next_sync() {
    // wherever the next syncs are: one of the next calls that sync
    for (std::uint64_t n = 1; n <= 8; ++n) disk_->inject({disk_->calls() + n, fault_kind::failed_sync, false});
}

ledger_time ledger_node::turn() {
    const ledger_time before = clock_.now();
    clock_.turn(me_.monotonic_ms());
    return before;
}

void ledger_node::append(const std::vector<ledger::record>& records, ledger_time at) {
    for (const auto& r : records) store_->append(ledger::type_number(r), at.ms, ledger::encode(r));
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
    if (records_since_snapshot_ >= settings_.snapshot_records) {
        records_since_snapshot_ = 0;
        if (const auto good = machine_->verify(); !good) violations_.push_back("books: " + to_text(good.error()));
        if (store_->snapshot(machine_->snapshot()))
            ++snapshots_;
        else if (store_->writer().failed())
            return down();
    }
    for (auto& then : std::exchange(waiting_, {})) then();
}

// The process ends by itself; with the power gone, also the page cache is.
void ledger_node::down() {
    if (power_goes_)
        cut_power(*std::exchange(power_goes_, std::nullopt));
    else
        kill();
    disk_->clear_faults();
    if (on_exit_) on_exit_();
}

void ledger_node::tick() {
    me_.after(1'000, [this] {
        if (store_->has_room(settings_.room_bytes)) {
            clock_.hold(false);
            handle(ledger::tick_input{}, [](const auto&) {});
        } else {
            clock_.hold(true);  // an expiry could not be recorded
        }
        tick();
    });
}

void ledger_node::carry_out(const std::vector<ledger::effect>& effects) {
    for (const auto& e : effects) {
        if (const auto* wanted = std::get_if<ledger::effects::start_merge>(&e)) merge(*wanted);
        if (const auto* init = std::get_if<ledger::effects::initialise_model>(&e)) {
            const ledger::model_initialised made{init->by, layout(), files_of(0), 0};
            me_.after(200, [this, made] { insist(made); });
        }
    }
}

void ledger_node::merge(const ledger::effects::start_merge& wanted) {
    me_.after(500 + static_cast<std::int64_t>(random_.below(2'000)), [this, wanted] {
        if (machine_->rounds().current().count + 1 != wanted.next.count) return;  // told twice
        // the directory of the generation, written before the record
        std::vector<std::string> inputs;
        for (const auto& input : wanted.inputs) inputs.push_back(input.id.text);
        merge_inputs_[wanted.next.count] = inputs;
        ledger::merge_done done;
        done.next = wanted.next;
        done.files = files_of(wanted.next.count);
        insist(done);
    });
}

}  // namespace darlcore::sim
