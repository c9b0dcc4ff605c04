// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "adapters/cli/rank_group.hpp"
#include "adapters/cli/run_record.hpp"
#include "backends/curl/site_driver.hpp"
#include "backends/torch/checkpoint.hpp"
#include "backends/torch/metrics_file.hpp"
#include "backends/torch/trainer.hpp"
#include "darlcore/block_space.hpp"

namespace darl {

/// The steps of a phase (60 section 6), by the names that tests use.
enum class phase_step : std::uint8_t { adopt, train, reduce, write, upload, poll, settle };
/// Errors: nothing for an unknown name.
std::optional<phase_step> parse_phase_step(std::string_view name);

/// What tests put between the trainer and its steps; empty outside of them.
struct trainer_faults {
    std::function<void(phase_step)> at;                       // when a step begins
    std::function<void(std::vector<darlcore::span>&)> spoil;  // what a group really trains
};

/// The site's trainer on libtorch: the inner loop in a thread of its own, fed with reserved groups. With several ranks
/// this is the leader; the others follow its orders.
class torch_trainer : public darlcore::client::site_trainer {
public:
    struct options {
        darlcore::training::trainer_settings settings;
        darlcore::space_parameters space;
        std::string site;
        std::string incarnation;
        std::string work_dir;
        std::uint64_t eval_windows = 512;
        std::string held_out_digest;
        std::uint64_t log_every = 10;
        double throttle = 0;  // slower by this factor; 0 = off
        std::function<void(std::string_view)> log;
        std::function<void(const std::string&)> phase_line;  // each finished phase as JSON; may be empty
        std::function<void(const std::string&)> broken;      // this process cannot train any more: it is to end with 1
        trainer_faults faults;
    };

    /// `held_out` may be null. Restores moments from the newest checkpoint of this run.
    static darlcore::result<std::unique_ptr<torch_trainer>> make(
        options o, darlcore::training::communicator& ranks, std::unique_ptr<darlcore::training::window_source> corpus,
        std::unique_ptr<darlcore::training::window_source> held_out);
    ~torch_trainer() override;

    /// Where the group counter of the restored checkpoint stands; epoch 0, counter 0 without one.
    [[nodiscard]] darlcore::epoch_index restored_epoch() const { return epoch_; }
    [[nodiscard]] std::uint64_t restored_counter() const { return next_counter_; }
    [[nodiscard]] std::string layout_digest() const { return trainer_->layout_digest(); }

    void start(std::function<void(darlcore::site::event_t)> report) override;
    darlcore::result<void> adopt(const darlcore::site::action::fetch& what, const std::string& wire_file) override;
    darlcore::result<darlcore::client::upload_job> first_model() override;
    void train_group(const darlcore::site::action::train_group& group) override;
    void end_phase() override;
    void drop_phase() override;
    darlcore::result<darlcore::site::event::evaluated> evaluate() override;
    std::string contribution_file(const std::string& sha256) override;
    void settle(const darlcore::site::action::settle& outcome) override;
    void spent(darlcore::client::transfer what, std::int64_t ms) override;
    void stop() override;

private:
    torch_trainer(options o, darlcore::training::communicator& ranks)
        : options_(std::move(o)), space_(darlcore::block_space::make(options_.space).value()), orders_(ranks) {}

    /// A finished phase whose outcome is not known yet.
    struct open_phase {
        darlcore::training::phase_summary summary;
        darlcore::training::delta_norms norms;
        std::uint64_t blocks = 0;
        std::string contribution;
        std::string sha256;
        std::vector<darlcore::span> positions;
    };

    void serve();
    void run_phase(const darlcore::site::action::train_group& first);
    darlcore::result<darlcore::training::phase_summary> train(const darlcore::site::action::train_group& first);
    darlcore::phase_group take_group(darlcore::site::action::train_group group);
    darlcore::result<void> restore(const std::string& run_id);
    void failed(const darlcore::error& why);
    void close_phase(const std::string& outcome);
    void step_begins(phase_step step) const {
        if (options_.faults.at) options_.faults.at(step);
    }
    darlcore::training::next_group wait_for_group();
    darlcore::training::after_step stepped(const darlcore::training::step_report& step);
    void finish(const darlcore::training::phase_summary& summary, std::int64_t begun_ms);
    darlcore::result<darlcore::site::phase_done> write_contribution(const darlcore::training::phase_summary& summary);
    void remove_deltas_but(const std::string& sha256) const;
    [[nodiscard]] std::string delta_path(const std::string& sha256) const;
    std::string metric(std::string_view kind, const darlcore::json::value& members);

    options options_;
    darlcore::block_space space_;
    rank_orders orders_;
    std::optional<darlcore::training::inner_trainer> trainer_;
    std::unique_ptr<darlcore::training::window_source> corpus_;
    std::unique_ptr<darlcore::training::window_source> held_out_;
    std::optional<darlcore::training::checkpoint_store> checkpoints_;
    run_record record_;
    std::optional<darlcore::training::metrics_file> metrics_;
    std::mutex metrics_mutex_;
    std::function<void(darlcore::site::event_t)> report_;
    std::thread thread_;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<darlcore::site::action::train_group> groups_;
    bool end_ = false;
    bool drop_ = false;
    bool stop_ = false;
    bool in_phase_ = false;

    std::string run_id_;
    darlcore::generation base_;
    darlcore::epoch_index epoch_;
    std::uint64_t next_counter_ = 0;
    std::uint64_t phase_ = 0;
    std::size_t told_ = 0;
    std::vector<darlcore::span> read_;  // positions given to the running phase
    std::uint64_t tokens_total_ = 0;
    std::uint64_t adopted_step_ = 0;
    int failures_in_a_row_ = 0;

    std::mutex books_mutex_;  // of the two below: written by the trainer's, the transfers' and the driver's thread
    darlcore::training::phase_seconds seconds_;
    std::optional<open_phase> open_;
    std::int64_t cycle_begun_ms_ = 0;  // the last phase's books were closed
};

}  // namespace darl
