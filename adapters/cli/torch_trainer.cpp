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

double seconds_since(std::int64_t begun_ms) { return static_cast<double>(now_ms() - begun_ms) / 1000.0; }

// The process ended before the server said what became of the contribution.
constexpr const char* unknown_outcome = "unknown";

constexpr std::string_view step_names[] = {"adopt", "train", "reduce", "write", "upload", "poll", "settle"};

// Where the wall time of a phase went, for people.
std::string spent_text(const training::phase_seconds& s, double data_wait_s) {
    const double overhead = s.wall_s > 0 ? 100 * (s.wall_s - s.compute_s) / s.wall_s : 0;
    return fmt::format(
        "{:.2f} s = train {:.2f} + download {:.2f} + checkpoint {:.2f} + upload {:.2f} + evaluate {:.2f} + in vain "
        "{:.2f} + wait {:.2f}; overhead {:.1f} %, of the training {:.2f} % waits for data",
        s.wall_s, s.compute_s, s.download_s, s.checkpoint_s, s.upload_s, s.evaluate_s, s.lost_s, s.wait_s, overhead,
        s.compute_s > 0 ? 100 * data_wait_s / s.compute_s : 0.0);
}

}  // namespace

std::optional<phase_step> parse_phase_step(std::string_view name) {
    for (std::size_t i = 0; i < std::size(step_names); ++i)
        if (step_names[i] == name) return static_cast<phase_step>(i);
    return std::nullopt;
}

result<std::unique_ptr<torch_trainer>> torch_trainer::make(options o, training::communicator& ranks,
                                                           std::unique_ptr<training::window_source> corpus,
                                                           std::unique_ptr<training::window_source> held_out) {
    if (auto space = block_space::make(o.space); !space) return space.error();
    std::error_code failed;
    std::filesystem::create_directories(o.work_dir, failed);
    if (failed) return fail(errc::io_error, fmt::format("{}: {}", o.work_dir, failed.message()));
    std::unique_ptr<torch_trainer> made(new torch_trainer(std::move(o), ranks));
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
    cycle_begun_ms_ = now_ms();
    thread_ = std::thread([this] { serve(); });
}

void torch_trainer::stop() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    close_phase(unknown_outcome);
}

result<void> torch_trainer::adopt(const site::action::fetch& what, const std::string& wire_file) {
    step_begins(phase_step::adopt);
    const std::int64_t begun = now_ms();
    if (!checkpoints_)
        if (auto restored = restore(what.run_id); !restored) return restored;
    if (auto told = orders_.load(wire_file); !told) return told;
    if (auto loaded = trainer_->load_generation(wire_file); !loaded) return loaded;
    trainer_->set_position(what.global_step);
    adopted_step_ = what.global_step;
    base_ = what.current;
    run_id_ = what.run_id;
    const std::lock_guard lock(books_mutex_);
    seconds_.download_s += seconds_since(begun);
    return {};
}

// The run's name is known only now: moments of another run must not be taken up.
result<void> torch_trainer::restore(const std::string& run_id) {
    auto store = training::checkpoint_store::open(options_.work_dir + "/checkpoints", run_id, trainer_->layout_digest(),
                                                  options_.incarnation);
    if (!store) return store.error();
    auto metrics = training::metrics_file::open(options_.work_dir + "/metrics.jsonl",
                                                {run_id, options_.site, options_.incarnation});
    if (!metrics) return metrics.error();
    metrics_.emplace(*std::move(metrics));
    std::vector<std::string> notes;
    auto restored = store->restore(*trainer_, notes);
    for (const auto& note : notes) options_.log(note);
    if (!restored) return restored.error();
    checkpoints_.emplace(*std::move(store));
    const auto* named = *restored ? (*restored)->extra.find("sha256") : nullptr;
    remove_deltas_but(named != nullptr && named->as_string() != nullptr ? *named->as_string() : std::string());
    if (*restored) {
        options_.log(fmt::format("moments restored from {}", (*restored)->name));
        if (auto shared = orders_.share_moments(*trainer_); !shared) return shared;
    }
    checkpoints_->prune();
    return {};
}

// A contribution that the newest checkpoint does not name is over, or was never finished.
void torch_trainer::remove_deltas_but(const std::string& sha256) const {
    std::error_code ignored;
    std::vector<std::filesystem::path> old;
    for (const auto& entry : std::filesystem::directory_iterator(options_.work_dir, ignored)) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with("delta-") && entry.path() != delta_path(sha256)) old.push_back(entry.path());
    }
    for (const auto& path : old) std::filesystem::remove(path, ignored);
}

void torch_trainer::spent(client::transfer what, std::int64_t ms) {
    const std::lock_guard lock(books_mutex_);
    (what == client::transfer::download ? seconds_.download_s : seconds_.upload_s) += static_cast<double>(ms) / 1000.0;
    if (what == client::transfer::upload && open_) step_begins(phase_step::poll);
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
    return take_group(group);
}

// What is going to be read is written down first.
phase_group torch_trainer::take_group(site::action::train_group group) {
    if (options_.faults.spoil) options_.faults.spoil(group.spans);
    record_.read(phase_, group);
    read_.insert(read_.end(), group.spans.begin(), group.spans.end());
    next_counter_ = group.counter + 1;
    return phase_group{group.counter, group.spans};
}

training::after_step torch_trainer::stepped(const training::step_report& step) {
    if (step.step == 1) step_begins(phase_step::train);
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
    const auto summary = train(first);
    if (!summary || summary->ending != training::phase_ending::finished) {
        const std::lock_guard lock(books_mutex_);
        seconds_.lost_s += seconds_since(begun_ms);
    }
    if (!summary) return failed(summary.error());
    finish(*summary, begun_ms);
}

result<training::phase_summary> torch_trainer::train(const site::action::train_group& first) {
    const auto map = space_.map(first.epoch);
    if (!map) return map.error();
    if (auto told = orders_.phase(first.epoch, adopted_step_); !told) return told.error();
    trainer_->reload();
    trainer_->set_position(adopted_step_);
    bool given = false;
    training::phase_hooks hooks;
    hooks.group = [&]() -> training::next_group {
        if (given) return wait_for_group();
        given = true;
        return take_group(first);
    };
    hooks.stepped = [&](const training::step_report& step) { return stepped(step); };
    return trainer_->train_phase(*map, *corpus_, hooks);
}

// A phase that came to nothing because of this machine. Once may be bad luck; twice in a row it is the machine.
void torch_trainer::failed(const error& why) {
    options_.log("phase failed: " + to_text(why));
    report_(site::event::phase_failed{round::decline_reason::local_error, why.context});
    if ((why.code == errc::unreachable || ++failures_in_a_row_ >= 2) && options_.broken) options_.broken(to_text(why));
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
    step_begins(phase_step::reduce);
    auto done = write_contribution(summary);
    if (!done) return failed(done.error());
    failures_in_a_row_ = 0;
    done->compute_ms = now_ms() - begun_ms;
    for (; told_ < summary.groups; ++told_) report_(site::event::group_trained{told_});
    report_(site::event::phase_finished{*done});
}

result<site::phase_done> torch_trainer::write_contribution(const training::phase_summary& summary) {
    step_begins(phase_step::write);
    const std::int64_t begun = now_ms();
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
    if (auto named = formats::publish_file(path, delta_path(written->sha256)); !named) return named.error();
    const auto saved = checkpoints_->save(*trainer_, json::make_object({{"contribution", id},
                                                                        {"sha256", written->sha256},
                                                                        {"epoch", epoch_.count},
                                                                        {"next_counter", next_counter_}}));
    if (!saved) {
        std::error_code ignored;  // a contribution that no checkpoint names does not count
        std::filesystem::remove(delta_path(written->sha256), ignored);
        return saved.error();
    }
    record_.contribution(phase_, summary.groups, id, written->sha256);
    const auto norms = trainer_->norms();
    const double loss = summary.tokens > 0 ? summary.loss_sum / static_cast<double>(summary.tokens) : std::nan("");
    std::uint64_t blocks = 0;
    for (const auto& s : read_) blocks += s.size();
    options_.log(fmt::format("phase {}: {} steps, {} windows, loss {:.3f}, drift {:.4f}", phase_, summary.steps,
                             summary.windows, loss, norms.weights > 0 ? norms.delta / norms.weights : 0.0));
    {
        const std::lock_guard lock(books_mutex_);
        seconds_.compute_s += summary.train_s;
        seconds_.checkpoint_s += seconds_since(begun);
        open_ = open_phase{summary, norms, blocks, id, written->sha256, read_};
    }
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

// The phase's line is written when its outcome is known: only then is its wall time over.
void torch_trainer::close_phase(const std::string& outcome) {
    const std::lock_guard lock(books_mutex_);
    if (!open_) return;
    training::phase_seconds s = std::exchange(seconds_, {});
    const std::int64_t now = now_ms();
    s.wall_s = static_cast<double>(now - std::exchange(cycle_begun_ms_, now)) / 1000.0;
    s.wait_s = s.wall_s - s.compute_s - s.download_s - s.checkpoint_s - s.upload_s - s.evaluate_s - s.lost_s;
    auto members =
        training::phase_metrics(open_->summary, open_->norms, s, open_->blocks, open_->contribution, open_->positions);
    members.set("outcome", outcome);
    const std::string line = metric("phase", members);
    options_.log("time of the phase: " + spent_text(s, open_->summary.data_wait_s));
    if (options_.phase_line) options_.phase_line(line);
    std::error_code ignored;
    if (outcome != unknown_outcome) std::filesystem::remove(delta_path(open_->sha256), ignored);
    open_.reset();
}

result<site::event::evaluated> torch_trainer::evaluate() {
    if (!held_out_) return site::event::evaluated{};
    const std::int64_t begun = now_ms();
    if (auto told = orders_.evaluate(); !told) return told.error();
    trainer_->reload();
    const auto score = trainer_->evaluate(*held_out_, options_.eval_windows);
    if (!score) return score.error();
    {
        const std::lock_guard lock(books_mutex_);
        seconds_.evaluate_s += seconds_since(begun);
    }
    metric("eval", training::evaluation_metrics(*score, options_.held_out_digest));
    return site::event::evaluated{score->loss_sum, score->tokens, score->windows};
}

std::string torch_trainer::contribution_file(const std::string& sha256) {
    step_begins(phase_step::upload);
    return delta_path(sha256);
}

std::string torch_trainer::delta_path(const std::string& sha256) const {
    return fmt::format("{}/delta-{}.safetensors", options_.work_dir, sha256);
}

void torch_trainer::settle(const site::action::settle& outcome) {
    step_begins(phase_step::settle);
    record_.settled(outcome);
    close_phase(outcome.merged ? "merged" : outcome.reason);
    metric("event", json::make_object({{"text", outcome.merged ? "contribution merged" : "contribution turned down"},
                                       {"contribution", outcome.id.text},
                                       {"reason", outcome.reason}}));
}

std::string torch_trainer::metric(std::string_view kind, const json::value& members) {
    const std::lock_guard lock(metrics_mutex_);
    if (!metrics_) return {};
    return metrics_->write(kind, {base_.count, trainer_->position(), tokens_total_}, members);
}

}  // namespace darl
