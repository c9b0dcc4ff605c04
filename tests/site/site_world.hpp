// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "darlcore/ledger/machine.hpp"
#include "darlcore/random.hpp"
#include "darlcore/site/session.hpp"

/// Sessions against a ledger in virtual time: the real state machines, a network that delays, loses and repeats,
/// processes that die or sleep. The ledger itself never dies here and there is no disk.
namespace darlcore::test {

struct world_settings {
    std::uint64_t seed = 1;
    std::uint64_t blocks = 40;
    std::uint64_t block_size = 3;
    std::uint64_t sites = 3;
    std::uint64_t groups = 2;
    std::uint64_t steps = 4;     // H
    std::uint64_t per_step = 6;  // windows
    std::uint64_t loss_percent = 0;
    std::uint64_t repeat_percent = 0;
    std::uint64_t kills = 0;
    std::uint64_t pauses = 0;
    std::int64_t until_ms = 400'000'000;
    bool read_unreserved = false;  // mutant: a trainer that reads its whole grant
    bool theft = false;            // after every reservation, and half of the other calls, all that can be is stolen
};

class site_world {
public:
    explicit site_world(const world_settings& set) : set_(set), chance_(set.seed), ledger_(make_ledger(set)) {
        effects_of(ledger_.handle(ledger::start_input{term{1}}, clock()));
        sites_.resize(set.sites);
        for (std::uint64_t i = 0; i < set.sites; ++i) {
            sites_[i].name = "site" + std::to_string(i);
            sites_[i].ms_per_window = 20 + pick(200);
            after(pick(5'000), [this, i] { start_process(i); });
        }
        for (std::uint64_t k = 0; k < set.kills; ++k) after(pick(60'000), [this] { harm(false); });
        for (std::uint64_t k = 0; k < set.pauses; ++k) after(pick(60'000), [this] { harm(true); });
        tick();
    }

    /// Runs to the end of the run or of the time. True: every site ended by itself because the run is finished.
    bool run() {
        while (!queue_.empty() && now_ < set_.until_ms) {
            auto first = queue_.begin();
            now_ = first->first.first;
            auto what = std::move(first->second);
            queue_.erase(first);
            what();
            if (std::all_of(sites_.begin(), sites_.end(), [](const auto& s) { return s.ended; })) return true;
        }
        return false;
    }

    /// How often each position is in the global model, by the sites' own records of what they read.
    [[nodiscard]] std::vector<std::uint32_t> merged_times() const {
        std::vector<std::uint32_t> times(set_.blocks, 0);
        for (const auto& id : merged_)
            for (const std::uint64_t p : contributions_.at(id)) ++times[p];
        return times;
    }
    [[nodiscard]] const std::vector<std::string>& violations() const { return violations_; }
    [[nodiscard]] std::int64_t now_ms() const { return now_; }
    [[nodiscard]] const ledger::machine& ledger() const { return ledger_; }
    [[nodiscard]] std::uint64_t merges() const { return merges_; }
    [[nodiscard]] std::uint64_t harmed() const { return harmed_; }
    [[nodiscard]] std::uint64_t thefts() const { return thefts_; }
    [[nodiscard]] std::string where_it_stands() const {
        std::string text = "t=" + std::to_string(now_) + " ms, " + ledger_.round_status(ledger_time{now_}).waiting_for;
        for (const auto& s : sites_) text += "; " + s.name + (s.ended ? " ended" : "") + " " + s.last_note;
        return text;
    }

private:
    struct process {
        std::uint64_t slot = 0;
        incarnation me;
        site::session session;
        bool alive = true;
        bool asleep = false;
        std::deque<site::event_t> missed = {};
        // the trainer
        std::uint64_t phase = 0;
        std::vector<std::vector<span>> groups = {};
        std::uint64_t trained = 0;
        std::vector<std::uint64_t> ends = {};  // windows until the end of each group
        std::int64_t busy_until = 0;
        std::uint64_t windows = 0;
        std::uint64_t uploaded_windows = 0;
        std::string uploaded_id = {};
        generation base = {};
    };
    struct site_slot {
        std::string name;
        std::int64_t ms_per_window = 100;
        std::uint64_t starts = 0;
        std::shared_ptr<process> running;
        bool ended = false;
        std::string last_note;
    };

    static ledger::machine make_ledger(const world_settings& set) {
        ledger::run_settings run;
        run.run_id = "world";
        run.space.num_samples = set.blocks * set.block_size;
        run.space.block_size = set.block_size;
        run.round.inner_steps = set.steps;
        run.round.eval_every = 0;
        if (set.theft) run.lease.steal_min_blocks = 1;
        return ledger::machine(run);
    }

    std::int64_t pick(std::int64_t below) {
        return static_cast<std::int64_t>(chance_() % static_cast<std::uint64_t>(below));
    }
    bool happens(std::uint64_t percent) { return chance_() % 100 < percent; }
    [[nodiscard]] ledger_time clock() const { return {now_}; }
    void after(std::int64_t delay_ms, std::function<void()> what) {
        queue_.emplace(std::pair(now_ + delay_ms, next_++), std::move(what));
    }

    // --- the server ---

    template <class Reply>
    void effects_of(const ledger::outcome<Reply>& out) {
        for (const auto& e : out.effects) {
            if (const auto* merge = std::get_if<ledger::effects::start_merge>(&e)) start_merge(*merge);
            if (const auto* init = std::get_if<ledger::effects::initialise_model>(&e)) {
                ledger::model_initialised made{init->by, layout(), files(0), 0};
                after(200, [this, made] { effects_of(ledger_.handle(made, clock())); });
            }
        }
    }
    void start_merge(const ledger::effects::start_merge& merge) {
        after(500 + pick(2'000), [this, merge] {
            ledger::merge_done done;
            done.next = merge.next;
            done.files = files(merge.next.count);
            const generation before = ledger_.rounds().durable().current;
            effects_of(ledger_.handle(done, clock()));
            const generation now = ledger_.rounds().durable().current;
            if (now == before) return;  // told twice
            ++merges_;
            for (const auto& input : merge.inputs)
                if (!merged_.insert(input.id.text).second) violations_.push_back("merged twice: " + input.id.text);
        });
    }
    static std::string layout() { return std::string(32, '1'); }
    static round::model_files files(std::uint64_t g) {
        std::string sha = std::to_string(g);
        sha = std::string(64 - sha.size(), '0') + sha;
        return {{sha, 100}, {sha, 100}, {sha, 50}, {sha, 10}};
    }
    void tick() {
        effects_of(ledger_.handle(ledger::tick_input{}, clock()));
        after(1'000, [this] { tick(); });
    }

    // --- the network ---

    void call(const std::shared_ptr<process>& p, const site::request& what) {
        const std::uint64_t number = next_;
        (void)number;
        const bool lost = happens(set_.loss_percent);
        const std::int64_t there = 5 + pick(300);
        if (happens(set_.repeat_percent)) after(there + pick(5'000), [this, what] { (void)serve(what); });
        if (lost) return after(30'000, [this, p] { deliver(p, site::event::refused{{errc::timeout, "lost", 0, {}}}); });
        after(there, [this, p, what] {
            auto answer = serve(what);
            if (happens(set_.loss_percent))
                return after(30'000, [this, p] { deliver(p, site::event::refused{{errc::timeout, "lost", 0, {}}}); });
            after(5 + pick(300), [this, p, answer] { deliver(p, answer); });
        });
    }
    site::event_t serve(const site::request& what) {
        return std::visit(
            [&](const auto& r) -> site::event_t {
                const auto out = ledger_.handle(r, clock());
                effects_of(out);
                // after each acquire too, nobody would have a tail left to be robbed of while it trains
                if (set_.theft && (std::is_same_v<decltype(r), const lease::reserve&> || happens(50)))
                    steal_everything();
                if (out.ok()) return site::event::replied{out.reply()};
                const auto& no = out.refused();
                return site::event::refused{
                    {no.code, no.context, no.retry_after_ms, no.incarnation.value_or(incarnation{})}};
            },
            what);
    }
    // Takes what is free and what can be stolen, and gives it back.
    void steal_everything() {
        const lease::caller thief{site_id{"thief"}, incarnation{99, 1}};
        if (thefts_ == 0) {
            ledger::register_request hello;
            hello.who = thief;
            hello.protocol = 2;
            hello.digest = ledger_.space_digest();
            effects_of(ledger_.handle(hello, clock()));
        }
        for (bool more = true; more;) {
            lease::acquire ask;
            ask.who = thief;
            ask.want = set_.blocks;
            ask.max_spans = 64;
            const auto out = ledger_.handle(ask, clock());
            effects_of(out);
            more = out.ok() && !out.reply().leases.leases.empty();
            if (!more) break;
            for (const auto& l : out.reply().leases.leases) thefts_ += l.stolen ? 1 : 0;
        }
        effects_of(ledger_.handle(lease::release{thief, std::nullopt, false}, clock()));
    }
    void beat(const std::shared_ptr<process>& p) {
        if (!p->alive) return;
        if (const auto body = p->session.beat(); body && !p->asleep && !happens(set_.loss_percent)) {
            const std::int64_t sent = now_;
            after(5 + pick(300), [this, p, body = *body, sent] {
                const auto out = ledger_.handle(body, clock());
                effects_of(out);
                after(5 + pick(300), [this, p, out, sent] {
                    if (out.ok())
                        deliver(p, site::event::beat_replied{out.reply(), sent});
                    else
                        deliver(p, site::event::beat_refused{{out.refused().code, out.refused().context, 0, {}}});
                });
            });
        }
        after(p->session.beat_every_ms(), [this, p] { beat(p); });
    }

    // --- processes ---

    void start_process(std::uint64_t i) {
        auto& slot = sites_[i];
        auto p = std::make_shared<process>(process{
            .slot = i,
            .me = incarnation{i + 1, ++slot.starts},
            .session = site::session(session_settings(i, slot.starts > 1)),
        });
        slot.running = p;
        act(p, p->session.start(now_));
        after(100, [this, p] { timer(p); });
        beat(p);
    }
    site::session_settings session_settings(std::uint64_t i, bool take_over) const {
        site::session_settings s;
        s.hello.who = {site_id{sites_[i].name}, incarnation{i + 1, sites_[i].starts}};
        s.hello.protocol = 2;
        s.hello.digest = ledger_.space_digest();
        s.join.who = s.hello.who;
        s.join.pins = {layout(), "schedule", 1, {"f32"}};
        s.take_over = take_over;
        s.windows_per_step = set_.per_step;
        s.block_size = set_.block_size;
        s.groups = set_.groups;
        return s;
    }
    void timer(const std::shared_ptr<process>& p) {
        if (!p->alive) return;
        if (!p->asleep) deliver(p, site::event::timer{});
        after(250, [this, p] { timer(p); });
    }
    void deliver(const std::shared_ptr<process>& p, const site::event_t& e) {
        if (!p->alive) return;
        if (p->asleep) return p->missed.push_back(e);
        act(p, p->session.on(e, now_));
    }
    void harm(bool only_sleep) {
        auto& slot = sites_[static_cast<std::size_t>(pick(static_cast<std::int64_t>(sites_.size())))];
        if (!slot.running || slot.ended) return;
        ++harmed_;
        auto p = slot.running;
        if (only_sleep) {
            p->asleep = true;
            return after(10'000 + pick(3'000'000), [this, p] {
                p->asleep = false;
                while (!p->missed.empty() && p->alive) {
                    const auto e = p->missed.front();
                    p->missed.pop_front();
                    deliver(p, e);
                }
            });
        }
        p->alive = false;
        const std::uint64_t i = p->slot;
        after(pick(120'000), [this, i] { start_process(i); });
    }

    void act(const std::shared_ptr<process>& p, const std::vector<site::action_t>& actions) {
        for (const auto& a : actions) std::visit([&](const auto& one) { act_on(p, one); }, a);
    }
    void act_on(const std::shared_ptr<process>& p, const site::action::call& a) { call(p, a.what); }
    void act_on(const std::shared_ptr<process>& p, const site::action::fetch& a) {
        p->base = a.current;
        after(1'000 + pick(2'000), [this, p, g = a.current] { deliver(p, site::event::adopted{g, 1'000}); });
    }
    void act_on(const std::shared_ptr<process>& p, const site::action::make_first_model&) {
        after(500, [this, p] {
            ledger::blob_verified blob{
                site_id{sites_[p->slot].name}, std::string(64, 'a'), ledger::blob_purpose::init, {}};
            blob.facts.bytes = 100;
            effects_of(ledger_.handle(blob, clock()));
            deliver(p, site::event::uploaded{500});
        });
    }
    void act_on(const std::shared_ptr<process>& p, const site::action::train_group& a) {
        if (a.group == 0) {
            ++p->phase;
            p->groups.clear();
            p->ends.clear();
            p->trained = p->windows = 0;
            p->busy_until = now_;
        }
        p->groups.push_back(a.spans);
        if (set_.read_unreserved) p->groups.back() = whole_grants(p, a.spans);
        std::uint64_t windows = 0;
        for (const auto& s : p->groups.back()) windows += s.size() * set_.block_size;
        p->windows += windows;
        p->busy_until =
            std::max(p->busy_until, now_) + static_cast<std::int64_t>(windows) * sites_[p->slot].ms_per_window;
        p->ends.push_back(p->windows);
        const std::uint64_t phase = p->phase;
        // Steps straddle groups: one is trained when the step with its last window has all its windows.
        for (; p->trained < p->ends.size() && steps_up(p->ends[p->trained]) <= p->windows; ++p->trained)
            after(p->busy_until - now_, [this, p, phase, group = p->trained] {
                if (p->phase == phase && !p->groups.empty()) deliver(p, site::event::group_trained{group});
            });
    }
    /// Windows of the whole steps that hold so many windows.
    [[nodiscard]] std::uint64_t steps_up(std::uint64_t windows) const {
        return (windows + set_.per_step - 1) / set_.per_step * set_.per_step;
    }
    // The mutant: everything that is held of the leases it was given a part of.
    std::vector<span> whole_grants(const std::shared_ptr<process>& p, const std::vector<span>& given) const {
        std::vector<span> out;
        for (const auto& s : given)
            for (const auto& h : p->session.held().all())
                if (h.lease.start <= s.start && s.end <= h.lease.end) out.push_back({s.start, h.lease.end});
        return out;
    }
    void act_on(const std::shared_ptr<process>& p, const site::action::end_phase&) {
        const std::uint64_t phase = p->phase;
        after(std::max<std::int64_t>(1, p->busy_until - now_), [this, p, phase] {
            if (!p->alive || p->phase != phase || p->groups.empty()) return;
            const std::string id = sites_[p->slot].name + "-" + std::to_string(p->me.low) + "-" + std::to_string(phase);
            std::vector<std::uint64_t> read;
            for (const auto& group : p->groups)
                for (const auto& s : group)
                    for (std::uint64_t b = s.start.count; b < s.end.count; ++b) read.push_back(b);
            contributions_[id] = read;
            site::phase_done done;
            done.groups = p->groups.size();
            done.id = contribution_id{id};
            done.blob = {sha_of(id), 100};
            done.codec = "f32";
            done.tokens = p->windows;
            done.steps = set_.steps;
            done.loss_count = 1;
            done.compute_ms = static_cast<std::int64_t>(p->windows) * sites_[p->slot].ms_per_window;
            p->uploaded_windows = p->windows;
            p->uploaded_id = id;
            p->groups.clear();
            deliver(p, site::event::phase_finished{done});
        });
    }
    static std::string sha_of(const std::string& id) {
        std::string hex;
        for (const char c : id) {
            static constexpr char digits[] = "0123456789abcdef";
            hex += digits[(static_cast<unsigned char>(c) >> 4U) & 15U];
            hex += digits[static_cast<unsigned char>(c) & 15U];
        }
        hex.resize(64, '0');
        return hex;
    }
    void act_on(const std::shared_ptr<process>& p, const site::action::drop_phase&) {
        p->groups.clear();
        ++p->phase;
        after(10, [this, p] { deliver(p, site::event::phase_dropped{}); });
    }
    void act_on(const std::shared_ptr<process>& p, const site::action::upload& a) {
        after(1'000 + pick(3'000), [this, p, a] {
            const lease::caller who{site_id{sites_[p->slot].name}, p->me};
            const auto may = ledger_.handle(ledger::announce_upload{who, ledger::blob_purpose::delta, a.base}, clock());
            effects_of(may);
            if (!may.ok())
                return deliver(p, site::event::upload_failed{{may.refused().code, may.refused().context, 0, {}}});
            ledger::blob_verified blob{who.site, a.blob.sha256, ledger::blob_purpose::delta, {}};
            blob.facts.bytes = a.blob.bytes;
            blob.facts.metadata = contribution_claim{"world", who.site, a.base, p->uploaded_windows, set_.steps};
            blob.facts.scan = delta_scan{true, 1.0F, 1.0};
            effects_of(ledger_.handle(blob, clock()));
            deliver(p, site::event::uploaded{1'000});
        });
    }
    void act_on(const std::shared_ptr<process>& p, const site::action::evaluate&) {
        after(100, [this, p] { deliver(p, site::event::evaluated{}); });
    }
    void act_on(const std::shared_ptr<process>&, const site::action::settle&) {}
    void act_on(const std::shared_ptr<process>& p, const site::action::note& n) { sites_[p->slot].last_note = n.text; }
    void act_on(const std::shared_ptr<process>& p, const site::action::finish& f) {
        auto& slot = sites_[p->slot];
        p->alive = false;
        slot.last_note = "ended with " + std::to_string(f.exit_code) + ": " + f.reason;
        if (slot.running != p) return;  // an older process of this site found out that it is fenced
        if (f.exit_code == 0)
            slot.ended = true;
        else
            after(1'000 + pick(60'000), [this, i = p->slot] { start_process(i); });
    }

    world_settings set_;
    xoshiro256 chance_;
    ledger::machine ledger_;
    std::int64_t now_ = 0;
    std::uint64_t next_ = 0;
    std::map<std::pair<std::int64_t, std::uint64_t>, std::function<void()>> queue_;
    std::vector<site_slot> sites_;
    std::map<std::string, std::vector<std::uint64_t>> contributions_;
    std::set<std::string> merged_;
    std::uint64_t merges_ = 0;
    std::uint64_t harmed_ = 0;
    std::uint64_t thefts_ = 0;
    std::vector<std::string> violations_;
};

}  // namespace darlcore::test
