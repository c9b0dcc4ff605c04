// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/sim/disk.hpp"
#include "backends/sim/process.hpp"
#include "backends/sim/rng.hpp"
#include "backends/storage/ledger_store.hpp"
#include "darlcore/ledger/clock.hpp"
#include "darlcore/ledger/machine.hpp"
#include "darlcore/ledger/record_codec.hpp"

namespace darlcore::sim {

struct ledger_node_settings {
    ledger::run_settings run;
    storage::storage_mutants storage_mutants;
    ledger::order_switches order;
    std::uint64_t seed = 1;
    std::uint64_t preallocate_bytes = std::uint64_t{32} << 10U;
    std::uint64_t room_bytes = std::uint64_t{8} << 10U;
    std::uint64_t snapshot_records = 150;
};

/// A simulated `darl serve`: the ledger machine over a ledger_store on a simulated disk. Replies and effects wait for
/// the batch they depend on; a failed commit ends the process; a start replays. Merges are answered after a while and
/// counted by generation. Thread-safety: none.
class ledger_node {
public:
    ledger_node(event_loop& loop, ledger_node_settings settings);

    /// Starts the process: recovers and says so to the ledger. A refusal is a violation.
    void start();
    /// kill -9: files stay as the page cache shows them.
    void kill();
    /// The machine is off: what was not synced is lost in this way.
    void cut_power(loss mode);
    /// The power goes at the n-th I/O call from now; `then` runs when the process has gone down with it.
    void cut_power_at_call(std::uint64_t calls, loss mode);
    void set_disk_full(bool full);
    void fail_next_sync();

    /// Handles a request; `answer` gets the outcome once it may leave.
    template <class Request, class Answer>
    void handle(const Request& request, Answer answer) {
        const ledger_time now = turn();
        if (is_refused_for_space<Request>()) return answer(full_disk<decltype(machine_->handle(request, now))>());
        auto out = machine_->handle(request, now);
        append(out.records, now);
        settle([this, out = std::move(out), answer = std::move(answer)] {
            carry_out(out.effects);
            answer(out);
        });
    }

    /// An upload that is complete and durable: told to the ledger now and at every start.
    template <class Answer>
    void store_blob(const ledger::blob_verified& blob, Answer answer) {
        if (stored_blobs_.size() >= 64) stored_blobs_.erase(stored_blobs_.begin());
        stored_blobs_.push_back(blob);
        handle(blob, std::move(answer));
    }

    process& me() { return me_; }
    [[nodiscard]] bool is_serving() const { return me_.is_alive() && machine_ != nullptr; }
    [[nodiscard]] const ledger::machine* machine() const { return machine_.get(); }
    /// Told whenever the process ended by itself (exit 1 after a failed commit).
    void on_exit(std::function<void()> told) { on_exit_ = std::move(told); }

    /// Inputs of the merge that made a generation, as it was written to its directory.
    [[nodiscard]] const std::map<std::uint64_t, std::vector<std::string>>& merge_inputs() const {
        return merge_inputs_;
    }
    [[nodiscard]] const std::vector<std::string>& violations() const { return violations_; }
    [[nodiscard]] std::uint64_t refused_full() const { return refused_full_; }
    [[nodiscard]] std::uint64_t snapshots() const { return snapshots_; }
    static round::model_files files_of(std::uint64_t generation);
    static std::string layout();

private:
    template <class Request>
    bool is_refused_for_space() {
        constexpr bool is_free =
            std::is_same_v<Request, ledger::heartbeat_request> || std::is_same_v<Request, ledger::start_input>;
        if (is_free || store_->has_room(settings_.room_bytes)) return false;
        ++refused_full_;
        clock_.hold(true);
        return true;
    }
    template <class Outcome>
    static Outcome full_disk() {
        ledger::refusal refused;
        refused.code = errc::disk_full_ack;
        refused.retry_after_ms = 5'000;
        Outcome out{};
        out.answer = refused;
        return out;
    }
    ledger_time turn();
    void append(const std::vector<ledger::record>& records, ledger_time at);
    void settle(std::function<void()> then);
    void commit();
    void down();
    void tick();
    void carry_out(const std::vector<ledger::effect>& effects);
    void merge(const ledger::effects::start_merge& wanted);
    /// Asks again while the disk is full.
    template <class Request>
    void insist(const Request& request) {
        handle(request, [this, request](const auto& out) {
            if (!out.ok() && out.refused().code == errc::disk_full_ack)
                me_.after(5'000, [this, request] { insist(request); });
        });
    }
    void retell_blobs();
    void check_start(const storage::recovered_journal& found);

    event_loop& loop_;
    ledger_node_settings settings_;
    rng random_;
    process me_;
    std::unique_ptr<disk> disk_ = std::make_unique<disk>();
    std::optional<storage::ledger_store> store_;
    std::unique_ptr<ledger::machine> machine_;
    ledger::clock clock_;
    std::vector<std::function<void()>> waiting_;
    bool commit_is_due_ = false;
    std::optional<loss> power_goes_;
    std::uint64_t acked_sequence_ = 0;
    std::uint64_t records_since_snapshot_ = 0;
    std::uint64_t told_generation_ = 0;
    std::vector<ledger::blob_verified> stored_blobs_;
    std::map<std::uint64_t, std::vector<std::string>> merge_inputs_;
    std::vector<std::string> violations_;
    std::uint64_t refused_full_ = 0;
    std::uint64_t snapshots_ = 0;
    std::function<void()> on_exit_;
};

}  // namespace darlcore::sim
