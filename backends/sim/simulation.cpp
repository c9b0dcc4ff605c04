// SPDX-License-Identifier: Apache-2.0
#include "backends/sim/simulation.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <utility>

#include "backends/sim/simulated_site.hpp"

namespace darlcore::sim {
namespace {

constexpr std::size_t examples_max = 8;
constexpr link_settings rough_link{1, 300, 0.02, 0.03, 0.01};
constexpr link_settings quiet_link{1, 50, 0, 0, 0};

class world {
public:
    explicit world(const simulation_settings& set)
        : set_(set), random_(set.seed), net_(loop_, random_.next()), server_(loop_, node_settings()) {
        const ledger::machine reference(node_settings().run);
        const simulated_site::surroundings around{
            loop_, net_, server_, set_, read_record_, reference.space_digest(), reference.settings().run_id};
        for (std::uint64_t i = 0; i < set.sites; ++i)
            sites_.push_back(std::make_unique<simulated_site>(around, i, random_.next()));
        for (std::uint64_t i = 0; i < set.sites; ++i)
            twins_.push_back(std::make_unique<simulated_site>(around, i, random_.next(), true));
    }

    simulation_report run() {
        server_.on_exit([this] { restart_server(); });
        if (set_.power_cut_at_call > 0) server_.cut_power_at_call(set_.power_cut_at_call, set_.power_cut_loss);
        server_.start();
        for (auto& site : sites_) loop_.after(pick(random_, 5'000), [&site] { site->start(); });
        plan_faults();
        report_.finished = loop_.run_until(set_.until_ms, [this] { return all_ended(); });
        audit();
        take_figures();
        return std::move(report_);
    }

private:
    static std::int64_t pick(rng& from, std::int64_t below) {
        return static_cast<std::int64_t>(from.below(static_cast<std::uint64_t>(below)));
    }

    [[nodiscard]] ledger_node_settings node_settings() const {
        ledger_node_settings node;
        node.run.run_id = "0123456789abcdef0123456789abcdef";
        node.run.space.num_samples = set_.blocks * set_.block_size;
        node.run.space.block_size = set_.block_size;
        node.run.lease.max_epochs = set_.epochs;
        node.run.round.inner_steps = set_.steps;
        node.run.round.eval_every = 0;
        node.counters = set_.blocks * set_.epochs;
        node.plant = set_.plant;
        node.seed = set_.seed ^ 0x5eedU;
        return node;
    }

    [[nodiscard]] bool all_ended() const {
        for (std::size_t i = 0; i < sites_.size(); ++i)
            if (!gone_.contains(i) && !sites_[i]->ended()) return false;
        return server_.is_serving();
    }

    void restart_server() {
        if (restart_is_due_) return;
        restart_is_due_ = true;
        loop_.after(500 + pick(random_, 20'000), [this] {
            restart_is_due_ = false;
            if (!server_.me().is_alive()) server_.start();
        });
    }

    // --- faults ---

    void plan_faults() {
        for (const auto& fault : set_.plan) loop_.at(fault.at_ms, [this, fault] { happen(fault); });
        net_.set_default(set_.rough_network ? rough_link : quiet_link);
        loop_.at(set_.fault_window_ms - 1, [this] { end_of_faults(); });
    }
    void end_of_faults() {
        window_is_over_ = true;
        net_.set_default(quiet_link);
        net_.heal_all();
        net_.clear_links();
        server_.set_disk_full(false);
        server_.set_io_broken(false);
        server_.set_short_transfers(false);
        server_.me().set_clock_rate(1);
        for (auto& twin : twins_) twin->kill();
        for (auto& site : sites_) {
            site->me().set_clock_rate(1);
            site->me().resume();
        }
        server_.me().resume();
    }
    void note(const planned_fault& f, const std::string& detail = {}) {
        ++report_.faults[std::string(word(f.kind))];
        std::string line = clock_text(loop_.now_ms()) + "  " + std::string(word(f.kind));
        const bool is_of_site = f.kind == harm::site_kill || f.kind == harm::site_pause || f.kind == harm::partition ||
                                f.kind == harm::partition_one_way || f.kind == harm::slow_peer ||
                                f.kind == harm::twin || f.kind >= harm::forever_dead;
        if (is_of_site) line += " (site" + std::to_string(f.site) + ")";
        if (!detail.empty()) line += ": " + detail;
        report_.story.push_back(std::move(line));
    }
    static std::string seconds(std::int64_t ms) { return "for " + std::to_string(ms / 1'000) + " s"; }

    void happen(const planned_fault& f) {
        rng random(f.seed);
        if (f.kind >= harm::forever_dead) return for_ever(f);
        if (window_is_over_) return;
        simulated_site& site = *sites_[f.site];
        switch (f.kind) {
            case harm::site_kill:
                return kill_site(f, site, random);
            case harm::site_pause:
                return pause(f, site.me(), random);
            case harm::server_pause:
                return pause(f, server_.me(), random);
            case harm::partition:
            case harm::partition_one_way:
                return partition(f, site.me(), random);
            case harm::slow_peer:
                return slow_down(f, site.me(), random);
            case harm::twin:
                return start_twin(f, random);
            case harm::clock_step:
                note(f);
                return server_.me().step_wall_clock(random.one_in(2) ? 86'400'000 : -86'400'000);
            case harm::clock_skew:
                note(f);
                server_.me().set_clock_rate(0.9 + 0.2 * random.unit());
                return site.me().set_clock_rate(0.9 + 0.2 * random.unit());
            case harm::disk_full:
                return trouble(f, random, 200'000, [this](bool on) { server_.set_disk_full(on); });
            case harm::io_error_lasting:
                return trouble(f, random, 100'000, [this](bool on) { server_.set_io_broken(on); });
            case harm::short_transfers:
                return trouble(f, random, 400'000, [this](bool on) { server_.set_short_transfers(on); });
            default:
                return hurt_server(f, random);
        }
    }

    /// Faults that need a running server.
    void hurt_server(const planned_fault& f, rng& random) {
        if (!server_.me().is_alive()) return;
        const loss mode = every_loss[random.below(std::size(every_loss))];
        switch (f.kind) {
            case harm::server_kill:
                note(f);
                server_.kill();
                return restart_server();
            case harm::power_cut:
                note(f, std::string(word(mode)));
                server_.cut_power(mode);
                return restart_server();
            case harm::power_cut_in_batch:
                note(f, std::string(word(mode)));
                return server_.cut_power_at_call(1 + random.below(40), mode);
            case harm::bit_flip:
                note(f);
                if (random.one_in(2))
                    server_.kill();
                else
                    server_.cut_power(mode);
                server_.flip_bit_at_rest();
                return restart_server();
            case harm::io_error_once:
                note(f);
                return server_.fail_one_call();
            case harm::failed_sync:
                note(f);
                return server_.fail_next_sync();
            case harm::restart_loop:
                return restart_loop(f, random, 3 + random.below(8), false);
            case harm::restart_under_power_cuts:
                return restart_loop(f, random, 2 + random.below(4), true);
            default:
                return;
        }
    }

    void kill_site(const planned_fault& f, simulated_site& site, rng& random) {
        if (!site.me().is_alive()) return;
        note(f);
        site.kill();
        loop_.after(pick(random, 120'000), [&site] {
            if (!site.me().is_alive() && !site.ended()) site.start();
        });
    }
    void pause(const planned_fault& f, process& who, rng& random) {
        if (!who.is_alive() || who.is_paused()) return;
        // some longer than any lease lives
        const std::int64_t ms = random.one_in(4) ? 600'000 + pick(random, 3'000'000) : 10'000 + pick(random, 600'000);
        note(f, seconds(ms));
        who.pause();
        loop_.after(ms, [this, &who] {
            if (!for_ever_.contains(who.name())) who.resume();
        });
    }
    template <class Switch>
    void trouble(const planned_fault& f, rng& random, std::int64_t longest_ms, Switch set) {
        const std::int64_t ms = 1'000 + pick(random, longest_ms);
        note(f, seconds(ms));
        set(true);
        loop_.after(ms, [set] { set(false); });
    }
    void partition(const planned_fault& f, process& site, rng& random) {
        const bool one_way = f.kind == harm::partition_one_way;
        const bool towards_server = random.one_in(2);
        const std::int64_t ms = 10'000 + pick(random, 1'200'000);
        note(f, seconds(ms));
        if (!one_way || towards_server) net_.cut(site, server_.me());
        if (!one_way || !towards_server) net_.cut(server_.me(), site);
        loop_.after(ms, [this, &site] {
            if (for_ever_.contains(site.name())) return;
            net_.heal(site, server_.me());
            net_.heal(server_.me(), site);
        });
    }
    void slow_down(const planned_fault& f, process& site, rng& random) {
        const std::int64_t ms = 60'000 + pick(random, 1'200'000);
        note(f, seconds(ms));
        set_slow(site);
        loop_.after(ms, [this, &site] {
            if (!for_ever_.contains(site.name())) net_.clear_link(site, server_.me());
        });
    }
    void set_slow(process& site) {
        net_.set_link(site, server_.me(), {5'000, 40'000, 0.05, 0.02, 0});
        net_.set_link(server_.me(), site, {5'000, 40'000, 0.05, 0.02, 0});
    }
    void start_twin(const planned_fault& f, rng& random) {
        simulated_site& twin = *twins_[f.site];
        if (twin.me().is_alive() || sites_[f.site]->ended()) return;
        const bool take_over = random.one_in(2);
        note(f, take_over ? "taking over" : "asking");
        twin.start(take_over);
        loop_.after(60'000 + pick(random, 1'200'000), [&twin] { twin.kill(); });
    }
    void restart_loop(const planned_fault& f, rng& random, std::uint64_t times, bool by_power_cuts) {
        note(f, std::to_string(times) + " times");
        std::int64_t at_ms = 0;
        for (std::uint64_t i = 0; i < times; ++i) {
            const loss mode = every_loss[random.below(std::size(every_loss))];
            const std::uint64_t call = 1 + random.below(40);
            at_ms += 50 + pick(random, 450);
            loop_.after(at_ms, [this, by_power_cuts, mode, call] {
                if (window_is_over_) return;
                if (server_.me().is_alive()) server_.kill();
                if (by_power_cuts) server_.cut_power_at_call(call, mode);
                server_.start();
            });
        }
    }

    void for_ever(const planned_fault& f) {
        simulated_site& site = *sites_[f.site];
        note(f);
        gone_.insert(f.site);
        for_ever_.insert(site.me().name());
        switch (f.kind) {
            case harm::forever_dead:
                return site.kill();
            case harm::forever_paused:
                return site.me().pause();
            case harm::forever_cut_off:
                net_.cut(site.me(), server_.me());
                return net_.cut(server_.me(), site.me());
            case harm::forever_deaf:
                return net_.cut(server_.me(), site.me());
            case harm::forever_mute:
                return net_.cut(site.me(), server_.me());
            case harm::forever_hung:
                return site.hang();
            case harm::forever_slow:
                return set_slow(site.me());
            default:
                return crash_again(f.site);
        }
    }
    void crash_again(std::uint64_t number) {
        simulated_site& site = *sites_[number];
        if (site.ended()) return;
        if (site.me().is_alive())
            site.kill();
        else
            site.start();
        loop_.after(90'000, [this, number] { crash_again(number); });
    }

    // --- the audit: from the model on the simulated disk and the sites' own records ---

    void audit() {
        report_.violations = server_.violations();
        if (!server_.is_serving()) {
            report_.stands = "the server is down";
            return;
        }
        const auto& ledger = *server_.machine();
        report_.merges = ledger.rounds().current().count;
        if (!report_.finished) {
            report_.stands = ledger.round_status(ledger_time{loop_.now_ms()}).waiting_for;
            const auto books = ledger.leases().counts();
            report_.stands += "; blocks: " + std::to_string(books.unassigned) + " unassigned, " +
                              std::to_string(books.leased) + " leased, " + std::to_string(books.pledged) +
                              " pledged, " + std::to_string(books.committed) + " committed, " +
                              std::to_string(books.quarantined) + " quarantined in epoch " +
                              std::to_string(ledger.epoch().count);
            for (const auto& s : sites_) report_.stands += "; " + s->me().name() + ": " + s->last_note();
        }
        if (!ledger.rounds().durable().has_model) return;
        const auto model = server_.model();
        if (!model) return violate("the model cannot be read: " + to_text(model.error()));
        audit_contributions(*model);
        audit_counters(ledger, model->counters);
        for (const char c : model->counters)
            model_digest_ = (model_digest_ ^ static_cast<unsigned char>(c)) * 1099511628211U;
    }

    // What is in the model is what the sites say they read for the contributions that were merged.
    void audit_contributions(const counting_store::evidence& model) {
        std::vector<std::uint32_t> told(model.counters.size(), 0);
        std::set<std::string> merged;
        for (const auto& id : model.contributions) {
            if (!merged.insert(id).second) violate("merged twice: " + id);
            for (const std::uint64_t counter : read_record_.at(id)) ++told.at(counter);
        }
        for (const auto& [id, counters] : read_record_)
            if (!merged.contains(id)) report_.retrained_blocks += counters.size();
        for (std::size_t i = 0; i < told.size(); ++i)
            if (told[i] != static_cast<unsigned char>(model.counters[i]))
                violate("block " + std::to_string(i) + ": the sites read it " + std::to_string(told[i]) +
                        " times, the model says " + std::to_string(static_cast<unsigned char>(model.counters[i])));
    }

    void audit_counters(const ledger::machine& ledger, const std::string& counters) {
        std::map<std::uint64_t, std::uint64_t> missing;  // by epoch
        for (std::size_t i = 0; i < counters.size(); ++i) {
            const auto times = static_cast<unsigned char>(counters[i]);
            if (times == 0) ++missing[i / set_.blocks];
            if (times > 1)
                violate("block " + std::to_string(i) + " is in the model " + std::to_string(times) + " times");
        }
        if (!report_.finished) return;
        const std::uint64_t last = ledger.epoch().count;
        for (std::uint64_t epoch = 0; epoch < set_.epochs; ++epoch) {
            std::uint64_t quarantined = epoch == last ? ledger.leases().counts().quarantined : 0;
            for (const auto& v : ledger.leases().verdicts())
                if (v.epoch.count == epoch && epoch != last) quarantined = v.quarantined;
            if (missing[epoch] != quarantined)
                violate("epoch " + std::to_string(epoch) + ": " + std::to_string(missing[epoch]) +
                        " blocks are missing, " + std::to_string(quarantined) + " are quarantined");
        }
    }
    void violate(std::string what) {
        if (report_.violations.size() < examples_max) report_.violations.push_back(std::move(what));
    }

    void take_figures() {
        report_.simulated_ms = loop_.now_ms();
        report_.events = loop_.events_run();
        report_.snapshots = server_.snapshots();
        report_.starts = server_.me().starts();
        report_.io_calls = server_.io_calls();
        report_.stale_calls_refused = server_.stale_calls_refused();
        for (const auto& [kind, count] : server_.faults()) report_.faults[kind] += count;
        const auto& sent = net_.counts();
        for (const auto& [kind, count] :
             {std::pair{"message lost", sent.lost + sent.blocked}, std::pair{"message doubled", sent.duplicated},
              std::pair{"message late", sent.delayed}})
            if (count > 0) report_.faults[kind] += count;
        report_.digest = loop_.digest() ^ (server_.record_digest() * 3) ^ (model_digest_ * 5);
    }

    simulation_settings set_;
    rng random_;
    event_loop loop_;
    network net_;
    std::map<std::string, std::vector<std::uint64_t>> read_record_;
    ledger_node server_;
    std::vector<std::unique_ptr<simulated_site>> sites_;
    std::vector<std::unique_ptr<simulated_site>> twins_;
    std::set<std::uint64_t> gone_;
    std::set<std::string> for_ever_;
    bool restart_is_due_ = false;
    bool window_is_over_ = false;
    std::uint64_t model_digest_ = 14695981039346656037U;
    simulation_report report_;
};

}  // namespace

std::string_view word(planted mechanism) {
    constexpr std::array<std::string_view, 16> words{"none",        "reserve",     "pledge",       "fence",
                                                     "checksum",    "sync",        "steal_replay", "directory_sync",
                                                     "file_sync",   "early_reply", "double_merge", "lost_block",
                                                     "merge_order", "blob_digest", "model_digest", "tail_rewrite"};
    return words[static_cast<std::size_t>(mechanism)];
}

const std::vector<planted>& every_planted() {
    static const std::vector<planted> all = [] {
        std::vector<planted> mechanisms;
        for (int i = 1; i <= static_cast<int>(planted::tail_rewrite); ++i)
            mechanisms.push_back(static_cast<planted>(i));
        return mechanisms;
    }();
    return all;
}

std::optional<planted> planted_from_word(std::string_view text) {
    if (text == word(planted::none)) return planted::none;
    for (const auto one : every_planted())
        if (text == word(one)) return one;
    return std::nullopt;
}

simulation_settings random_simulation(std::uint64_t seed, simulation_mode mode) {
    rng random(seed * 77 + 5);
    simulation_settings set;
    set.seed = seed;
    set.mode = mode;
    set.blocks = 1 + random.below(60);
    set.block_size = 1 + random.below(5);
    set.epochs = static_cast<std::uint32_t>(1 + random.below(3));
    set.sites = 1 + random.below(4);
    set.groups = random.below(4);
    set.steps = 1 + random.below(12);
    set.per_step = 1 + random.below(8);
    set.fault_window_ms = 7'200'000 + static_cast<std::int64_t>(random.below(14'400'000));
    // without faults the epochs would take about as long as the window
    const auto windows = static_cast<std::int64_t>(set.blocks * set.block_size * set.epochs);
    set.ms_per_window =
        std::clamp<std::int64_t>(set.fault_window_ms * static_cast<std::int64_t>(set.sites) / windows, 200, 120'000);
    set.plan = random_plan(random.next(), 20 + random.below(81), set.sites, set.fault_window_ms);
    if (mode == simulation_mode::liveness) {
        const std::uint64_t healthy = random.below(set.sites);
        for (const auto& f : forever_plan(random.next(), set.sites, healthy, set.fault_window_ms))
            set.plan.push_back(f);
    }
    return set;
}

std::string simulation_report::verdict() const {
    if (!violations.empty()) return violations.front();
    return finished ? "" : "does not end: " + stands;
}

simulation_report simulate(const simulation_settings& settings) { return world(settings).run(); }

// Takes away halves, quarters, ... of the plan as long as the rest still fails.
simulation_settings shrink(simulation_settings failing, std::uint64_t runs_max) {
    std::uint64_t runs = 0;
    const auto still_fails = [&](const simulation_settings& s) {
        ++runs;
        return !simulate(s).passed();
    };
    DARLCORE_ASSERT(still_fails(failing));
    if (failing.rough_network) {
        auto quiet = failing;
        quiet.rough_network = false;
        if (still_fails(quiet)) failing = quiet;
    }
    for (std::size_t chunk = std::max<std::size_t>(failing.plan.size() / 2, 1); runs < runs_max;) {
        bool smaller = false;
        for (std::size_t from = 0; from < failing.plan.size() && runs < runs_max;) {
            auto less = failing;
            const auto begin = less.plan.begin() + static_cast<std::ptrdiff_t>(from);
            const auto count = std::min(chunk, less.plan.size() - from);
            less.plan.erase(begin, begin + static_cast<std::ptrdiff_t>(count));
            if (still_fails(less)) {
                failing = std::move(less);
                smaller = true;
            } else {
                from += chunk;
            }
        }
        if (chunk == 1 && !smaller) break;
        chunk = std::max<std::size_t>(smaller ? std::min(chunk, failing.plan.size()) : chunk / 2, 1);
    }
    return failing;
}

}  // namespace darlcore::sim
