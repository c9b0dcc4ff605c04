// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/sim/ledger_node.hpp"
#include "backends/sim/network.hpp"
#include "backends/sim/simulation.hpp"
#include "darlcore/site/session.hpp"

namespace darlcore::sim {

/// A site: the real session over the simulated network, with a trainer that only notes what it read. A process may be
/// killed and started again under a new incarnation.
class simulated_site {
public:
    struct surroundings {
        event_loop& loop;
        network& net;
        ledger_node& server;
        const simulation_settings& set;
        /// Contribution id -> blocks that were read for it, written at the read.
        std::map<std::string, std::vector<std::uint64_t>>& read_record;
        std::string space_digest;
        std::string run_id;
    };
    simulated_site(surroundings around, std::uint64_t number, std::uint64_t seed);

    void start();
    void kill() { me_.kill(); }
    process& me() { return me_; }
    [[nodiscard]] bool ended() const { return ended_; }
    [[nodiscard]] const std::string& last_note() const { return last_note_; }

private:
    void deliver(const site::event_t& e);
    void act(const std::vector<site::action_t>& actions);
    void act_on(const site::action::call& a);
    void act_on(const site::action::fetch& a);
    void act_on(const site::action::make_first_model& a);
    void act_on(const site::action::train_group& a);
    void act_on(const site::action::end_phase& a);
    void act_on(const site::action::drop_phase& a);
    void act_on(const site::action::upload& a);
    void act_on(const site::action::evaluate& a);
    void act_on(const site::action::settle&) {}
    void act_on(const site::action::note& a) { last_note_ = a.text; }
    void act_on(const site::action::finish& a);
    void finish_phase(std::uint64_t phase);
    void timer();
    void beat();
    [[nodiscard]] site::session_settings settings_of_session() const;
    [[nodiscard]] std::vector<span> whole_grants(const std::vector<span>& given) const;
    std::int64_t pick(std::int64_t below) {
        return static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(below)));
    }

    /// One question to the server: `ask` runs there, its answer is delivered here; an answer that does not come is a
    /// timeout.
    template <class Request, class Reply>
    void ask(const Request& request, std::int64_t limit_ms, Reply reply);

    surroundings around_;
    std::uint64_t number_;
    std::string name_;
    rng random_;
    process me_;
    std::int64_t ms_per_window_;
    std::unique_ptr<site::session> session_;
    incarnation incarnation_;
    bool ended_ = false;
    std::string last_note_;
    // the trainer
    std::uint64_t phase_ = 0;
    std::vector<std::vector<span>> groups_;
    std::int64_t busy_until_ms_ = 0;
    std::uint64_t windows_ = 0;
    std::uint64_t uploaded_windows_ = 0;
};

}  // namespace darlcore::sim
