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
        /// Contribution id -> counters that were read for it, noted when its phase ended.
        std::map<std::string, std::vector<std::uint64_t>>& read_record;
        std::string space_digest;
        std::string run_id;
    };
    /// `is_twin`: a second process under the name of that site; it is not started again when it ends.
    simulated_site(surroundings around, std::uint64_t number, std::uint64_t seed, bool is_twin = false);

    void start();
    void start(bool take_over);
    void kill() { me_.kill(); }
    /// From now on no group of it is ever trained to its end; it goes on beating.
    void hang() { is_hung_ = true; }
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
    void announce(const storage::blob_facts& facts, const std::string& bytes);
    void send_part(const storage::upload_status& at, const storage::blob_facts& facts, const std::string& bytes);
    void upload_failed(errc code, const std::string& why) { deliver(site::event::upload_failed{{code, why, 0, {}}}); }
    [[nodiscard]] lease::caller caller() const { return {site_id{name_}, incarnation_}; }
    [[nodiscard]] site::session_settings settings_of_session(bool take_over) const;
    [[nodiscard]] std::vector<span> whole_grants(const std::vector<span>& given) const;
    std::int64_t pick(std::int64_t below) {
        return static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(below)));
    }

    /// One question to the server: `at_server(reply)` runs there; what `reply` is called with is delivered here. An
    /// answer that does not come within the limit is a null pointer.
    template <class Answer, class AtServer, class Reply>
    void ask(std::int64_t limit_ms, AtServer at_server, Reply reply);
    template <class Request, class Reply>
    void ask_ledger(const Request& request, std::int64_t limit_ms, Reply reply);

    surroundings around_;
    std::uint64_t number_;
    std::string name_;
    bool is_twin_;
    rng random_;
    process me_;
    std::int64_t ms_per_window_;
    std::unique_ptr<site::session> session_;
    incarnation incarnation_;
    bool ended_ = false;
    bool is_hung_ = false;
    std::string last_note_;
    // the trainer
    struct group {
        epoch_index epoch;
        std::vector<span> spans;
        std::uint64_t end = 0;  // windows of the phase until here
    };
    std::uint64_t phase_ = 0;
    std::vector<group> groups_;
    std::int64_t busy_until_ms_ = 0;
    std::uint64_t windows_ = 0;
    std::size_t trained_ = 0;  // groups
    generation base_;
    std::map<std::string, std::string> files_;  ///< finished deltas by digest
};

}  // namespace darlcore::sim
