// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "darlcore/ledger/rollback.hpp"
#include "darlcore/random.hpp"
#include "tests/ledger/world.hpp"

namespace darlcore::ledger::testing {

/// What a simulated run is made of.
struct sim_options {
    run_settings run = world::small_run();
    std::vector<std::int64_t> ms_per_block;  // one site each
    std::uint64_t target_blocks = 4;         // of a full phase; inner_steps are scaled to it
    std::uint64_t kills = 0;                 // processes killed at random times
    std::uint64_t hangs = 0;                 // processes that beat for ever and do nothing
    std::uint64_t server_restarts = 0;
    std::uint64_t merge_failures = 0;
    std::int64_t faults_until_ms = 600'000;
    std::int64_t merge_ms = 500;
    std::int64_t evaluate_ms = 0;    // what scoring takes a site
    bool score_every_phase = false;  // before each phase, asked or not: as if evaluation were part of the barrier
    bool check_replay = false;       // after every command
    order_switches switches;
    std::int64_t give_up_ms = 200LL * 86'400'000;
};

/// A site's process in the simulation: joins, polls, reserves and trains block by block, contributes.
struct sim_site {
    enum class doing { down, entering, polling, scoring, training, hanging, done };
    std::string name;
    std::int64_t ms_per_block = 1'000;
    std::uint64_t process = 1;
    doing state = doing::entering;
    ledger_time next;
    std::optional<incarnation> before;  // that take_over names

    // of the running phase
    std::vector<lease::lease_record> leases;
    std::size_t at = 0;
    std::vector<std::uint64_t> read;  // positions, in this phase
    ledger_time started;
    std::optional<std::int64_t> budget_ms;
    generation base;
    bool block_running = false;

    // scoring: before a phase (its terms are kept), or beside waiting
    std::optional<round::poll_answer> terms;
    ledger_time scored_at;
    std::optional<generation> scores;

    // figures
    std::int64_t trained_ms = 0;
    ledger_time measured_from;
    std::uint64_t rounds = 0;
};

/// Sites, server and the audit made from what sites read.
class simulation {
public:
    simulation(sim_options o, std::uint64_t seed) : o_(std::move(o)), random_(seed), w_(o_.run) {
        w_.m.set_switches_for_testing(o_.switches);
        for (std::size_t i = 0; i < o_.ms_per_block.size(); ++i) {
            sim_site s;
            s.name = std::string(1, static_cast<char>('a' + i));
            s.ms_per_block = o_.ms_per_block[i];
            s.next = w_.now + static_cast<std::int64_t>(random_.below(1'000));
            sites_.push_back(std::move(s));
        }
        plan_faults();
    }

    /// Runs to the end. The text names what went wrong; empty = every block merged exactly once.
    std::string run() {
        while (trouble_.empty() && !all_done()) {
            const ledger_time next = next_event();
            if (next.ms > o_.give_up_ms) return "no end: " + round::waiting_for(w_.m.rounds(), w_.m.facts(), w_.now);
            w_.now = std::max(w_.now, next);
            one_turn();
        }
        return trouble_.empty() ? audit() : trouble_;
    }
    [[nodiscard]] world& server() { return w_; }
    [[nodiscard]] const std::vector<sim_site>& sites() const { return sites_; }
    /// Share of the time since its third round in which a site did not train.
    [[nodiscard]] double idle_share(std::size_t i) const {
        const auto& s = sites_[i];
        return 1 - static_cast<double>(s.trained_ms) /
                       static_cast<double>(std::max<std::int64_t>(1, w_.now - s.measured_from));
    }
    std::uint64_t stop_after_rounds = 0;
    /// The run goes back to the model of `target`: the journal is cut behind it, the server starts on what is left. The
    /// sites are not stopped: they go on with what they hold. Gives the number of the generation that the server goes
    /// on from.
    generation go_back(generation target);
    /// Evaluations that the server used.
    [[nodiscard]] std::uint64_t scores_used() const { return scores_used_; }
    /// Median of the times between publications, the first one left out.
    [[nodiscard]] std::int64_t median_round_ms() const {
        std::vector<std::int64_t> times;
        for (std::size_t i = 2; i < published_.size(); ++i) times.push_back(published_[i] - published_[i - 1]);
        if (times.empty()) return 0;
        std::sort(times.begin(), times.end());
        return times[times.size() / 2];
    }

private:
    struct fault {
        ledger_time at;
        int kind;  // 0 kill, 1 hang, 2 restart of the server
    };

    template <class Request>
    auto call(const Request& r) {
        auto out = w_.handle(r);
        for (const auto& e : out.effects) {
            if (const auto* merge = std::get_if<effects::start_merge>(&e)) {
                merge_ = *merge;
                merge_at_ = w_.now + o_.merge_ms;
            }
            if (std::holds_alternative<effects::wake>(e)) woken_ = true;
        }
        w_.effects.clear();
        if (o_.check_replay) compare_replay();
        return out;
    }
    void plan_faults() {
        const auto when = [&] {
            return w_.now + 1'000 +
                   static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(o_.faults_until_ms)));
        };
        for (std::uint64_t i = 0; i < o_.kills; ++i) faults_.push_back({when(), 0});
        for (std::uint64_t i = 0; i < o_.hangs; ++i) faults_.push_back({when(), 1});
        for (std::uint64_t i = 0; i < o_.server_restarts; ++i) faults_.push_back({when(), 2});
        std::sort(faults_.begin(), faults_.end(), [](const auto& a, const auto& b) { return a.at > b.at; });
    }
    [[nodiscard]] bool all_done() const {
        if (stop_after_rounds > 0 && w_.m.rounds().current().count >= stop_after_rounds) return true;
        return std::all_of(sites_.begin(), sites_.end(),
                           [](const sim_site& s) {
                               return s.state == sim_site::doing::done || s.state == sim_site::doing::hanging;
                           }) &&
               w_.m.rounds().state() == round::phase::finished;
    }
    ledger_time next_event() const {
        ledger_time next = w_.now + 60'000;
        if (const auto t = w_.m.next_tick(w_.now)) next = std::min(next, std::max(*t, w_.now + 1));
        for (const auto& s : sites_)
            if (s.state != sim_site::doing::done) next = std::min(next, s.next);
        if (merge_at_) next = std::min(next, *merge_at_);
        if (!faults_.empty()) next = std::min(next, faults_.back().at);
        return next;
    }
    void one_turn() {
        (void)call(tick_input{});
        while (!faults_.empty() && faults_.back().at <= w_.now) {
            inject(faults_.back().kind);
            faults_.pop_back();
        }
        if (merge_at_ && *merge_at_ <= w_.now) end_merge();
        for (auto& s : sites_)
            if (s.state != sim_site::doing::done && s.next <= w_.now) act(s);
        if (!std::exchange(woken_, false)) return;
        for (auto& s : sites_)
            if (s.state == sim_site::doing::polling) s.next = std::min(s.next, w_.now + 10);
    }

    void compare_replay() {
        if (!shadow_) shadow_.emplace(w_.m.settings());
        for (; replayed_ < w_.journal.size(); ++replayed_) {
            const auto& [r, at] = w_.journal[replayed_];
            const auto ok = shadow_->replay(r, at);
            if (!ok && trouble_.empty()) trouble_ = "replay: " + to_text(ok.error());
        }
        if (shadow_->digest() != w_.m.digest() && trouble_.empty())
            trouble_ = "replay differs after " + std::string(type_name(w_.journal.back().first));
        if (const auto ok = w_.m.verify(); !ok && trouble_.empty()) trouble_ = "verify: " + to_text(ok.error());
    }
    void inject(int kind) {
        if (kind == 2) return restart_server();
        auto& s = sites_[random_.below(sites_.size())];
        if (s.state == sim_site::doing::done || s.state == sim_site::doing::hanging) return;
        if (kind == 1) {
            // one site stays healthy
            if (&s == &sites_.front()) return;
            s.state = sim_site::doing::hanging;
            return;
        }
        s.state = sim_site::doing::down;
        s.next = w_.now + static_cast<std::int64_t>(1'000 + random_.below(400'000));
    }
    /// kill -9: what the journal holds comes back, from its start or from a snapshot.
    void restart_server() {
        merge_at_.reset();
        const auto digest = w_.m.digest();
        if (random_.below(2) == 0) {
            auto copy = w_.replayed();
            if (!copy) return void(trouble_ = "restart: " + to_text(copy.error()));
            w_.m = std::move(*copy);
        } else {
            auto copy = machine::from_snapshot(w_.m.snapshot(), w_.now);
            if (!copy) return void(trouble_ = "snapshot: " + to_text(copy.error()));
            w_.m = std::move(*copy);
        }
        if (w_.m.digest() != digest) return void(trouble_ = "restart: another state came back");
        w_.m.set_switches_for_testing(o_.switches);
        for (const auto& [file, site] : stored_) w_.store_blob(site, file);
        (void)call(start_input{darlcore::term{w_.m.term().count + 1}});
    }
    void end_merge() {
        merge_at_.reset();
        if (o_.merge_failures > 0 && random_.below(3) == 0) {
            --o_.merge_failures;
            (void)call(merge_failed{merge_.next, "EIO", {}});
            if (w_.m.rounds().state() == round::phase::paused) (void)call(resume_request{});
            return;
        }
        merge_done in;
        in.next = merge_.next;
        in.files.wire = {"wire" + std::to_string(in.next.count), 1'000'000};
        in.max_abs_weight = 1;
        const auto epoch = w_.m.epoch();
        if (in.next <= newest_) trouble_ = "generation " + std::to_string(in.next.count) + " was there before";
        newest_ = in.next;
        for (const auto& input : merge_.inputs)
            for (const auto p : contributed_[input.id.text]) {
                ++merged_[{epoch.count, p}];
                merged_by_[in.next].emplace_back(epoch.count, p);
            }
        (void)call(in);
        published_.push_back(w_.now);
    }
    /// What the generations behind `target` held is not in the model any more.
    void undo_merges(generation target) {
        for (auto later = merged_by_.upper_bound(target); later != merged_by_.end();) {
            for (const auto& block : later->second)
                if (--merged_[block] == 0) merged_.erase(block);
            later = merged_by_.erase(later);
        }
    }
    std::string audit() const {
        const auto& run = o_.run;
        if (stop_after_rounds > 0) return {};
        if (w_.m.rounds().durable().stop != round::stop_reason::exhausted) return "did not end as exhausted";
        std::uint64_t quarantined = 0;
        for (const auto& v : w_.m.leases().verdicts()) quarantined += v.quarantined;
        quarantined += w_.m.leases().counts().quarantined;
        std::uint64_t missing = 0;
        for (std::uint32_t e = 0; e < run.lease.max_epochs; ++e)
            for (std::uint64_t p = 0; p < block_count(run.space); ++p) {
                const auto found = merged_.find({e, p});
                if (found == merged_.end())
                    ++missing;
                else if (found->second != 1)
                    return "position " + std::to_string(p) + " is in the model " + std::to_string(found->second) +
                           " times";
            }
        if (missing != quarantined) return std::to_string(missing) + " positions never reached the model";
        if (auto ok = w_.m.verify(); !ok) return to_text(ok.error());
        return {};
    }

    // --- a site -------------------------------------------------------------------------------------------------

    void act(sim_site& s) {
        using doing = sim_site::doing;
        switch (s.state) {
            case doing::down:
                s.before = world::who(s.name, s.process).incarnation;
                ++s.process;
                s.leases.clear();
                s.read.clear();
                s.block_running = false;
                s.terms.reset();
                s.scores.reset();
                s.state = doing::entering;
                return enter(s);
            case doing::entering:
                return enter(s);
            case doing::polling:
                return poll(s);
            case doing::scoring:
                return score_before_phase(s);
            case doing::training:
                return train(s);
            case doing::hanging:
                beat(s);
                s.next = w_.now + 20'000;
                return;
            case doing::done:
                return;
        }
    }
    void enter(sim_site& s) {
        register_request r;
        r.who = world::who(s.name, s.process);
        r.protocol = 2;
        r.digest = w_.m.space_digest();
        r.take_over = s.before;
        s.next = w_.now + 1'000;
        if (!call(r).ok()) return;
        if (!call(join_request{r.who, {}, world::pins(), ""}).ok()) return;
        if (!w_.m.rounds().durable().has_model) {
            w_.init();
            w_.effects.clear();
        }
        s.state = sim_site::doing::polling;
        s.next = w_.now + 10;
    }
    void beat(sim_site& s) {
        heartbeat_request h;
        h.who = world::who(s.name, s.process);
        h.report.macro_step_s = static_cast<double>(s.ms_per_block) * static_cast<double>(o_.target_blocks) / 1e3;
        for (const auto& l : s.leases) h.leases.push_back({lease::ref_to(l), std::nullopt, std::nullopt});
        auto out = call(h);
        if (!out.ok()) return;
        for (std::size_t i = 0; i < out.reply().leases.leases.size(); ++i)
            if (out.reply().leases.leases[i].valid)
                s.leases[i].end = std::min(s.leases[i].end, out.reply().leases.leases[i].end);
    }
    void poll(sim_site& s) {
        poll_request p;
        p.who = world::who(s.name, s.process);
        p.have = w_.m.rounds().current();
        auto out = call(p);
        s.next = w_.now + 1'000;
        if (!out.ok()) {
            s.state = sim_site::doing::entering;
            return;
        }
        const auto& answer = out.reply();
        if (answer.action == round::poll_action::stop) s.state = sim_site::doing::done;
        if (s.scores && s.scores != w_.m.rounds().current()) s.scores.reset();  // a new generation: gives up
        if (answer.action == round::poll_action::wait) {
            s.next = w_.now + std::clamp<std::int64_t>(answer.retry_after_ms, 5'000, 20'000);
            score_while_waiting(s, answer);
        }
        if (answer.action != round::poll_action::train) return;
        if (o_.evaluate_ms > 0 && (answer.evaluate || o_.score_every_phase)) {
            s.terms = answer;
            s.scored_at = w_.now + o_.evaluate_ms;
            s.state = sim_site::doing::scoring;
            s.next = w_.now;
            return;
        }
        begin_phase(s, answer);
    }
    void score_while_waiting(sim_site& s, const round::poll_answer& answer) {
        if (o_.evaluate_ms == 0) return;
        if (!s.scores && answer.evaluate) {
            s.scores = answer.current;
            s.scored_at = w_.now + o_.evaluate_ms;
        }
        if (!s.scores) return;
        if (s.scored_at <= w_.now) return tell_score(s);
        s.next = std::min(s.next, s.scored_at);
    }
    void score_before_phase(sim_site& s) {
        beat(s);
        s.next = std::min(s.scored_at, w_.now + 20'000);
        if (s.scored_at > w_.now) return;
        s.scores = s.terms->current;
        tell_score(s);
        s.state = sim_site::doing::polling;
        const auto terms = *std::exchange(s.terms, std::nullopt);
        begin_phase(s, terms);
    }
    void tell_score(sim_site& s) {
        const auto out = call(evaluation_request{world::who(s.name, s.process), *s.scores, 2.0, 1'000, 10});
        scores_used_ += out.ok() && out.reply().used ? 1U : 0U;
        s.scores.reset();
    }
    void begin_phase(sim_site& s, const round::poll_answer& answer) {
        acquire_request a;
        a.who = world::who(s.name, s.process);
        a.want = o_.target_blocks;
        a.report.macro_step_s = static_cast<double>(s.ms_per_block) * static_cast<double>(o_.target_blocks) / 1e3;
        a.request_id = "r" + std::to_string(next_id_++);
        auto out = call(a);
        if (!out.ok() || out.reply().leases.status != lease::acquire_status::granted) {
            (void)call(decline_request{a.who, answer.current, round::decline_reason::no_data, ""});
            s.next = w_.now + 1'000;
            return;
        }
        if (s.rounds == 3) {
            s.measured_from = w_.now;
            s.trained_ms = 0;
        }
        ++s.rounds;
        s.leases = out.reply().leases.leases;
        s.at = 0;
        s.read.clear();
        s.started = w_.now;
        s.budget_ms = answer.budget_ms;
        s.base = answer.current;
        s.block_running = false;
        s.state = sim_site::doing::training;
        s.next = w_.now;
    }
    /// Ends the running block, if any, then begins the next one: its reservation first.
    void train(sim_site& s) {
        beat(s);
        if (w_.m.rounds().current() != s.base) return drop(s);  // its delta would be stale
        if (s.block_running && block_end_[s.name] > w_.now) {
            s.next = std::min(block_end_[s.name], w_.now + 20'000);
            return;
        }
        if (s.block_running) {
            s.trained_ms += s.ms_per_block;
            s.leases[s.at].done_end.count++;  // the trained end, in the site's copy
            s.block_running = false;
        }
        const bool over_budget = s.budget_ms && !s.read.empty() && w_.now - s.started + s.ms_per_block > *s.budget_ms;
        while (!over_budget && s.at < s.leases.size()) {
            auto& l = s.leases[s.at];
            if (l.done_end < l.end) {
                const position through{l.done_end.count + 1};
                auto out = call(reserve_request{world::who(s.name, s.process), lease::ref_to(l), through});
                if (!out.ok()) return drop(s);
                if (out.reply().reserved_end >= through) {
                    s.read.push_back(l.done_end.count);
                    s.block_running = true;
                    block_end_[s.name] = w_.now + s.ms_per_block;
                    s.next = std::min(block_end_[s.name], w_.now + 20'000);
                    return;
                }
            }
            ++s.at;
        }
        contribute(s);
    }
    void contribute(sim_site& s) {
        contribute_request c;
        c.who = world::who(s.name, s.process);
        c.id = {"c" + std::to_string(next_id_++)};
        c.base = s.base;
        c.sha256 = c.id.text;
        c.codec = "bf16";
        c.tokens = 8 * s.read.size();
        c.steps = std::max<std::uint64_t>(1, o_.run.round.inner_steps * s.read.size() / o_.target_blocks);
        c.phase_ms = w_.now - s.started;
        c.transfer_ms = 100;
        std::map<std::uint64_t, std::pair<lease::lease_record, std::pair<std::uint64_t, std::uint64_t>>> claims;
        for (const auto& l : s.leases)
            for (const auto p : s.read)
                if (l.start.count <= p && p < l.end.count) {
                    auto [found, fresh] = claims.try_emplace(l.seq.count, l, std::pair{p, p + 1});
                    if (!fresh) found->second.second.second = p + 1;
                }
        for (const auto& [seq, claim] : claims)
            c.leases.push_back(
                {lease::ref_to(claim.first), position{claim.second.first}, position{claim.second.second}});
        contributed_[c.id.text] = s.read;
        stored_[c.sha256] = s.name;
        w_.store_blob(s.name, c.sha256);
        (void)call(c);
        drop(s);
    }
    /// Gives back what is left and asks again.
    void drop(sim_site& s) {
        (void)call(release_request{world::who(s.name, s.process), std::nullopt, false});
        s.leases.clear();
        s.block_running = false;
        s.state = sim_site::doing::polling;
        s.next = w_.now + 50;
    }

    sim_options o_;
    xoshiro256 random_;
    world w_;
    std::vector<sim_site> sites_;
    std::vector<fault> faults_;
    std::optional<ledger_time> merge_at_;
    effects::start_merge merge_;
    std::map<std::string, std::vector<std::uint64_t>> contributed_;
    std::map<std::string, std::string> stored_;
    std::map<std::string, ledger_time> block_end_;
    std::map<std::pair<std::uint32_t, std::uint64_t>, int> merged_;
    std::map<generation, std::vector<std::pair<std::uint32_t, std::uint64_t>>> merged_by_;
    generation newest_;
    std::optional<machine> shadow_;
    std::size_t replayed_ = 0;
    std::uint64_t next_id_ = 0;
    std::vector<ledger_time> published_;
    std::uint64_t scores_used_ = 0;
    std::string trouble_;
    bool woken_ = false;
};

inline generation simulation::go_back(generation target) {
    machine kept(w_.m.settings());
    std::size_t cut = 0;
    for (; cut < w_.journal.size() && !has_reached(kept, target); ++cut)
        if (!kept.replay(w_.journal[cut].first, w_.journal[cut].second)) trouble_ = "replay of what is kept";
    left_out gone(kept);
    for (std::size_t i = cut; i < w_.journal.size(); ++i) gone.add(w_.journal[i].first);
    w_.journal.resize(cut);
    w_.journal.emplace_back(ledger::go_back(kept, gone, kept.rounds().durable().files), w_.now);
    if (!kept.replay(w_.journal.back().first, w_.now)) trouble_ = "replay of the way back";
    if (const auto ok = kept.verify(); !ok) trouble_ = "after the way back: " + to_text(ok.error());
    const std::uint32_t term = w_.m.term().count + 1;
    w_.m = std::move(kept);
    w_.m.set_switches_for_testing(o_.switches);
    shadow_.reset();
    replayed_ = 0;
    merge_at_.reset();
    undo_merges(target);
    for (auto& s : sites_)
        if (s.state == sim_site::doing::done) s.state = sim_site::doing::down;  // its job is started again
    for (const auto& [file, site] : stored_) w_.store_blob(site, file);
    (void)call(start_input{darlcore::term{term}});
    return w_.m.rounds().current();
}

}  // namespace darlcore::ledger::testing
