// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/torch_trainer.hpp"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <span>
#include <variant>

#include <fmt/format.h>

namespace darl {
namespace {

using namespace darlcore;

std::int64_t now_ms() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}
}  // namespace

result<std::unique_ptr<torch_trainer>> torch_trainer::make(options o, training::communicator& ranks,
                                                           std::unique_ptr<training::window_source> corpus,
                                                           std::unique_ptr<training::window_source> held_out) {
    if (auto space = block_space::make(o.space); !space) return space.error();
    std::error_code failed;
    std::filesystem::create_directories(o.work_dir, failed);
    if (failed) return fail(errc::io_error, fmt::format("{}: {}", o.work_dir, failed.message()));
    std::unique_ptr<torch_trainer> made(new torch_trainer(std::move(o)));
    auto trainer = training::inner_trainer::create(made->options_.settings, ranks);
    if (!trainer) return trainer.error();
    made->trainer_.emplace(*std::move(trainer));
    made->corpus_ = std::move(corpus);
    made->held_out_ = std::move(held_out);
    if (auto opened = made->record_.open(made->options_.work_dir + "/record.jsonl"); !opened) return opened.error();
    return made;
}

torch_trainer::~torch_trainer() { stop(); }

void torch_trainer::start(std::function<void(site::event_t)> report) {
    report_ = std::move(report);
    thread_ = std::thread([this] { serve(); });
}

void torch_trainer::stop() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
}

result<void> torch_trainer::adopt(const site::action::fetch& what, const std::string& wire_file) {
    if (!checkpoints_) {
        // the run's name is known only now: moments of another run must not be taken up
        auto store = training::checkpoint_store::open(options_.work_dir + "/checkpoints", what.run_id,
                                                      trainer_->layout_digest(), options_.incarnation);
        if (!store) return store.error();
        checkpoints_.emplace(*std::move(store));
        auto metrics = training::metrics_file::open(options_.work_dir + "/metrics.jsonl",
                                                    {what.run_id, options_.site, options_.incarnation});
        if (!metrics) return metrics.error();
        metrics_.emplace(*std::move(metrics));
        std::vector<std::string> notes;
        auto restored = checkpoints_->restore(*trainer_, notes);
        for (const auto& note : notes) options_.log(note);
        if (!restored) return restored.error();
        if (*restored) {
            options_.log(fmt::format("moments restored from {}", (*restored)->name));
            if (const auto* counter = (*restored)->extra.find("next_counter"))
                next_counter_ = counter->as_u64().value_or(0);
        }
        checkpoints_->prune();
    }
    if (auto loaded = trainer_->load_generation(wire_file); !loaded) return loaded;
    trainer_->set_position(what.global_step);
    base_ = what.current;
    run_id_ = what.run_id;
    return {};
}

result<client::upload_job> torch_trainer::first_model() {
    trainer_->initialise();
    const std::string path = options_.work_dir + "/init.safetensors";
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
    const auto written = trainer_->write_weights(path, dtype::f32, {{"darl.layout_digest", trainer_->layout_digest()}});
    if (!written) return written.error();
    client::upload_job job;
    job.path = path;
    job.sha256 = written->sha256;
    job.bytes = written->bytes;
    job.purpose = "init";
    job.codec = "f32";
    return job;
}

void torch_trainer::train_group(const site::action::train_group& group) {
    {
        const std::lock_guard lock(mutex_);
        if (group.group == 0) end_ = drop_ = false;
        groups_.push_back(group);
    }
    changed_.notify_all();
}
void torch_trainer::end_phase() {
    {
        const std::lock_guard lock(mutex_);
        end_ = true;
    }
    changed_.notify_all();
}
void torch_trainer::drop_phase() {
    bool idle = false;
    {
        const std::lock_guard lock(mutex_);
        drop_ = true;
        groups_.clear();
        idle = !in_phase_;
    }
    changed_.notify_all();
    if (idle) report_(site::event::phase_dropped{});
}

void torch_trainer::serve() {
    while (true) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stop_ || !groups_.empty(); });
        if (stop_) return;
        const auto first = groups_.front();
        groups_.pop_front();
        in_phase_ = true;
        lock.unlock();
        run_phase(first);
        lock.lock();
        in_phase_ = false;
    }
}

training::next_group torch_trainer::wait_for_group() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stop_ || drop_ || end_ || !groups_.empty(); });
    if (stop_ || drop_) return training::phase_drop{};
    if (groups_.empty()) return training::group_end{};
    const auto group = groups_.front();
    groups_.pop_front();
    lock.unlock();
    record_.read(phase_, group);
    read_.insert(read_.end(), group.spans.begin(), group.spans.end());
    next_counter_ = group.counter + 1;
    return phase_group{group.counter, group.spans};
}

training::after_step torch_trainer::stepped(const training::step_report& step) {
    tokens_total_ += step.tokens;
    for (; told_ < step.groups_trained; ++told_) report_(site::event::group_trained{told_});
    if (step.step % options_.log_every == 0) metric("step", training::step_metrics(step));
    if (options_.throttle > 1) {
        // stands for a slower machine; nothing waits for it by the clock
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, std::chrono::duration<double>(step.step_s * (options_.throttle - 1)),
                          [&] { return stop_ || drop_; });
    }
    const std::lock_guard lock(mutex_);
    return stop_ || drop_ ? training::after_step::drop : training::after_step::go_on;
}

void torch_trainer::run_phase(const site::action::train_group& first) {
    const std::int64_t begun_ms = now_ms();
    ++phase_;
    told_ = 0;
    read_.clear();
    epoch_ = first.epoch;
    const auto map = space_.map(first.epoch);
    if (!map) return report_(site::event::phase_failed{round::decline_reason::local_error, map.error().context});
    trainer_->reload();
    bool given = false;
    training::phase_hooks hooks;
    hooks.group = [&]() -> training::next_group {
        if (given) return wait_for_group();
        given = true;
        record_.read(phase_, first);
        read_ = first.spans;
        next_counter_ = first.counter + 1;
        return phase_group{first.counter, first.spans};
    };
    hooks.stepped = [&](const training::step_report& step) { return stepped(step); };
    const auto summary = trainer_->train_phase(*map, *corpus_, hooks);
    if (!summary)
        return report_(site::event::phase_failed{round::decline_reason::local_error, summary.error().context});
    finish(*summary, begun_ms);
}

void torch_trainer::finish(const training::phase_summary& summary, std::int64_t begun_ms) {
    if (summary.ending == training::phase_ending::dropped) {
        bool ended = false;
        {
            const std::lock_guard lock(mutex_);
            ended = stop_;
        }
        if (!ended) report_(site::event::phase_dropped{});
        return;
    }
    if (summary.ending == training::phase_ending::not_finite) {
        options_.log("phase not finite: " + summary.problem);
        return report_(site::event::phase_failed{round::decline_reason::not_finite, summary.problem});
    }
    auto done = write_contribution(summary);
    if (!done) return report_(site::event::phase_failed{round::decline_reason::local_error, done.error().context});
    done->compute_ms = now_ms() - begun_ms;
    for (; told_ < summary.groups; ++told_) report_(site::event::group_trained{told_});
    report_(site::event::phase_finished{*done});
}

result<site::phase_done> torch_trainer::write_contribution(const training::phase_summary& summary) {
    const std::string id = fmt::format("{}-{}-p{}", options_.site, options_.incarnation.substr(0, 8), phase_);
    const std::string path = fmt::format("{}/{}.safetensors", options_.work_dir, id);
    const auto written = trainer_->write_delta(path, dtype::bf16,
                                               {{"darl.run_id", run_id_},
                                                {"darl.site", options_.site},
                                                {"darl.base_generation", std::to_string(base_.count)},
                                                {"darl.tokens", std::to_string(summary.tokens)},
                                                {"darl.steps", std::to_string(summary.steps)},
                                                {"darl.codec", "bf16"},
                                                {"darl.layout_digest", trainer_->layout_digest()}});
    if (!written) return written.error();
    if (auto named = formats::publish_file(path, contribution_file(written->sha256)); !named) return named.error();
    const auto saved = checkpoints_->save(*trainer_, json::make_object({{"contribution", id},
                                                                        {"sha256", written->sha256},
                                                                        {"epoch", epoch_.count},
                                                                        {"next_counter", next_counter_}}));
    if (!saved) return saved.error();
    record_.contribution(phase_, summary.groups, id, written->sha256);
    const auto norms = trainer_->norms();
    const double loss = summary.tokens > 0 ? summary.loss_sum / static_cast<double>(summary.tokens) : std::nan("");
    training::phase_seconds seconds;
    seconds.compute_s = summary.train_s;
    std::uint64_t blocks = 0;
    for (const auto& s : read_) blocks += s.size();
    metric("phase", training::phase_metrics(summary, norms, seconds, blocks, id, read_));
    options_.log(fmt::format("phase {}: {} steps, {} windows, loss {:.3f}, drift {:.4f}", phase_, summary.steps,
                             summary.windows, loss, norms.weights > 0 ? norms.delta / norms.weights : 0.0));
    site::phase_done done;
    done.groups = summary.groups;
    done.id = contribution_id{id};
    done.blob = {written->sha256, written->bytes};
    done.codec = "bf16";
    done.tokens = summary.tokens;
    done.steps = summary.steps;
    done.loss_sum = summary.loss_sum;
    done.loss_count = summary.tokens;
    return done;
}

result<site::event::evaluated> torch_trainer::evaluate() {
    if (!held_out_) return site::event::evaluated{};
    trainer_->reload();
    const auto score = trainer_->evaluate(*held_out_, options_.eval_windows);
    if (!score) return score.error();
    metric("eval", training::evaluation_metrics(*score, ""));
    return site::event::evaluated{score->loss_sum, score->tokens, score->windows};
}

std::string torch_trainer::contribution_file(const std::string& sha256) {
    return fmt::format("{}/delta-{}.safetensors", options_.work_dir, sha256);
}

void torch_trainer::settle(const site::action::settle& outcome) {
    record_.settled(outcome);
    metric("event", json::make_object({{"text", outcome.merged ? "contribution merged" : "contribution turned down"},
                                       {"contribution", outcome.id.text},
                                       {"reason", outcome.reason}}));
}

void torch_trainer::metric(std::string_view kind, const json::value& members) {
    const std::lock_guard lock(metrics_mutex_);
    if (metrics_) metrics_->write(kind, {base_.count, trainer_->position(), tokens_total_}, members);
}

}  // namespace darl
