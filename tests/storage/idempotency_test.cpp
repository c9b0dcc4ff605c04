// SPDX-License-Identifier: Apache-2.0
// P4: every mutating call once, twice or three times, the power cut at every I/O call of the server: whoever gets no
// answer asks the restarted server again. In the end everything has happened exactly once.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/sim/disk.hpp"
#include "backends/storage/ledger_replay.hpp"
#include "tests/ledger/world.hpp"
#include "toy_ledger.hpp"

namespace {

using namespace darlcore;
using ledger::testing::world;
using storage::toy::run_path;

/// What no repetition and no crash may change.
std::string summary(const ledger::machine& m) {
    const auto& table = m.leases();
    const auto books = table.counts();
    std::string text = "generation " + std::to_string(m.rounds().current().count) + ", step " +
                       std::to_string(m.rounds().durable().global_step) + ", committed " +
                       std::to_string(books.committed) + ", pledged " + std::to_string(books.pledged) + ", leased " +
                       std::to_string(books.leased) + ", unassigned " + std::to_string(books.unassigned);
    for (std::uint32_t i = 0; i < table.num_sites(); ++i) {
        const auto v = table.site(lease::site_number{i}, {});
        text += "; " + v.id.name;
        for (const std::uint64_t n : {std::uint64_t{v.incarnations}, v.counters.grants, v.counters.granted,
                                      v.counters.committed, v.counters.pledged, v.counters.lost, v.counters.rejected})
            text += " " + std::to_string(n);
    }
    for (const auto& [site, member] : m.rounds().durable().members)
        text += "; " + site.name + " " + std::to_string(member.contributed) + " " + std::to_string(member.tokens_total);
    return text;
}

// What two answers to one request must agree on.
std::string essence(const ledger::acquire_reply& r) {
    std::string text;
    for (const auto& l : r.leases.leases)
        text += std::to_string(l.seq.count) + " [" + std::to_string(l.start.count) + ", " +
                std::to_string(l.end.count) + ") ";
    return text;
}
std::string essence(const ledger::register_reply& r) { return std::to_string(r.incarnations); }
std::string essence(const ledger::reserve_reply& r) { return std::to_string(r.reserved_end.count); }
std::string essence(const ledger::contribute_reply& r) {
    return r.id.text + " " + std::to_string(r.pledged_blocks) + " " + std::to_string(r.weight_tokens);
}
std::string essence(const ledger::commit_reply& r) {
    return std::to_string(r.committed_end.count) + (r.lease_closed ? " closed" : "");
}
template <class Reply>
std::string essence(const Reply&) {
    return "ok";
}

/// A ledger on a simulated disk whose power goes at one call; then it starts again, and whoever waits asks again.
class fragile_server {
public:
    fragile_server(ledger::run_settings run, unsigned copies, std::uint64_t cut_at_call, sim::loss mode)
        : run_(std::move(run)), copies_(copies), mode_(mode) {
        if (cut_at_call > 0) disk_->inject({cut_at_call, sim::fault_kind::power_cut, true});
        start();
    }
    [[nodiscard]] const ledger::machine& ledger() const { return *machine_; }
    [[nodiscard]] std::uint64_t io_calls() const { return disk_->calls(); }
    [[nodiscard]] std::uint64_t crashes() const { return crashes_; }
    [[nodiscard]] const std::vector<std::string>& disagreements() const { return disagreements_; }

    /// Sends the copies of a request one after the other, each until it is answered; gives the first answer.
    template <class Request>
    auto ask(const Request& request) {
        now_ = now_ + 1'000;
        auto first = insist(request);
        for (unsigned copy = 1; copy < copies_; ++copy) {
            const auto again = insist(request);
            if (again.ok() != first.ok())
                disagreements_.push_back("one answer is a refusal");
            else if (first.ok() && essence(first.reply()) != essence(again.reply()))
                disagreements_.push_back(essence(first.reply()) + " and then " + essence(again.reply()));
        }
        return first;
    }
    void store_blob(const ledger::blob_verified& blob) {
        blobs_.push_back(blob);  // durable by itself; every start tells it again
        (void)machine_->handle(blob, now_);
    }

private:
    template <class Request>
    auto insist(const Request& request) {
        for (;;) {
            auto out = machine_->handle(request, now_);
            if (commit(out.records)) return out;
            power_is_back();
            start();
        }
    }
    bool commit(const std::vector<ledger::record>& records) {
        for (const auto& r : records) store_->append(ledger::type_number(r), now_.ms, ledger::encode(r));
        records_ += records.size();
        if (!store_->commit()) return false;
        if (records_ < 20) return true;
        records_ = 0;
        return store_->snapshot(machine_->snapshot()).has_value();
    }
    void power_is_back() {
        store_.reset();
        ++crashes_;
        disk_ = std::make_unique<sim::disk>(disk_->image().after_power_cut(mode_, crashes_));
    }
    void start() {
        while (!try_start()) power_is_back();
    }
    bool try_start() {
        storage::ledger_replay replay;
        auto options = storage::toy::options(2048);
        options.identity = storage::identity_of(ledger::machine(run_));
        auto store = storage::ledger_store::open(*disk_, run_path, {}, std::move(options), replay.target());
        if (!store) return false;
        store_.emplace(std::move(*store));
        machine_ = replay.take();
        if (!machine_) {
            machine_ = std::make_unique<ledger::machine>(run_);
            const auto made = machine_->first_record();
            EXPECT_TRUE(machine_->replay(made, now_));
            if (!commit({made})) return false;
        }
        if (!commit(machine_->handle(ledger::start_input{term{store_->term()}}, now_).records)) return false;
        for (const auto& blob : blobs_) (void)machine_->handle(blob, now_);
        return true;
    }
    ledger::run_settings run_;
    unsigned copies_;
    sim::loss mode_;
    std::unique_ptr<sim::disk> disk_ = std::make_unique<sim::disk>();
    std::optional<storage::ledger_store> store_;
    std::unique_ptr<ledger::machine> machine_;
    std::vector<ledger::blob_verified> blobs_;
    ledger_time now_{1'000};
    std::uint64_t records_ = 0;
    std::uint64_t crashes_ = 0;
    std::vector<std::string> disagreements_;
};

/// Requests of one site, by hand.
struct hand {
    fragile_server& server;
    std::string site;
    std::uint64_t next = 0;

    void enter() {
        ledger::register_request hello;
        hello.who = world::who(site);
        hello.protocol = 2;
        hello.digest = server.ledger().space_digest();
        EXPECT_TRUE(server.ask(hello).ok());
    }
    void join() { EXPECT_TRUE(server.ask(ledger::join_request{world::who(site), {}, world::pins(), "test"}).ok()); }
    void poll() {
        EXPECT_TRUE(server
                        .ask(ledger::poll_request{world::who(site), server.ledger().rounds().current(),
                                                  round::site_activity::idle, 0, 0})
                        .ok());
    }
    std::vector<lease::lease_record> acquire(std::uint64_t want) {
        ledger::acquire_request in;
        in.who = world::who(site);
        in.want = want;
        in.report.macro_step_s = 10;
        in.request_id = site + std::to_string(next++);
        const auto out = server.ask(in);
        return out.ok() ? out.reply().leases.leases : std::vector<lease::lease_record>{};
    }
    void reserve(const lease::lease_record& l) {
        EXPECT_TRUE(server.ask(ledger::reserve_request{world::who(site), lease::ref_to(l), l.end}).ok());
    }
    void contribute(const std::vector<lease::lease_record>& leases) {
        ledger::contribute_request c;
        c.who = world::who(site);
        c.id = {site + "-c" + std::to_string(next++)};
        c.base = server.ledger().rounds().current();
        c.sha256 = "delta-" + c.id.text;
        c.codec = "bf16";
        c.tokens = 100;
        c.steps = 500;
        c.phase_ms = 10'000;
        c.transfer_ms = 1'000;
        for (const auto& l : leases) {
            reserve(l);
            c.leases.push_back({lease::ref_to(l), l.done_end, l.end});
        }
        ledger::blob_verified blob{{site}, c.sha256, ledger::blob_purpose::delta, {}};
        blob.facts.bytes = 1'000;
        blob.facts.scan = delta_scan{true, 0.1F, 1.0};
        server.store_blob(blob);
        const auto out = server.ask(c);
        EXPECT_TRUE(out.ok()) << word(out.refused().code);
    }
    void commit(const lease::lease_record& l, position through) {
        EXPECT_TRUE(server.ask(ledger::commit_request{world::who(site), lease::ref_to(l), through}).ok());
    }
    void release() { EXPECT_TRUE(server.ask(ledger::release_request{world::who(site), std::nullopt, false}).ok()); }
    void leave() { EXPECT_TRUE(server.ask(ledger::leave_request{world::who(site), "done"}).ok()); }
    void decline() {
        EXPECT_TRUE(server
                        .ask(ledger::decline_request{world::who(site), server.ledger().rounds().current(),
                                                     round::decline_reason::no_data, ""})
                        .ok());
    }
};

void merge(fragile_server& server) {
    const generation next{server.ledger().rounds().current().count + 1};
    ledger::merge_done done;
    done.next = next;
    done.files.wire = {"wire" + std::to_string(next.count), 1'000};
    done.max_abs_weight = 1;
    // a merge that a crash interrupted is wanted again
    for (int tries = 0; server.ledger().rounds().current() != next; ++tries) {
        ASSERT_LT(tries, 4) << "the merge does not come";
        (void)server.ask(ledger::tick_input{});
        (void)server.ask(done);
    }
}

void rounds_of_two_sites(fragile_server& server) {
    hand a{server, "hpc-a"};
    hand b{server, "hpc-b"};
    for (hand* one : {&a, &b}) {
        one->enter();
        one->join();
    }
    ledger::model_initialised first;
    first.layout_digest = std::string(32, 'a');
    first.files.wire = {"wire0", 1'000};
    first.max_abs_weight = 1;
    (void)server.ask(first);
    for (int turn = 0; turn < 2; ++turn) {
        for (hand* one : {&a, &b}) one->poll();
        for (hand* one : {&a, &b}) one->contribute(one->acquire(3));
        ASSERT_NO_FATAL_FAILURE(merge(server));
    }
    for (hand* one : {&a, &b}) one->poll();
    (void)b.acquire(2);
    b.release();
    b.decline();
    a.contribute(a.acquire(2));
    ASSERT_NO_FATAL_FAILURE(merge(server));
    (void)a.acquire(1);
    a.release();
    (void)b.acquire(1);
    b.leave();
    EXPECT_EQ(server.ledger().leases().counts().leased, 0U);
}

void commits_of_one_site(fragile_server& server) {
    hand a{server, "hpc-a"};
    a.enter();
    for (int turn = 0; turn < 3; ++turn)
        for (const auto& l : a.acquire(4)) {
            a.reserve(l);
            a.commit(l, position{l.start.count + 1});
            a.commit(l, l.end);
        }
    (void)a.acquire(2);
    a.release();
}

/// Runs the script with the power cut at every call; everything must be as in the run without cuts and copies.
void each_call_counts_once(const ledger::run_settings& run, void (*script)(fragile_server&)) {
    fragile_server plain(run, 1, 0, sim::loss::dropped);
    ASSERT_NO_FATAL_FAILURE(script(plain));
    const std::string wanted = summary(plain.ledger());
    std::uint64_t cuts = 0;
    for (unsigned copies = 1; copies <= 3; ++copies) {
        fragile_server whole(run, copies, 0, sim::loss::dropped);
        ASSERT_NO_FATAL_FAILURE(script(whole));
        EXPECT_EQ(summary(whole.ledger()), wanted);
        for (std::uint64_t call = 1; call <= whole.io_calls(); ++call)
            for (const auto mode : {sim::loss::dropped, sim::loss::kept, sim::loss::random_8}) {
                SCOPED_TRACE("copies " + std::to_string(copies) + ", cut at call " + std::to_string(call) + ", " +
                             std::string(word(mode)));
                fragile_server server(run, copies, call, mode);
                ASSERT_NO_FATAL_FAILURE(script(server));
                ASSERT_EQ(server.crashes(), 1U);
                ASSERT_EQ(server.disagreements(), std::vector<std::string>{});
                ASSERT_EQ(summary(server.ledger()), wanted);
                ++cuts;
            }
    }
    std::printf("%llu power cuts; %s\n", static_cast<unsigned long long>(cuts), wanted.c_str());
    EXPECT_GT(cuts, 500U);
}

ledger::run_settings run_of(lease::commit_policy policy) {
    auto run = world::small_run();
    run.lease.commit_policy = policy;
    run.round.eval_every = 0;
    return run;
}

TEST(Idempotency, EachCallOfTheRoundsCountsOnceHoweverOftenItIsSentAndWhereverThePowerIsCut) {
    each_call_counts_once(run_of(lease::commit_policy::on_merge), &rounds_of_two_sites);
}

TEST(Idempotency, EachCommitCountsOnceHoweverOftenItIsSentAndWhereverThePowerIsCut) {
    each_call_counts_once(run_of(lease::commit_policy::on_checkpoint), &commits_of_one_site);
}

}  // namespace
