// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/trainer.hpp"

#include <chrono>
#include <cmath>
#include <cstring>
#include <future>

#include "backends/torch/optimiser.hpp"
#include "backends/torch/task.hpp"
#include "darlcore/phase.hpp"

namespace darlcore::training {
namespace {

using stopwatch = std::chrono::steady_clock;

double seconds_since(stopwatch::time_point start) {
    return std::chrono::duration<double>(stopwatch::now() - start).count();
}

constexpr std::int64_t bucket_elements = 25 * 1024 * 1024 / 4;

class memory_windows final : public window_source {
public:
    memory_windows(std::vector<std::int32_t> ids, std::size_t window) : ids_(std::move(ids)), window_(window) {
        DARLCORE_ASSERT(window_ >= 1 && ids_.size() % window_ == 0);
    }
    [[nodiscard]] std::uint64_t num_windows() const override { return ids_.size() / window_; }
    [[nodiscard]] std::size_t window_bytes() const override { return 4 * window_; }
    [[nodiscard]] result<void> read(std::uint64_t window, std::span<std::byte> out) const override {
        DARLCORE_ASSERT(window < num_windows() && out.size() == window_bytes());
        std::memcpy(out.data(), ids_.data() + window * window_, out.size());
        return {};
    }

private:
    std::vector<std::int32_t> ids_;
    std::size_t window_;
};

// One micro-batch in the model's form; the first `real` windows count, the others are filler.
struct micro_batch {
    std::vector<std::byte> bytes;
    std::size_t windows = 0, real = 0;
};

result<micro_batch> read_windows(const window_source& source, const std::vector<std::uint64_t>& windows,
                                 std::size_t real) {
    micro_batch batch;
    batch.windows = windows.size();
    batch.real = real;
    const std::size_t bytes = source.window_bytes();
    batch.bytes.resize(bytes * windows.size());
    for (std::size_t i = 0; i < windows.size(); ++i) {
        if (auto ok = source.read(windows[i], std::span(batch.bytes).subspan(i * bytes, bytes)); !ok) return ok.error();
    }
    return batch;
}

result<void> fits(const window_source& source, const task& work, const std::string& whose) {
    const std::size_t wanted = work.window_bytes(source.id_bytes());
    if (source.window_bytes() == wanted) return {};
    return fail(errc::invalid_argument, whose + " windows have " + std::to_string(source.window_bytes()) +
                                            " bytes, the model reads " + std::to_string(wanted) + ": seq_len differs");
}

at::Tensor loss_weights(const micro_batch& batch) {
    const at::Tensor weights = at::zeros({static_cast<std::int64_t>(batch.windows)}, at::kFloat);
    weights.narrow(0, 0, static_cast<std::int64_t>(batch.real)).fill_(1.0);
    return weights;
}

// What rank 0 tells the others before each step.
struct order {
    enum class verdict : std::uint64_t { step, done, drop } what = verdict::step;
    std::uint64_t groups_kept = 0;  ///< a phase that ends early keeps this many groups
    std::vector<phase_group> added;
};

std::vector<std::byte> encode(const order& o) {
    std::vector<std::uint64_t> words{static_cast<std::uint64_t>(o.what), o.groups_kept, o.added.size()};
    for (const phase_group& g : o.added) {
        words.push_back(g.counter);
        words.push_back(g.spans.size());
        for (const span& s : g.spans) {
            words.push_back(s.start.count);
            words.push_back(s.end.count);
        }
    }
    const auto bytes = std::as_bytes(std::span<const std::uint64_t>(words));
    return {bytes.begin(), bytes.end()};
}

// Only this program's own messages are read, so a malformed one is a bug.
order decode(const std::vector<std::byte>& bytes) {
    std::vector<std::uint64_t> words(bytes.size() / 8);
    std::memcpy(words.data(), bytes.data(), 8 * words.size());
    std::size_t next = 0;
    const auto take = [&] {
        DARLCORE_ASSERT_CMP(next, <, words.size());
        return words[next++];
    };
    order o;
    o.what = static_cast<order::verdict>(take());
    o.groups_kept = take();
    o.added.resize(take());
    for (phase_group& g : o.added) {
        g.counter = take();
        g.spans.resize(take());
        for (span& s : g.spans) {
            s.start = position{take()};
            s.end = position{take()};
        }
    }
    return o;
}

result<void> check(const trainer_settings& s) {
    if (auto ok = models::validate(s.model); !ok) return ok;
    const auto bad = [](const char* what) { return fail(errc::invalid_argument, std::string("train: ") + what); };
    if (s.batch == 0 || s.accumulate == 0) return bad("batch and accumulate must be at least 1");
    if (s.seq_len == 0) return bad("seq_len must be at least 1");
    if (s.model.kind == models::architecture::gpt2 && static_cast<std::int64_t>(s.seq_len) > s.model.positions_max)
        return bad("seq_len exceeds the model's position table");
    if (!(s.schedule.peak >= 0.0) || !std::isfinite(s.schedule.peak))
        return bad("the learning rate must be a number >= 0");
    if (!(s.clip_norm >= 0.0) || !(s.weight_decay >= 0.0) || !(s.eps > 0.0))
        return bad("clip_norm, weight_decay and eps must not be negative");
    if (!(s.beta1 >= 0.0 && s.beta1 < 1.0 && s.beta2 >= 0.0 && s.beta2 < 1.0))
        return bad("beta1 and beta2 must be in [0, 1)");
    return {};
}

optimiser_settings optimiser_of(const trainer_settings& s) {
    optimiser_settings o;
    o.kind = s.optimiser == optimiser_choice::adamw ? optimiser_kind::adamw : optimiser_kind::sgd_nesterov;
    o.beta1 = s.beta1;
    o.beta2 = s.beta2;
    o.eps = s.eps;
    o.weight_decay = s.weight_decay;
    return o;
}

// Pictures: the schedule's rates are those of a batch of 128 in the whole replica. Source: 60 section 3.
double rate_factor(const trainer_settings& s, std::size_t ranks) {
    if (s.model.kind != models::architecture::resnet18) return 1.0;
    return static_cast<double>(s.batch * s.accumulate * ranks) / 128.0;
}

std::span<float> host(const at::Tensor& flat) {
    return {torch_compat::f32(flat), static_cast<std::size_t>(flat.numel())};
}

}  // namespace

struct inner_trainer::state {
    state(const trainer_settings& s, communicator& c)
        : settings(s),
          ranks(c),
          work(s.model.kind == models::architecture::resnet18 ? make_image_task(s.model, s.label_smoothing)
                                                              : make_language_task(s.model, s.seq_len)),
          loaded(at::zeros_like(work->weights().flat())),
          update(optimiser_of(s), work->weights()) {}

    trainer_settings settings;
    communicator& ranks;
    std::unique_ptr<task> work;
    at::Tensor loaded;
    optimiser update;
    std::uint64_t global_step = 0;
};

// One phase under way on one rank.
class phase_run {
public:
    phase_run(inner_trainer::state& s, std::shared_ptr<const epoch_map> map, const window_source& source,
              const phase_hooks& hooks)
        : s_(s), map_(std::move(map)), source_(source), hooks_(hooks) {}

    result<phase_summary> run() {
        started_ = stopwatch::now();
        for (;;) {
            auto o = agree();
            if (!o) return abandon(o.error());
            if (o->what == order::verdict::drop) return end(phase_ending::dropped);
            if (o->what == order::verdict::done) return end(phase_ending::finished);
            const auto applied = step();
            if (!applied) return abandon(applied.error());
            if (!*applied) return end(phase_ending::not_finite);
        }
    }

private:
    struct step_sums {
        double loss_sum = 0.0;
        std::uint64_t windows = 0;
        double data_wait_s = 0.0;
    };

    // Rank 0 decides, the others follow; afterwards all ranks have the same plan.
    result<order> agree() {
        order mine;
        if (s_.ranks.rank() == 0) mine = decide();
        std::vector<std::byte> bytes = encode(mine);
        if (auto ok = s_.ranks.broadcast(bytes, 0); !ok) return ok.error();
        const order o = decode(bytes);
        groups_.insert(groups_.end(), o.added.begin(), o.added.end());
        if (o.groups_kept < groups_.size() || !o.added.empty() || !plan_) {
            if (o.groups_kept < groups_.size()) groups_.resize(static_cast<std::size_t>(o.groups_kept));
            if (auto ok = replan(); !ok) return ok.error();
        }
        return o;
    }

    result<void> replan() {
        pending_ = {};  // a read ahead belongs to the old plan
        auto plan = phase_plan::make(map_, groups_, {s_.settings.batch, s_.ranks.size(), s_.settings.accumulate});
        if (!plan) return plan.error();
        plan_ = std::make_unique<phase_plan>(std::move(*plan));
        reader_ = std::make_unique<phase_reader>(*plan_);
        return {};
    }

    // Asks for groups until the next step is whole or the phase has its end.
    order decide() {
        order o;
        std::uint64_t windows = plan_ ? plan_->num_windows() : 0;
        const std::uint64_t batch = s_.settings.batch * s_.ranks.size() * s_.settings.accumulate;
        while (!ended_ && !dropped_ && windows < (applied_ + 1) * batch) {
            next_group answer = hooks_.group();
            if (std::holds_alternative<phase_drop>(answer))
                dropped_ = true;
            else if (std::holds_alternative<group_end>(answer))
                ended_ = true;
            else {
                o.added.push_back(std::get<phase_group>(std::move(answer)));
                windows += window_count(*map_, o.added.back());
            }
        }
        o.groups_kept = groups_.size() + o.added.size();
        if (dropped_)
            o.what = order::verdict::drop;
        else if (ended_)
            finish_at_allowed_end(o, windows);
        return o;
    }

    void finish_at_allowed_end(order& o, std::uint64_t windows) {
        if (early_ && plan_) {
            const phase_end end = plan_->earliest_end(std::min(applied_, plan_->num_steps()));
            o.groups_kept = end.groups;
            o.added.clear();
            if (applied_ >= end.steps) o.what = order::verdict::done;
            return;
        }
        const std::uint64_t batch = s_.settings.batch * s_.ranks.size() * s_.settings.accumulate;
        if (applied_ * batch >= windows) o.what = order::verdict::done;
    }

    // One optimiser step; false when loss or gradient are not finite (nothing is applied then).
    result<bool> step() {
        const auto begin = stopwatch::now();
        auto sums = accumulate_gradients();
        if (!sums) return sums.error();
        const double tokens = static_cast<double>(sums->windows * s_.work->window_tokens());
        const double loss = sums->loss_sum / tokens;
        const double norm = norm_of(s_.work->weights().gradients()) / tokens;
        if (!std::isfinite(loss) || !std::isfinite(norm)) {
            note_problem(loss, norm);
            s_.work->weights().zero_gradients();
            return false;
        }
        const double lr =
            learning_rate(s_.settings.schedule, s_.global_step) * rate_factor(s_.settings, s_.ranks.size());
        const double clip =
            s_.settings.clip_norm > 0.0 && norm > s_.settings.clip_norm ? s_.settings.clip_norm / norm : 1.0;
        s_.update.step(s_.work->weights(), lr, clip / tokens);
        ++applied_;
        ++s_.global_step;
        count(*sums, loss, norm);
        if (s_.ranks.rank() == 0)
            report({applied_, s_.global_step, sums->windows, sums->windows * s_.work->window_tokens(), loss, lr, norm,
                    seconds_since(begin), sums->data_wait_s, plan_->groups_trained(applied_)});
        return true;
    }

    result<step_sums> accumulate_gradients() {
        step_sums sums;
        const std::uint64_t micro_batches = plan_->micro_batches(applied_);
        for (std::uint64_t j = 0; j < micro_batches; ++j) {
            const auto asked = stopwatch::now();
            auto batch = take(j);
            if (!batch) return batch.error();
            sums.data_wait_s += seconds_since(asked);
            read_ahead(j + 1 < micro_batches ? applied_ : applied_ + 1, j + 1 < micro_batches ? j + 1 : 0);
            const at::Tensor loss = s_.work->loss_sum(batch->bytes, loss_weights(*batch), true);
            loss.backward();
            sums.loss_sum += loss.item<double>();
            sums.windows += batch->real;
        }
        if (auto ok = reduce(sums); !ok) return ok.error();
        DARLCORE_ASSERT_CMP(sums.windows, ==, plan_->step_windows(applied_));
        return sums;
    }

    // Sums over the ranks: gradients in buckets, claims in f64 and i64.
    result<void> reduce(step_sums& sums) {
        if (s_.ranks.size() == 1) return {};
        const std::span<float> all = host(s_.work->weights().gradients());
        for (std::size_t first = 0; first < all.size(); first += bucket_elements) {
            const std::size_t n = std::min<std::size_t>(bucket_elements, all.size() - first);
            if (auto ok = s_.ranks.all_reduce_sum(all.subspan(first, n)); !ok) return ok;
        }
        if (auto ok = s_.ranks.all_reduce_sum(std::span<double>(&sums.loss_sum, 1)); !ok) return ok;
        auto windows = static_cast<std::int64_t>(sums.windows);
        if (auto ok = s_.ranks.all_reduce_sum(std::span<std::int64_t>(&windows, 1)); !ok) return ok;
        sums.windows = static_cast<std::uint64_t>(windows);
        return {};
    }

    result<micro_batch> read_now(std::uint64_t step, std::uint64_t j) {
        std::vector<std::uint64_t> windows;
        const std::size_t real = reader_->read(s_.ranks.rank(), step, j, windows);
        return read_windows(source_, windows, real);
    }

    // The window numbers are worked out here, only the reading runs beside the training.
    void read_ahead(std::uint64_t step, std::uint64_t j) {
        if (step >= plan_->num_steps() || plan_->step_windows(step) < plan_->global_batch_windows()) return;
        std::vector<std::uint64_t> windows;
        const std::size_t real = reader_->read(s_.ranks.rank(), step, j, windows);
        pending_ = std::async(std::launch::async, [this, windows = std::move(windows), real] {
            return read_windows(source_, windows, real);
        });
        pending_step_ = step;
        pending_batch_ = j;
    }

    result<micro_batch> take(std::uint64_t j) {
        if (pending_.valid() && pending_step_ == applied_ && pending_batch_ == j) return pending_.get();
        return read_now(applied_, j);
    }

    void count(const step_sums& sums, double loss, double norm) {
        summary_.steps = applied_;
        summary_.windows += sums.windows;
        summary_.tokens += sums.windows * s_.work->window_tokens();
        summary_.loss_sum += sums.loss_sum;
        summary_.last_loss = loss;
        summary_.last_grad_norm = norm;
        summary_.data_wait_s += sums.data_wait_s;
        summary_.groups = plan_->groups_trained(applied_);
    }

    void report(const step_report& r) {
        if (!hooks_.stepped) return;
        switch (hooks_.stepped(r)) {
            case after_step::go_on:
                return;
            case after_step::drop:
                dropped_ = true;
                return;
            case after_step::end_soon:
                ended_ = early_ = true;
                return;
        }
    }

    void note_problem(double loss, double norm) {
        summary_.problem = "step " + std::to_string(applied_ + 1) + " of the phase, rank " +
                           std::to_string(s_.ranks.rank()) + ": loss " + std::to_string(loss) + ", gradient norm " +
                           std::to_string(norm) + "; last finite values: loss " + std::to_string(summary_.last_loss) +
                           ", gradient norm " + std::to_string(summary_.last_grad_norm);
    }

    result<phase_summary> end(phase_ending how) {
        pending_ = {};
        summary_.ending = how;
        summary_.train_s = seconds_since(started_);
        if (how == phase_ending::finished) {
            if (auto ok = average_statistics(); !ok) return ok.error();
            return summary_;
        }
        const at::NoGradGuard guard;
        s_.work->weights().flat().copy_(s_.loaded);
        return summary_;
    }

    // Running statistics are no gradients: each rank has its own until the phase ends.
    result<void> average_statistics() {
        if (s_.ranks.size() == 1) return {};
        models::parameters& weights = s_.work->weights();
        for (std::size_t i = 0; i < weights.specs().size(); ++i) {
            if (weights.specs()[i].trained) continue;
            const std::span<float> values = weights.host(i);
            if (auto ok = s_.ranks.all_reduce_sum(values); !ok) return ok;
            for (float& x : values) x /= static_cast<float>(s_.ranks.size());
        }
        return {};
    }

    error abandon(const error& failure) {
        pending_ = {};
        s_.work->weights().zero_gradients();
        s_.ranks.abort();
        return failure;
    }

    inner_trainer::state& s_;
    std::shared_ptr<const epoch_map> map_;
    const window_source& source_;
    const phase_hooks& hooks_;
    std::vector<phase_group> groups_;
    std::unique_ptr<phase_plan> plan_;
    std::unique_ptr<phase_reader> reader_;
    std::future<result<micro_batch>> pending_;
    std::uint64_t pending_step_ = 0, pending_batch_ = 0;
    std::uint64_t applied_ = 0;
    bool ended_ = false, early_ = false, dropped_ = false;
    phase_summary summary_;
    stopwatch::time_point started_;
};

std::unique_ptr<window_source> memory_source(std::vector<std::int32_t> ids, std::size_t window) {
    return std::make_unique<memory_windows>(std::move(ids), window);
}

std::optional<double> evaluation::loss() const {
    if (tokens == 0 || !std::isfinite(loss_sum)) return std::nullopt;
    return loss_sum / static_cast<double>(tokens);
}

std::optional<double> evaluation::perplexity() const {
    const auto mean = loss();
    if (!mean) return std::nullopt;
    return std::exp(*mean);
}

inner_trainer::inner_trainer(std::unique_ptr<state> s) : state_(std::move(s)) {}
inner_trainer::inner_trainer(inner_trainer&&) noexcept = default;
inner_trainer& inner_trainer::operator=(inner_trainer&&) noexcept = default;
inner_trainer::~inner_trainer() = default;

result<inner_trainer> inner_trainer::create(const trainer_settings& settings, communicator& ranks) {
    if (auto ok = check(settings); !ok) return ok.error();
    return inner_trainer(std::make_unique<state>(settings, ranks));
}

const trainer_settings& inner_trainer::settings() const { return state_->settings; }
const std::vector<models::parameter_spec>& inner_trainer::specs() const { return state_->work->weights().specs(); }
std::string inner_trainer::layout_digest() const { return models::layout_digest(specs()); }

void inner_trainer::initialise() {
    const at::NoGradGuard guard;
    state_->work->weights().initialise(state_->settings.seed);
    state_->loaded.copy_(state_->work->weights().flat());
}

result<void> inner_trainer::load_generation(const std::string& path) {
    auto file = formats::safetensors_reader::open(path);
    if (!file) return file.error();
    auto read = models::read_weights(*file, specs(), host(state_->loaded));
    if (!read) return read.error();
    reload();
    return {};
}

void inner_trainer::reload() {
    const at::NoGradGuard guard;
    state_->work->weights().flat().copy_(state_->loaded);
    state_->work->weights().zero_gradients();
}

void inner_trainer::set_position(std::uint64_t global_step) { state_->global_step = global_step; }
std::uint64_t inner_trainer::position() const { return state_->global_step; }

result<phase_summary> inner_trainer::train_phase(std::shared_ptr<const epoch_map> map, const window_source& source,
                                                 const phase_hooks& hooks) {
    DARLCORE_ASSERT(map != nullptr && (state_->ranks.rank() != 0 || hooks.group));
    if (auto ok = fits(source, *state_->work, "the data's"); !ok) return ok.error();
    if (map->parameters().num_samples != source.num_windows()) {
        return fail(errc::corpus_mismatch, "the data has " + std::to_string(source.num_windows()) +
                                               " windows, the run " + std::to_string(map->parameters().num_samples));
    }
    state_->work->weights().zero_gradients();
    return phase_run(*state_, std::move(map), source, hooks).run();
}

result<models::written_file> inner_trainer::write_delta(const std::string& path, dtype type,
                                                        const formats::safetensors_metadata& metadata) const {
    const float *now = torch_compat::const_f32(state_->work->weights().flat()),
                *then = torch_compat::const_f32(state_->loaded);
    return models::write_weights(path, specs(), type, metadata, [=](std::uint64_t first, std::span<float> out) {
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = now[first + i] - then[first + i];
    });
}

delta_norms inner_trainer::norms() const {
    const at::NoGradGuard guard;
    const at::Tensor& now = state_->work->weights().flat();
    return {norm_of(now - state_->loaded), norm_of(now)};
}

result<models::written_file> inner_trainer::write_weights(const std::string& path, dtype type,
                                                          const formats::safetensors_metadata& metadata) const {
    const std::span<const float> all = weights();
    return models::write_weights(path, specs(), type, metadata, [all](std::uint64_t first, std::span<float> out) {
        std::copy_n(all.data() + first, out.size(), out.data());
    });
}

std::span<const float> inner_trainer::weights() const { return host(state_->work->weights().flat()); }

result<evaluation> inner_trainer::evaluate(const window_source& source, std::uint64_t windows_max) {
    if (auto ok = fits(source, *state_->work, "the held-out"); !ok) return ok.error();
    const at::NoGradGuard guard;
    const std::uint64_t windows = std::min(windows_max, source.num_windows());
    double sums[2] = {0.0, 0.0};
    std::vector<std::uint64_t> mine;
    for (std::uint64_t w = state_->ranks.rank(); w < windows; w += state_->ranks.size()) {
        mine.push_back(w);
        if (mine.size() < state_->settings.batch && w + state_->ranks.size() < windows) continue;
        auto batch = read_windows(source, mine, mine.size());
        if (!batch) return batch.error();
        sums[0] += state_->work->loss_sum(batch->bytes, loss_weights(*batch), false).item<double>();
        sums[1] += state_->work->correct();
        mine.clear();
    }
    if (auto ok = state_->ranks.all_reduce_sum(std::span<double>(sums)); !ok) return ok.error();
    return evaluation{sums[0], windows * state_->work->window_tokens(), windows,
                      static_cast<std::uint64_t>(std::llround(sums[1]))};
}

std::uint64_t inner_trainer::updates() const { return static_cast<std::uint64_t>(state_->update.updates()); }
std::span<const float> inner_trainer::first_moments() const { return host(state_->update.first()); }
std::span<const float> inner_trainer::second_moments() const {
    if (!state_->update.second().defined()) return {};
    return host(state_->update.second());
}

void inner_trainer::restore_moments(std::span<const float> first, std::span<const float> second,
                                    std::uint64_t updates) {
    DARLCORE_ASSERT(first.size() == first_moments().size() && second.size() == second_moments().size());
    std::copy(first.begin(), first.end(), host(state_->update.first()).begin());
    if (!second.empty()) std::copy(second.begin(), second.end(), host(state_->update.second()).begin());
    state_->update.set_updates(static_cast<std::int64_t>(updates));
}

void inner_trainer::cool() { state_->update.cool(); }

}  // namespace darlcore::training
