// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "backends/storage/blob_store.hpp"
#include "backends/storage/model_directory.hpp"
#include "toy_ledger.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::storage;
using sim::disk;
using sim::loss;

const std::string run_id = "00112233445566778899aabbccddeeff";

void write(disk& on, const std::string& path, std::string_view bytes) {
    auto opened = on.open(path, open_mode::create);
    ASSERT_TRUE(opened.has_value());
    ASSERT_TRUE(pwrite_all(**opened, bytes, 0).has_value());
}

/// What a merge to this generation gives: a function of the generation, as a deterministic merge is.
result<void> write_generation(disk& on, const std::string& folder, std::uint64_t g) {
    const std::string tag = "generation " + std::to_string(g);
    const auto put_file = [&](const char* name, const std::string& bytes) -> result<void> {
        auto opened = on.open(join(folder, name), open_mode::create);
        if (!opened) return opened.error();
        return pwrite_all(**opened, bytes, 0);
    };
    if (auto done = put_file(global_file, tag + " weights " + std::string(700, 'w')); !done) return done;
    if (g > 0)
        if (auto done = put_file(velocity_file, tag + " velocity"); !done) return done;
    if (auto done = put_file(wire_file, tag + " wire " + std::string(300, 'x')); !done) return done;
    return put_file(meta_file, "{\"run_id\":\"" + run_id + "\",\"generation\":" + std::to_string(g) + "}");
}

std::string refs_text(const round::model_files& files) {
    std::string text;
    for (const auto* ref : {&files.global, &files.velocity, &files.wire, &files.meta})
        text.append(ref->sha256).append(" ").append(std::to_string(ref->bytes)).append("\n");
    return text;
}

/// The ledger's part: knows the last merge_commit record (type 5: "G\n" + files).
struct merge_ledger {
    std::optional<std::uint64_t> generation;
    round::model_files files;

    void apply(const record& r) {
        if (r.type != 5) return;
        std::string_view text = r.payload;
        const auto line = [&] {
            const auto one = text.substr(0, text.find('\n'));
            text.remove_prefix(one.size() + 1);
            return std::string(one);
        };
        generation = std::stoull(line());
        for (auto* ref : {&files.global, &files.velocity, &files.wire, &files.meta}) {
            const auto one = line();
            ref->sha256 = one.substr(0, one.find(' '));
            ref->bytes = std::stoull(one.substr(one.find(' ') + 1));
        }
    }
    replay_target target() {
        return {[](const snapshot_info&, std::string_view) -> result<void> { return fail(errc::corrupt, "none here"); },
                [this](const record& r) -> result<void> {
                    apply(r);
                    return {};
                }};
    }
};

/// A server with ledger, model and blobs, in the order of docs/storage.md.
class merging_server {
public:
    static result<merging_server> open(disk& on, model_mutants mutants = {}) {
        merging_server s(on);
        auto store = ledger_store::open(on, toy::run_path, {}, toy::options(4096), s.ledger_->target());
        if (!store) return store.error();
        s.store_.emplace(std::move(*store));
        s.store_->append(1, s.store_->recovered().position.ledger_ms, "term started");
        if (const auto committed = s.store_->commit(); !committed) return committed.error();
        auto model = model_directory::open(on, toy::run_path, mutants);
        if (!model) return model.error();
        s.model_.emplace(std::move(*model));
        const auto recovered = s.model_->recover(s.in_journal());
        if (!recovered) return recovered.error();
        blob_limits limits;
        limits.reserve_bytes = 0;
        auto blobs = blob_store::open(
            on, toy::run_path, limits, nullptr, [] { return std::string("u"); }, 0);
        if (!blobs) return blobs.error();
        s.blobs_ = std::move(*blobs);
        if (s.ledger_->generation)
            if (const auto published = s.publish(); !published) return published.error();
        return s;
    }

    result<void> merge() {
        const std::uint64_t next = ledger_->generation ? *ledger_->generation + 1 : 0;
        const auto folder = model_->begin(next);
        if (!folder) return folder.error();
        if (const auto written = write_generation(*disk_, *folder, next); !written) return written;
        const auto files = model_->seal(next);
        if (!files) return files.error();
        const std::string payload = std::to_string(next) + "\n" + refs_text(*files);
        store_->append(5, store_->batches().durable_position().ledger_ms + 1, payload);
        if (const auto committed = store_->commit(); !committed) return committed;  // the commit point
        ledger_->apply({5, true, 0, 0, 0, payload});
        if (const auto pointed = model_->point(next); !pointed) return pointed;
        if (const auto published = publish(); !published) return published;
        if (next < 2) return {};
        if (const auto gone = model_->collect(next - 1, {}); !gone) return gone.error();
        const auto gone = blobs_->collect({next, next - 1, {}, {}}, 0);
        return gone ? result<void>{} : result<void>(gone.error());
    }

    [[nodiscard]] std::optional<std::uint64_t> generation() const { return ledger_->generation; }
    [[nodiscard]] model_in_journal in_journal() const {
        return {!store_->is_new(), ledger_->generation, ledger_->files, run_id};
    }
    model_directory& model() { return *model_; }
    blob_store& blobs() { return *blobs_; }
    [[nodiscard]] const round::model_files& files() const { return ledger_->files; }

private:
    explicit merging_server(disk& on) : disk_(&on), ledger_(std::make_unique<merge_ledger>()) {}
    result<void> publish() {
        blob_facts facts;
        facts.sha256 = ledger_->files.wire.sha256;
        facts.bytes = ledger_->files.wire.bytes;
        facts.purpose = blob_purpose::wire;
        facts.generation = *ledger_->generation;
        return blobs_->publish(join(model_->path_of(*ledger_->generation), wire_file), facts);
    }
    disk* disk_;
    std::unique_ptr<merge_ledger> ledger_;
    std::optional<ledger_store> store_;
    std::optional<model_directory> model_;
    std::unique_ptr<blob_store> blobs_;
};

/// After a restart: one generation, whole, everywhere the same; at least the last one that anybody was told.
std::string judge(disk& on, std::optional<std::uint64_t> told, std::optional<std::uint64_t> under_way) {
    auto opened = merging_server::open(on);
    if (!opened) return "refused: " + to_text(opened.error());
    const auto g = opened->generation();
    if (told && (!g || *g < *told)) return "the model went back";
    if (g && (!under_way || *g > *under_way)) return "a generation that nobody made";
    if (!g) return {};
    disk reference;
    const auto made = ensure_directory(reference, "/expected");
    if (!made || !write_generation(reference, "/expected", *g)) return "cannot make the reference";
    for (const char* name : {global_file, velocity_file, wire_file, meta_file}) {
        const auto found = read_file(on, join(opened->model().path_of(*g), name));
        const auto expected = read_file(reference, join("/expected", name));
        if (found.has_value() != expected.has_value() || (found && *found != *expected))
            return std::string("mixture in ") + name;
    }
    if (opened->model().current().value() != g) return "CURRENT differs from the journal";
    if (!opened->blobs().find(opened->files().wire.sha256)) return "the wire blob is not published";
    if (const auto next = opened->merge(); !next) return "the next merge fails: " + to_text(next.error());
    return {};
}

std::string first_mixture(model_mutants mutants, std::uint64_t& cuts) {
    disk on;
    std::string violation;
    std::optional<std::uint64_t> told;
    std::optional<std::uint64_t> under_way;
    on.on_call([&](const sim::io_call& call) {
        if (!violation.empty()) return;
        for (const loss mode : sim::every_loss) {
            disk after(on.image().after_power_cut(mode, call.number));
            const auto what = judge(after, told, under_way);
            ++cuts;
            if (!what.empty() && violation.empty())
                violation = "call " + std::to_string(call.number) + " " + std::string(word(call.kind)) + " " +
                            call.path + " " + std::string(word(mode)) + ": " + what;
        }
    });
    auto server = merging_server::open(on, mutants);
    EXPECT_TRUE(server.has_value());
    for (std::uint64_t g = 0; g < 4 && violation.empty(); ++g) {
        under_way = g;
        const auto merged = server->merge();
        EXPECT_TRUE(merged.has_value()) << to_text(merged.error());
        told = g;
    }
    return violation;
}

TEST(ModelCrash, APowerCutAtAnyCallOfAMergeLeavesTheOldOrTheNewGenerationNeverAMixture) {
    std::uint64_t cuts = 0;
    EXPECT_EQ(first_mixture({}, cuts), "");
    EXPECT_GT(cuts, 1000U);
}

TEST(ModelCrash, WithoutTheSyncOfItsFilesAGenerationIsLost) {
    std::uint64_t cuts = 0;
    EXPECT_NE(first_mixture({.skip_file_fsync = true}, cuts), "");
}

TEST(ModelCrash, WithoutTheSyncOfItsDirectoriesAGenerationIsLost) {
    std::uint64_t cuts = 0;
    EXPECT_NE(first_mixture({.skip_dir_fsync = true}, cuts), "");
}

TEST(ModelFaults, AFullDiskOrAnErrorAtAnyCallOfAMergeKeepsOneWholeGeneration) {
    struct progress {
        std::int64_t told = -1;
        std::int64_t under_way = -1;
    };
    const auto as_generation = [](std::int64_t g) {
        return g < 0 ? std::nullopt : std::optional<std::uint64_t>(static_cast<std::uint64_t>(g));
    };
    const auto run = [](disk& on) {
        progress made;
        auto server = merging_server::open(on);
        for (std::int64_t g = 0; server && g < 3; ++g) {
            made.under_way = g;
            if (!server->merge()) break;  // merge_failed: the pledges stay; here the server simply stops
            made.told = g;
        }
        return made;
    };
    disk undisturbed;
    ASSERT_EQ(run(undisturbed).told, 2);
    for (std::uint64_t n = 1; n <= undisturbed.calls(); ++n)
        for (const auto kind : {sim::fault_kind::no_space, sim::fault_kind::io_error, sim::fault_kind::failed_sync})
            for (const bool persistent : {false, true}) {
                disk on;
                on.inject({n, kind, persistent});
                const auto made = run(on);
                for (const loss mode : {loss::dropped, loss::kept, loss::random_512}) {
                    disk after(on.image().after_power_cut(mode, n));
                    ASSERT_EQ(judge(after, as_generation(made.told), as_generation(made.under_way)), "")
                        << "call " << n << " " << word(mode) << " kind " << static_cast<int>(kind) << " told "
                        << made.told;
                }
            }
}

class Model : public ::testing::Test {
protected:
    void SetUp() override {
        auto server = merging_server::open(on);
        ASSERT_TRUE(server.has_value());
        for (int i = 0; i < 3; ++i) ASSERT_TRUE(server->merge().has_value());
        journal = server->in_journal();
        journal.has_journal = true;
        folder = server->model().path_of(2);
    }
    error refusal(bool check_digests = true, model_mutants mutants = {}) {
        auto model = model_directory::open(on, toy::run_path, mutants);
        EXPECT_TRUE(model.has_value());
        const auto recovered = model->recover(journal, check_digests);
        return recovered ? error{errc::internal, "started"} : recovered.error();
    }
    disk on;
    model_in_journal journal;
    std::string folder;
};

TEST_F(Model, AModelAheadOfTheLedgerIsRefusedAndBothAreNamed) {
    journal.generation = 1;
    const auto failure = refusal();
    EXPECT_EQ(failure.code, errc::refused);
    for (const char* part : {"model is ahead of the ledger", "CURRENT", "generation 2", "generation 1", "backup"})
        EXPECT_NE(failure.context.find(part), std::string::npos) << failure.context;
}

TEST_F(Model, AMissingDirectoryAWrongDigestAnotherRunOrAMissingMomentumIsRefused) {
    EXPECT_EQ(refusal().code, errc::internal);
    on.flip_bit(join(folder, global_file), 77);
    EXPECT_NE(refusal().context.find("digest"), std::string::npos);
    EXPECT_EQ(refusal(true, {.skip_digests = true}).code, errc::internal) << "the digest is what finds it";
    on.flip_bit(join(folder, global_file), 77);
    journal.run_id = "another";
    EXPECT_NE(refusal().context.find("two directories were mixed"), std::string::npos);
    journal.run_id = run_id;
    on.remove(join(folder, velocity_file));
    EXPECT_NE(refusal().context.find("velocity.safetensors is missing"), std::string::npos);
}

TEST_F(Model, AModelWithoutAJournalAndAJournalWithoutItsModelAreBothRefused) {
    auto known = journal;
    journal = {};
    journal.has_journal = false;
    EXPECT_EQ(refusal().code, errc::refused);
    journal = known;
    ASSERT_TRUE(remove_tree(on, toy::run_path + "/model").has_value());
    EXPECT_NE(refusal().context.find("is missing although the journal refers to it"), std::string::npos);
}

TEST_F(Model, CurrentIsRolledForwardAndOrphansAreRemoved) {
    auto model = model_directory::open(on, toy::run_path);
    ASSERT_TRUE(model->point(1).has_value());
    ASSERT_TRUE(on.mkdir(model->path_of(3)).has_value());
    write(on, model->path_of(3) + "/half", "x");
    const auto done = model->recover(journal);
    ASSERT_TRUE(done.has_value());
    EXPECT_TRUE(done->rolled_forward);
    EXPECT_EQ(done->removed, std::vector<std::uint64_t>{3});
    EXPECT_EQ(model->current().value(), 2U);
    EXPECT_EQ(model->list().value(), (std::vector<std::uint64_t>{1, 2}));
}

TEST_F(Model, FreshMovesEverythingAsideTogetherAndDeletesNothing) {
    const auto before = on.files_below(toy::run_path).size();
    const auto aside = supersede(on, toy::run_path, "20261129T200000");
    ASSERT_TRUE(aside.has_value()) << to_text(aside.error());
    EXPECT_EQ(on.files_below(toy::run_path).size(), before);
    EXPECT_EQ(on.files_below(*aside).size(), before - 1) << "all but the lock";
    auto server = merging_server::open(on);
    ASSERT_TRUE(server.has_value());
    EXPECT_FALSE(server->generation().has_value());
}

TEST(ModelNames, AreTwelveDigitsAndNothingElse) {
    EXPECT_EQ(generation_name(12), "gen-000000000012");
    EXPECT_EQ(parse_generation_name("gen-000000000012"), 12U);
    for (const char* bad : {"gen-12", "gen-00000000001x", "gen-0000000000012", "gem-000000000012", ""})
        EXPECT_FALSE(parse_generation_name(bad).has_value()) << bad;
}

}  // namespace
