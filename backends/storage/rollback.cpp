// SPDX-License-Identifier: Apache-2.0
#include "backends/storage/rollback.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "adapters/formats/json.hpp"
#include "backends/storage/ledger_replay.hpp"
#include "backends/storage/model_directory.hpp"
#include "darlcore/ledger/machine.hpp"
#include "darlcore/ledger/record_codec.hpp"
#include "darlcore/ledger/rollback.hpp"

namespace darlcore::storage {
namespace {

constexpr std::uint64_t meta_bytes_max = std::uint64_t{16} << 20U;

class way {
public:
    way(file_system& fs, const std::string& from, std::uint64_t target, int threads)
        : fs_(fs), from_(from), model_(join(from, "model")), threads_(threads) {
        report_.target = target;
    }

    result<rollback_report> run(const std::string& to) {
        const auto lock = hold_still();
        if (!lock) return lock.error();
        if (const auto there = find_generations(); !there) return there.error();
        const way_back back{
            [this] { return reached(); }, [this] { return why_not(); }, [this](const record& r) { leave_out(r); },
            [this](const std::string& making, std::uint64_t missing) { return finish(making, missing); }};
        auto salvaged = salvage(fs_, from_, to, replay_.target(), &back);
        if (!salvaged) return salvaged.error();
        report_.journal = *std::move(salvaged);
        return std::move(report_);
    }

private:
    using held_lock = std::unique_ptr<file_lock>;

    /// A running server would go on with the old line.
    result<held_lock> hold_still() {
        const std::string path = join(from_, "lock");
        if (!exists(fs_, path)) return held_lock();
        auto lock = fs_.lock(path);
        if (lock || lock.error().code != errc::locked) return lock ? std::move(*lock) : held_lock();
        return fail(errc::locked, from_ + " is served by a process: stop it, then go back");
    }

    result<void> find_generations() {
        const auto entries = fs_.list(model_);
        if (entries)
            for (const auto& entry : *entries)
                if (const auto g = parse_generation_name(entry.name)) there_.insert(*g);
        if (there_.contains(report_.target)) return {};
        std::string list;
        for (const std::uint64_t g : there_) list += (list.empty() ? "" : ", ") + std::to_string(g);
        return fail(errc::invalid_argument, model_ + " holds no generation " + std::to_string(report_.target) +
                                                "; there are: " + (list.empty() ? "none" : list));
    }

    [[nodiscard]] std::strong_ordering reached() const {
        const auto* m = replay_.machine();
        if (m == nullptr || !m->rounds().durable().has_model) return std::strong_ordering::less;
        return m->rounds().current().count <=> report_.target;
    }
    [[nodiscard]] std::string why_not() const {
        const auto* m = replay_.machine();
        const std::string wanted = "generation " + std::to_string(report_.target);
        if (m == nullptr || !m->rounds().durable().has_model) return "the journal knows no model, so no " + wanted;
        const std::string known = "generation " + std::to_string(m->rounds().current().count);
        return reached() > 0 ? "what is left of the journal begins with " + known + ", later than " + wanted
                             : "what is left of the journal ends with " + known + ", before " + wanted;
    }

    /// What cannot be decoded gave out nothing that this version could name.
    void leave_out(const record& r) {
        const auto decoded = ledger::decode(r.type, r.payload);
        if (decoded) gone().add(*decoded);
    }
    ledger::left_out& gone() {
        if (!gone_) gone_.emplace(*replay_.machine());
        return *gone_;
    }

    result<way_back::last_record> finish(const std::string& making, std::uint64_t unreadable) {
        const ledger::machine& kept = *replay_.machine();
        gone().add_unreadable(unreadable);
        gone().add_generation(generation{*there_.rbegin()});
        report_.newest = gone().newest().count;
        report_.next = report_.newest + 1;
        const auto files = take_model(making, kept.rounds().durable());
        if (!files) return files.error();
        const auto record = ledger::go_back(kept, gone(), *files);
        report_.undone = record.undone;
        report_.epoch = kept.epoch().count;
        for (const auto& [site, leases] : kept.kept().windows)
            for (const auto& [lease, windows] : leases) report_.windows_lost += windows;
        return way_back::last_record{ledger::type_number(record), ledger::encode(record)};
    }

    result<round::model_files> take_model(const std::string& making, const round::durable_state& rounds) {
        auto model = model_directory::open(fs_, making, {}, threads_);
        if (!model) return model.error();
        for (const std::uint64_t pinned : std::set<std::uint64_t>{0, rounds.best.value_or(generation{0}).count})
            if (there_.contains(pinned))
                if (const auto kept = model->adopt(join(model_, generation_name(pinned)), pinned); !kept)
                    return kept.error();
        const std::string folder = join(model_, generation_name(report_.target));
        const auto meta = new_meta(join(folder, meta_file));
        if (!meta) return meta.error();
        const auto files = model->adopt(folder, report_.next, *meta);
        if (!files) return files.error();
        for (const auto ref : {&round::model_files::global, &round::model_files::velocity, &round::model_files::wire})
            if ((*files).*ref != rounds.files.*ref)
                return fail(errc::corrupt, folder + ": its files are not those that the journal names; restore them");
        if (const auto pointed = model->point(report_.next); !pointed) return pointed.error();
        return *files;
    }

    /// The old model under its new number; nothing was added to it.
    result<std::string> new_meta(const std::string& path) {
        const auto text = read_file(fs_, path, meta_bytes_max);
        if (!text) return text.error();
        auto meta = json::parse(*text, {meta_bytes_max, 32});
        if (!meta) return fail(errc::corrupt, path + " offset 0: " + meta.error().context);
        meta->set("generation", report_.next);
        meta->set("parent", report_.target);
        meta->set("rolled_back_from", report_.newest);
        meta->set("contributions", json::array{});
        return json::dump(*meta) + "\n";
    }

    file_system& fs_;
    const std::string& from_;
    const std::string model_;
    int threads_;
    std::set<std::uint64_t> there_;
    ledger_replay replay_;
    std::optional<ledger::left_out> gone_;
    rollback_report report_;
};

}  // namespace

result<rollback_report> roll_back(file_system& fs, const std::string& from, const std::string& to, std::uint64_t target,
                                  int threads) {
    return way(fs, from, target, threads).run(to);
}

}  // namespace darlcore::storage
