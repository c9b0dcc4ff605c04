// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "backends/sim/counting_model.hpp"
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
    planted plant = planted::none;
    std::uint64_t seed = 1;
    std::uint64_t counters = 0;  ///< of the model: blocks of all epochs
    std::uint64_t preallocate_bytes = std::uint64_t{32} << 10U;
    std::uint64_t room_bytes = std::uint64_t{8} << 10U;
    std::uint64_t snapshot_records = 150;
};

/// A simulated `darl serve`: the ledger machine over a ledger_store, a blob store and a model directory on a simulated
/// disk. Replies and effects wait for the batch they depend on; a failed commit ends the process; a start replays. Each
/// step of a merge is an event of its own, so that faults fall between them. Thread-safety: none.
class ledger_node {
public:
    ledger_node(event_loop& loop, ledger_node_settings settings);

    /// Starts the process: recovers and says so to the ledger. A refusal is a violation, unless a bit was flipped: then
    /// the disk is put back as it was before, as an operator would.
    void start();
    /// kill -9: files stay as the page cache shows them.
    void kill();
    /// The machine is off: what was not synced is lost in this way.
    void cut_power(loss mode);
    /// The power goes at the n-th I/O call from now.
    void cut_power_at_call(std::uint64_t calls, loss mode);
    /// While the process is down: one bit of a file changes.
    void flip_bit_at_rest();
    void set_disk_full(bool full);
    void set_io_broken(bool broken);
    void set_short_transfers(bool on);
    void fail_next_sync();
    void fail_one_call();

    /// Handles a request; `answer` gets the outcome once it may leave.
    template <class Request, class Answer>
    void handle(Request request, Answer answer) {
        const ledger_time now = turn();
        if (is_refused_for_space<Request>()) return answer(full_disk<decltype(machine_->handle(request, now))>());
        const bool is_stale = check_process(request);
        auto out = machine_->handle(request, now);
        note_standing(request, is_stale, out.ok() && !is_idle(request, out));
        append(out.records, now);
        if (settings_.plant == planted::early_reply) {
            acked_sequence_ = std::max(acked_sequence_, store_->batches().last_sequence());
            answer(out);
            if (!is_serving()) return;
            return settle([this, out = std::move(out)] { carry_out(out.effects); });
        }
        settle([this, out = std::move(out), answer = std::move(answer)] {
            carry_out(out.effects);
            answer(out);
        });
    }

    // The blob routes. Answers with the error of the ledger or of the blob store.
    using announced_answer = std::function<void(const result<storage::announced>&)>;
    using part_answer = std::function<void(const result<storage::part_accepted>&)>;
    using bytes_answer = std::function<void(const result<std::string>&)>;
    void announce(const ledger::announce_upload& may, const storage::blob_facts& facts, announced_answer answer);
    void take_part(const lease::caller& who, const storage::upload_status& at, const std::string& sha256,
                   const std::string& bytes, part_answer answer);
    void fetch(const std::string& sha256, const std::string& client, const bytes_answer& answer);

    process& me() { return me_; }
    [[nodiscard]] bool is_serving() const { return me_.is_alive() && machine_ != nullptr; }
    [[nodiscard]] const ledger::machine* machine() const { return machine_.get(); }
    /// Told whenever the process ended by itself (exit 1 after a failed commit).
    void on_exit(std::function<void()> told) { on_exit_ = std::move(told); }
    /// The model as the disk holds it; ends all faults.
    [[nodiscard]] result<counting_store::evidence> model();

    [[nodiscard]] const std::vector<std::string>& violations() const { return violations_; }
    [[nodiscard]] const std::map<std::string, std::uint64_t>& faults() const { return faults_; }
    [[nodiscard]] std::uint64_t snapshots() const { return snapshots_; }
    [[nodiscard]] std::uint64_t stale_calls_refused() const { return stale_refused_; }
    [[nodiscard]] std::uint64_t io_calls() const { return disk_->calls(); }
    [[nodiscard]] std::uint64_t record_digest() const { return record_digest_; }
    static std::string layout();

private:
    template <class Request>
    bool is_refused_for_space() {
        constexpr bool is_free =
            std::is_same_v<Request, ledger::heartbeat_request> || std::is_same_v<Request, ledger::start_input>;
        if (is_free || store_->has_room(settings_.room_bytes)) return false;
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
    // --- the fence, seen from outside: who registered last, by the answers of the ledger ---
    template <class Request>
    static constexpr bool names_a_process() {
        return requires(Request r) { r.who.incarnation; };
    }
    template <class Request>
    static constexpr bool is_fenced = names_a_process<Request>() && !std::is_same_v<Request, ledger::register_request>;
    /// True when a replaced process asks. The mutant makes it look like the current one.
    template <class Request>
    bool check_process(Request& request) const {
        if constexpr (is_fenced<Request>) {
            const auto found = newest_.find(request.who.site.name);
            if (found == newest_.end() || found->second == request.who.incarnation) return false;
            if (settings_.plant == planted::fence) request.who.incarnation = found->second;
            return true;
        } else {
            return false;
        }
    }
    /// Releasing everything is answered to anybody: a replaced process has nothing left to release.
    template <class Request, class Outcome>
    static bool is_idle(const Request&, const Outcome& out) {
        if constexpr (std::is_same_v<Request, ledger::release_request>)
            return out.ok() && out.reply().released == 0;
        else
            return false;
    }
    template <class Request>
    void note_standing(const Request& request, bool is_stale, bool ok) {
        if constexpr (std::is_same_v<Request, ledger::register_request>) {
            if (ok) newest_[request.who.site.name] = request.who.incarnation;
        } else if constexpr (is_fenced<Request>) {
            if (is_stale && !ok) ++stale_refused_;
            if (is_stale && ok) violations_.push_back("a replaced process of " + request.who.site.name + " was served");
        }
    }

    ledger_time turn();
    void append(const std::vector<ledger::record>& records, ledger_time at);
    void settle(std::function<void()> then);
    void commit();
    void snapshot();
    void down();
    void arm_faults();
    void tick();
    void carry_out(const std::vector<ledger::effect>& effects);
    void carry_out(const ledger::effects::start_merge& wanted);
    void carry_out(const ledger::effects::initialise_model& wanted);
    void carry_out(const ledger::effects::publish_generation& wanted);
    void carry_out(const ledger::effects::collect_garbage& wanted);
    void carry_out(const ledger::effects::delete_blob& wanted);
    void carry_out(const ledger::effects::drop_stale_uploads& wanted);
    void carry_out(const ledger::effects::wake&) {}
    void carry_out(const ledger::effects::prepare_epoch&) {}
    void carry_out(const ledger::effects::notice&) {}
    void seal_merge(const ledger::effects::start_merge& wanted, const counting_store::begun_merge& begun);
    void seal_first(const ledger::effects::initialise_model& wanted);
    /// After work on files: true when the blob store failed for good and the process went down.
    bool is_lost();
    /// Asks again while the disk is full.
    template <class Request>
    void insist(const Request& request) {
        handle(request, [this, request](const auto& out) {
            if (!out.ok() && out.refused().code == errc::disk_full_ack)
                me_.after(5'000, [this, request] { insist(request); });
        });
    }
    void retell_blobs();
    [[nodiscard]] storage::blob_standing standing() const;

    // --- a start ---
    [[nodiscard]] storage::store_options store_options();
    result<void> open_stores(disk& on);
    void refused_to_start(const error& why);
    void check_start(const storage::recovered_journal& found);
    void learn_processes();
    /// What a start on the disk as it is would recover.
    struct recovery_result {
        std::uint64_t sequence = 0;
        std::string digest;
    };
    std::optional<recovery_result> try_recovery(const disk_image& image);

    event_loop& loop_;
    ledger_node_settings settings_;
    rng random_;
    process me_;
    std::unique_ptr<disk> disk_ = std::make_unique<disk>();
    std::optional<storage::ledger_store> store_;
    std::unique_ptr<counting_store> models_;
    std::unique_ptr<ledger::machine> machine_;
    ledger::clock clock_;
    std::vector<std::function<void()>> waiting_;
    bool commit_is_due_ = false;
    std::optional<loss> power_goes_;
    bool disk_full_ = false;
    bool io_broken_ = false;
    bool short_transfers_ = false;
    /// The disk before a bit of it was flipped, and what a start would have found there.
    std::optional<disk_image> before_flip_;
    std::optional<recovery_result> expected_;
    std::string flipped_;
    std::uint64_t acked_sequence_ = 0;
    std::uint64_t records_since_snapshot_ = 0;
    std::uint64_t told_generation_ = 0;
    std::map<std::string, incarnation> newest_;
    std::vector<std::string> violations_;
    std::map<std::string, std::uint64_t> faults_;
    std::uint64_t snapshots_ = 0;
    std::uint64_t stale_refused_ = 0;
    std::uint64_t record_digest_ = 14695981039346656037U;
    std::function<void()> on_exit_;
};

}  // namespace darlcore::sim
