// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "adapters/cli/run_record.hpp"
#include "backends/curl/site_driver.hpp"
#include "darlcore/block_space.hpp"

namespace darl {

/// A trainer whose model is a table with one counter per window: a phase adds 1 to the counter of every window it
/// trained. Merged by a plain sum, the global model itself then proves what was trained how often. What it reads it
/// notes first, in a run_record.
class toy_trainer : public darlcore::client::site_trainer {
public:
    struct options {
        darlcore::space_parameters space;
        std::string work_dir;  // contributions
        std::string record_path;
        std::string site;
        std::string incarnation;  // part of contribution names
        double seconds_per_window = 0.001;
        std::uint64_t seq_len = 1;
        /// For tests of the audit: each group also reads the block behind what was reserved for it.
        bool read_beyond = false;
    };

    static darlcore::result<std::unique_ptr<toy_trainer>> make(options o);
    ~toy_trainer() override;

    void start(std::function<void(darlcore::site::event_t)> report) override;
    darlcore::result<void> adopt(const darlcore::site::action::fetch& what, const std::string& wire_file) override;
    darlcore::result<darlcore::client::upload_job> first_model() override;
    void train_group(const darlcore::site::action::train_group& group) override;
    void end_phase() override;
    void drop_phase() override;
    darlcore::result<darlcore::site::event::evaluated> evaluate() override;
    std::string contribution_file(const std::string& sha256) override;
    void settle(const darlcore::site::action::settle& outcome) override;
    void stop() override;

    /// Layout digest of the table, for the join.
    static std::string layout_digest(std::uint64_t num_samples);

private:
    struct end_order {};
    struct drop_order {};
    using order = std::variant<darlcore::site::action::train_group, end_order, drop_order>;

    toy_trainer(options o, darlcore::block_space space) : options_(std::move(o)), space_(std::move(space)) {}
    void put(order o);
    void serve();
    void train(const darlcore::site::action::train_group& group);
    void finish_phase();
    darlcore::result<std::string> write_table(const std::string& path, const std::vector<float>& table,
                                              bool with_claim);

    options options_;
    darlcore::block_space space_;
    std::function<void(darlcore::site::event_t)> report_;
    run_record record_;
    std::thread thread_;
    std::mutex mutex_;
    std::condition_variable ready_;
    std::deque<order> orders_;
    std::atomic<bool> stopped_{false};
    std::atomic<bool> drop_{false};

    darlcore::generation base_;
    std::string run_id_;
    std::vector<float> delta_;
    std::uint64_t phase_ = 0;
    std::uint64_t groups_ = 0;
    std::uint64_t windows_ = 0;
    std::int64_t begun_ms_ = 0;
};

}  // namespace darl
