// SPDX-License-Identifier: Apache-2.0
#include "backends/sim/simulation.hpp"

#include <algorithm>
#include <memory>
#include <set>

#include "backends/sim/simulated_site.hpp"

namespace darlcore::sim {
namespace {

class world {
public:
    explicit world(const simulation_settings& set)
        : set_(set), random_(set.seed), net_(loop_, random_.next()), server_(loop_, node_settings()) {
        const ledger::machine reference(node_settings().run);
        for (std::uint64_t i = 0; i < set.sites; ++i)
            sites_.push_back(std::make_unique<simulated_site>(
                simulated_site::surroundings{loop_, net_, server_, set_, read_record_, reference.space_digest(),
                                             reference.settings().run_id},
                i, random_.next()));
    }

    simulation_report run() {
        server_.on_exit([this] { restart_server(); });
        server_.start();
        for (auto& site : sites_) loop_.after(pick(5'000), [&site] { site->start(); });
        plan_faults();
        const auto all_ended = [this] {
            return std::all_of(sites_.begin(), sites_.end(), [](const auto& s) { return s->ended(); });
        };
        report_.finished = loop_.run_until(set_.until_ms, all_ended);
        audit();
        report_.simulated_ms = loop_.now_ms();
        report_.events = loop_.events_run();
        report_.snapshots = server_.snapshots();
        return std::move(report_);
    }

private:
    std::int64_t pick(std::int64_t below) {
        return static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(below)));
    }

    [[nodiscard]] ledger_node_settings node_settings() const {
        ledger_node_settings node;
        node.run.run_id = "0123456789abcdef0123456789abcdef";
        node.run.space.num_samples = set_.blocks * set_.block_size;
        node.run.space.block_size = set_.block_size;
        node.run.round.inner_steps = set_.steps;
        node.run.round.eval_every = 0;
        node.storage_mutants = set_.storage_mutants;
        node.order = set_.order;
        node.seed = set_.seed ^ 0x5eedU;
        return node;
    }

    void restart_server() {
        loop_.after(500 + pick(20'000), [this] {
            if (!server_.me().is_alive()) server_.start();
        });
    }

    // --- faults ---

    void plan_faults() {
        for (std::uint64_t i = 0; i < set_.faults; ++i) loop_.after(pick(set_.fault_window_ms), [this] { harm(); });
        if (set_.faults > 0) net_.set_default({1, 300, 0.02, 0.03, 0.01});
        loop_.after(set_.fault_window_ms, [this] {
            net_.set_default({1, 50, 0, 0, 0});
            net_.heal_all();
            if (server_.me().is_alive()) server_.set_disk_full(false);
        });
    }
    void count(const char* kind) { ++report_.faults[kind]; }

    void harm() {
        switch (random_.below(11)) {
            case 0:
                return kill_site();
            case 1:
                return pause(site_at_random()->me(), "site paused");
            case 2:
                return pause(server_.me(), "server paused");
            case 3:
                return stop_server("server kill -9", [this] { server_.kill(); });
            case 4:
                return stop_server("power cut", [this] { server_.cut_power(loss_at_random()); });
            case 5:
                return arm("power cut inside a batch",
                           [this] { server_.cut_power_at_call(1 + random_.below(12), loss_at_random()); });
            case 6:
                return arm("failed sync", [this] { server_.fail_next_sync(); });
            case 7:
                return fill_disk();
            case 8:
                return partition(true);
            case 9:
                return partition(false);
            default:
                return disturb_clock();
        }
    }
    simulated_site* site_at_random() { return sites_[random_.below(sites_.size())].get(); }
    loss loss_at_random() { return every_loss[random_.below(std::size(every_loss))]; }

    void kill_site() {
        auto* site = site_at_random();
        if (!site->me().is_alive()) return;
        count("site kill -9");
        site->kill();
        loop_.after(pick(120'000), [site] {
            if (!site->me().is_alive() && !site->ended()) site->start();
        });
    }
    void pause(process& who, const char* kind) {
        if (!who.is_alive() || who.is_paused()) return;
        count(kind);
        who.pause();
        loop_.after(10'000 + pick(600'000), [&who] { who.resume(); });
    }
    template <class F>
    void stop_server(const char* kind, F&& how) {
        if (!server_.me().is_alive()) return;
        count(kind);
        how();
        restart_server();
    }
    template <class F>
    void arm(const char* kind, F&& how) {
        if (!server_.me().is_alive()) return;
        count(kind);
        how();
    }
    void fill_disk() {
        if (!server_.me().is_alive()) return;
        count("disk full");
        server_.set_disk_full(true);
        loop_.after(1'000 + pick(200'000), [this] { server_.set_disk_full(false); });
    }
    void partition(bool one_way) {
        auto& site = site_at_random()->me();
        count(one_way ? "partition of one direction" : "partition");
        const bool towards_server = random_.one_in(2);
        if (!one_way || towards_server) net_.cut(site, server_.me());
        if (!one_way || !towards_server) net_.cut(server_.me(), site);
        loop_.after(10'000 + pick(300'000), [this, &site] {
            net_.heal(site, server_.me());
            net_.heal(server_.me(), site);
        });
    }
    void disturb_clock() {
        count("clock step and skew");
        server_.me().step_wall_clock(random_.one_in(2) ? 86'400'000 : -86'400'000);
        server_.me().set_clock_rate(0.9 + 0.2 * random_.unit());
    }

    // --- the audit: from the generations' inputs and the sites' own records ---

    void audit() {
        report_.violations = server_.violations();
        if (!server_.is_serving()) return;
        const auto& ledger = *server_.machine();
        const std::uint64_t current = ledger.rounds().current().count;
        report_.merges = current;
        std::vector<std::uint32_t> times(set_.blocks, 0);
        std::set<std::string> merged;
        for (const auto& [generation, inputs] : server_.merge_inputs()) {
            if (generation > current) continue;
            for (const auto& id : inputs) {
                if (!merged.insert(id).second) violate("merged twice: " + id);
                for (const std::uint64_t block : read_record_.at(id)) ++times.at(block);
            }
        }
        for (const auto& [id, blocks] : read_record_)
            if (!merged.contains(id)) report_.retrained_blocks += blocks.size();
        std::uint64_t missing = 0;
        for (std::size_t b = 0; b < times.size(); ++b) {
            missing += times[b] == 0 ? 1 : 0;
            if (times[b] > 1)
                violate("block " + std::to_string(b) + " is in the model " + std::to_string(times[b]) + " times");
        }
        const std::uint64_t quarantined = ledger.leases().counts().quarantined;
        if (report_.finished && missing != quarantined)
            violate(std::to_string(missing) + " blocks are missing, " + std::to_string(quarantined) +
                    " are quarantined");
        if (report_.finished) return;
        report_.stands = ledger.round_status(ledger_time{loop_.now_ms()}).waiting_for;
        for (const auto& s : sites_) report_.stands += "; " + s->me().name() + ": " + s->last_note();
    }
    void violate(std::string what) { report_.violations.push_back(std::move(what)); }

    simulation_settings set_;
    rng random_;
    event_loop loop_;
    network net_;
    std::map<std::string, std::vector<std::uint64_t>> read_record_;
    ledger_node server_;
    std::vector<std::unique_ptr<simulated_site>> sites_;
    simulation_report report_;
};

}  // namespace

simulation_settings random_simulation(std::uint64_t seed) {
    rng random(seed * 77 + 5);
    simulation_settings set;
    set.seed = seed;
    set.blocks = 1 + random.below(60);
    set.block_size = 1 + random.below(5);
    set.sites = 1 + random.below(4);
    set.groups = random.below(4);
    set.steps = 1 + random.below(12);
    set.per_step = 1 + random.below(8);
    set.faults = random.below(25);
    return set;
}

simulation_report simulate(const simulation_settings& settings) { return world(settings).run(); }

}  // namespace darlcore::sim
