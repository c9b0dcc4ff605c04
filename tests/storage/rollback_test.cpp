// SPDX-License-Identifier: Apache-2.0
#include "backends/storage/rollback.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "adapters/formats/json.hpp"
#include "backends/sim/disk.hpp"
#include "backends/storage/ledger_replay.hpp"
#include "backends/storage/ledger_store.hpp"
#include "backends/storage/model_directory.hpp"
#include "darlcore/ledger/record_codec.hpp"
#include "tests/ledger/world.hpp"
#include "toy_ledger.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::storage;
using ledger::testing::world;
using sim::disk;

const std::string new_path = "/back";

/// Files of a generation as a merge gives them, sealed.
round::model_files make_generation(model_directory& model, disk& on, std::uint64_t g) {
    const std::string folder = model.begin(g).value();
    const std::string tag = "generation " + std::to_string(g);
    const auto put = [&](const char* name, const std::string& text) {
        EXPECT_TRUE(replace_file(on, join(folder, name), text).has_value());
    };
    put(global_file, tag + " weights");
    if (g > 0) put(velocity_file, tag + " velocity");
    put(wire_file, tag + " wire");
    put(meta_file, json::dump(json::make_object({{"run_id", "run"}, {"generation", g}, {"tokens_total", 100 * g}})));
    return model.seal(g).value();
}

/// A run of one epoch and a half whose sites were not told that it ends: records, snapshots, model.
struct stopped_run {
    disk on;
    world w{settings()};
    std::vector<ledger::record> all;
    std::vector<std::uint64_t> committed;  // by generation, in its epoch
    std::uint64_t generations = 0;

    static ledger::run_settings settings() {
        auto s = world::small_run(8);
        s.lease.max_epochs = 2;
        return s;
    }
    static store_options options(const ledger::machine& m) {
        auto o = toy::options(2048);
        o.identity = identity_of(m);
        return o;
    }

    explicit stopped_run(bool snapshots = false, std::uint64_t rounds = 6) {
        ledger_replay none;
        auto store = ledger_store::open(on, toy::run_path, {}, options(w.m), none.target()).value();
        auto model = model_directory::open(on, toy::run_path).value();
        std::size_t written = 0;
        const auto flush = [&] {
            for (; written < w.journal.size(); ++written) {
                const auto& [r, at] = w.journal[written];
                store.append(ledger::type_number(r), at.ms, ledger::encode(r));
            }
            ASSERT_TRUE(store.commit().has_value());
        };
        w.enter("a");
        ledger::model_initialised first;
        first.layout_digest = std::string(32, 'a');
        first.files = make_generation(model, on, 0);
        first.max_abs_weight = 1;
        (void)w.handle(first);
        committed.push_back(0);
        while (generations < rounds) {
            flush();
            (void)w.poll("a");
            EXPECT_TRUE(w.contribute("a", w.acquire("a", 3)).ok());
            EXPECT_TRUE(w.merging());
            ledger::merge_done done;
            done.next = generation{++generations};
            done.files = make_generation(model, on, generations);
            done.max_abs_weight = 1;
            (void)w.handle(done);
            EXPECT_TRUE(model.point(generations).has_value());
            committed.push_back(w.m.leases().counts().committed);
            flush();
            if (snapshots && generations % 2 == 0) {
                EXPECT_TRUE(store.snapshot(w.m.snapshot()).has_value());
            }
        }
        (void)w.acquire("a", 1);  // held when the server stops
        flush();
        EXPECT_TRUE(store.close().has_value());
    }

    [[nodiscard]] std::map<std::string, std::string> files_below(const std::string& path) const {
        std::map<std::string, std::string> all_files;
        for (const auto& file : on.files_below(path)) all_files[file] = on.content(file);
        return all_files;
    }
};

/// What a server finds that is started on the new directory; an empty text when it would serve.
std::string start_on(disk& on, const std::string& path, const ledger::machine& like, std::uint64_t number) {
    ledger_replay replay;
    const auto store = ledger_store::open(on, path, {}, stopped_run::options(like), replay.target());
    if (!store) return to_text(store.error());
    const auto machine = replay.take();
    if (machine == nullptr) return "an empty journal";
    if (const auto ok = machine->verify(); !ok) return to_text(ok.error());
    const auto& rounds = machine->rounds().durable();
    if (rounds.current.count != number) return "generation " + std::to_string(rounds.current.count);
    auto model = model_directory::open(on, path);
    if (!model) return to_text(model.error());
    const auto found = model->recover({true, number, rounds.files, "run"});
    if (!found) return to_text(found.error());
    if (found->rolled_forward || !found->removed.empty()) return "the model had to be repaired";
    return {};
}

TEST(RollBack, ToEveryGenerationAServerGoesOnFromItsModelUnderANewNumber) {
    for (std::uint64_t target = 0; target <= 6; ++target) {
        stopped_run run;
        const auto before = run.files_below(toy::run_path);
        const auto back = roll_back(run.on, toy::run_path, new_path, target);
        ASSERT_TRUE(back.has_value()) << to_text(back.error());
        EXPECT_EQ(back->newest, 6U);
        EXPECT_EQ(back->next, 7U);
        EXPECT_EQ(run.files_below(toy::run_path), before) << "the old directory is not touched";
        EXPECT_FALSE(run.on.list(new_path + ".unfinished").has_value());
        ASSERT_EQ(start_on(run.on, new_path, run.w.m, 7), "") << "back to " << target;

        ledger_replay replay;
        ASSERT_TRUE(read_journal(run.on, new_path + "/journal", replay.target()).has_value());
        const auto& m = *replay.machine();
        const bool ended_an_epoch = target > 0 && run.committed[target] == 0;  // the next one begins by itself
        EXPECT_EQ(m.leases().counts().committed, ended_an_epoch ? 8U : run.committed[target]);
        EXPECT_EQ(m.leases().counts().leased + m.leases().counts().pledged, 0U);
        EXPECT_EQ(m.leases().next_seq(), run.w.m.leases().next_seq());
        const std::string folder = new_path + "/model/" + generation_name(7);
        EXPECT_EQ(run.on.content(join(folder, wire_file)), "generation " + std::to_string(target) + " wire");
        const auto meta = json::parse(run.on.content(join(folder, meta_file))).value();
        EXPECT_EQ(meta.at("generation").as_u64(), 7U);
        EXPECT_EQ(meta.at("parent").as_u64(), target);
        EXPECT_EQ(meta.at("rolled_back_from").as_u64(), 6U);
        EXPECT_EQ(meta.at("tokens_total").as_u64(), 100 * target);
        EXPECT_TRUE(exists(run.on, join(new_path + "/model/" + generation_name(0), wire_file))) << "it is pinned";
    }
}

TEST(RollBack, NamesTheBlocksThatAreTrainedAgainByEpoch) {
    stopped_run run;
    ASSERT_GT(run.w.m.epoch().count, 0U);
    const auto back = roll_back(run.on, toy::run_path, new_path, 0);
    ASSERT_TRUE(back.has_value()) << to_text(back.error());
    EXPECT_EQ(back->epoch, 0U);
    ASSERT_EQ(back->undone.size(), 2U);
    EXPECT_EQ(back->undone[0].spans, (std::vector<span>{make_span(0, 8)})) << "the whole of the first epoch";
    EXPECT_EQ(back->undone[1].epoch, epoch_index{1});
    std::uint64_t second = 0;
    for (const auto& s : back->undone[1].spans) second += s.size();
    EXPECT_EQ(second, run.w.m.leases().counts().committed);
}

TEST(RollBack, GoesAsFarAsTheJournalReachesBehindItsOlderSnapshot) {
    stopped_run run(true);
    disk& on = run.on;
    std::uint64_t reached = 0;
    for (std::uint64_t target = 0; target <= 6; ++target) {
        const std::string to = new_path + std::to_string(target);
        const auto back = roll_back(on, toy::run_path, to, target);
        if (!back) {
            EXPECT_EQ(back.error().code, errc::invalid_argument);
            EXPECT_NE(back.error().context.find("begins with generation"), std::string::npos) << back.error().context;
            EXPECT_FALSE(on.list(to).has_value());
            continue;
        }
        ++reached;
        EXPECT_EQ(start_on(on, to, run.w.m, 7), "") << "back to " << target;
    }
    EXPECT_GE(reached, 3U);
    EXPECT_LT(reached, 7U) << "records behind the older snapshot are gone";
}

TEST(RollBack, MayHappenAgainAndNumbersOnlyRise) {
    stopped_run run;
    ASSERT_TRUE(roll_back(run.on, toy::run_path, "/one", 2).has_value());
    const auto again = roll_back(run.on, "/one", "/two", 7);
    ASSERT_TRUE(again.has_value()) << to_text(again.error());
    EXPECT_EQ(again->next, 8U);
    EXPECT_EQ(start_on(run.on, "/two", run.w.m, 8), "");
    const auto further = roll_back(run.on, "/two", "/three", 0);
    ASSERT_TRUE(further.has_value()) << to_text(further.error());
    EXPECT_EQ(further->next, 9U);
    EXPECT_EQ(start_on(run.on, "/three", run.w.m, 9), "");
}

TEST(RollBack, SaysWhichGenerationsThereAre) {
    stopped_run run;
    ASSERT_TRUE(remove_tree(run.on, toy::run_path + "/model/" + generation_name(3)).has_value());
    const auto back = roll_back(run.on, toy::run_path, new_path, 3);
    ASSERT_FALSE(back.has_value());
    EXPECT_EQ(back.error().code, errc::invalid_argument);
    EXPECT_NE(back.error().context.find("there are: 0, 1, 2, 4, 5, 6"), std::string::npos) << back.error().context;
    EXPECT_FALSE(run.on.list(new_path).has_value());
}

TEST(RollBack, RefusesAModelThatIsNotTheOneOfTheJournal) {
    for (const char* name : {global_file, velocity_file, wire_file}) {
        stopped_run run;
        run.on.flip_bit(toy::run_path + "/model/" + generation_name(3) + "/" + name, 77);
        const auto back = roll_back(run.on, toy::run_path, new_path, 3);
        ASSERT_FALSE(back.has_value()) << name;
        EXPECT_EQ(back.error().code, errc::corrupt);
        EXPECT_FALSE(run.on.list(new_path).has_value());
        EXPECT_FALSE(run.on.list(new_path + ".unfinished").has_value());
    }
}

TEST(RollBack, RefusesWhileAServerRuns) {
    stopped_run run;
    const auto held = run.on.lock(toy::run_path + "/lock");
    ASSERT_TRUE(held.has_value());
    EXPECT_EQ(roll_back(run.on, toy::run_path, new_path, 3).error().code, errc::locked);
    EXPECT_FALSE(run.on.list(new_path).has_value());
}

TEST(RollBack, CopiesWhereThereAreNoHardLinks) {
    stopped_run run;
    run.on.no_hard_links(true);
    ASSERT_TRUE(roll_back(run.on, toy::run_path, new_path, 3).has_value());
    EXPECT_EQ(start_on(run.on, new_path, run.w.m, 7), "");
}

TEST(RollBack, CountsAGenerationWhoseRecordIsLostByItsFiles) {
    stopped_run run;
    auto model = model_directory::open(run.on, toy::run_path).value();
    (void)make_generation(model, run.on, 9);
    const auto back = roll_back(run.on, toy::run_path, new_path, 3);
    ASSERT_TRUE(back.has_value()) << to_text(back.error());
    EXPECT_EQ(back->next, 10U);
}

TEST(RollBack, AHalfWrittenDirectoryNeverHasTheNameOfAWholeOne) {
    stopped_run run(false, 3);
    std::string trouble;
    std::uint64_t cuts = 0;
    std::uint64_t whole = 0;
    run.on.on_call([&](const sim::io_call& call) {
        for (const auto mode : {sim::loss::dropped, sim::loss::kept, sim::loss::names_only, sim::loss::random_512}) {
            disk after(run.on.image().after_power_cut(mode, call.number));
            ++cuts;
            if (!after.list(new_path)) continue;
            ++whole;
            const auto wrong = start_on(after, new_path, run.w.m, 4);
            if (!wrong.empty() && trouble.empty()) trouble = "call " + std::to_string(call.number) + ": " + wrong;
        }
    });
    ASSERT_TRUE(roll_back(run.on, toy::run_path, new_path, 1).has_value());
    EXPECT_EQ(trouble, "");
    EXPECT_GT(cuts, 200U);
    EXPECT_GT(whole, 0U);
    run.on.on_call({});
    disk cut(run.on.image());
    ASSERT_TRUE(cut.rename(new_path, new_path + ".unfinished").has_value());
    const auto again = roll_back(cut, toy::run_path, new_path, 1);
    EXPECT_EQ(again.error().code, errc::already_exists);
    EXPECT_NE(again.error().context.find("remove it"), std::string::npos);
}

}  // namespace
