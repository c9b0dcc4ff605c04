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

#include "adapters/cli/run_record.hpp"
#include "backends/curl/site_driver.hpp"
#include "backends/torch/checkpoint.hpp"
#include "backends/torch/metrics_file.hpp"
#include "backends/torch/trainer.hpp"
#include "darlcore/block_space.hpp"

namespace darl {

/// The site's trainer on libtorch: the inner loop in a thread of its own, fed with reserved groups.
class torch_trainer : public darlcore::client::site_trainer {
public:
    struct options {
        darlcore::training::trainer_settings settings;
        darlcore::space_parameters space;
        std::string site;
        std::string incarnation;
        std::string work_dir;
        std::uint64_t eval_windows = 512;
        std::uint64_t log_every = 10;
        double throttle = 0;  // slower by this factor; 0 = off
        std::function<void(std::string_view)> log;
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
    void stop() override;

private:
    explicit torch_trainer(options o)
        : options_(std::move(o)), space_(darlcore::block_space::make(options_.space).value()) {}

    void serve();
    void run_phase(const darlcore::site::action::train_group& first);
    darlcore::training::next_group wait_for_group();
    darlcore::training::after_step stepped(const darlcore::training::step_report& step);
    void finish(const darlcore::training::phase_summary& summary, std::int64_t begun_ms);
    darlcore::result<darlcore::site::phase_done> write_contribution(const darlcore::training::phase_summary& summary);
    void metric(std::string_view kind, const darlcore::json::value& members);

    options options_;
    darlcore::block_space space_;
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
};

}  // namespace darl
