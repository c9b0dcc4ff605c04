// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "backends/torch/trainer.hpp"
#include "darlcore/random.hpp"

namespace darlcore::test {

inline models::model_config tiny_model() {
    models::model_config c;
    c.vocab_size = 64;
    c.hidden_size = 16;
    c.layers = 2;
    c.heads = 2;
    c.kv_heads = 1;
    c.head_dim = 8;
    c.ffn_size = 24;
    c.positions_max = 64;
    return c;
}

inline training::trainer_settings tiny_settings() {
    training::trainer_settings s;
    s.model = tiny_model();
    s.seed = 11;
    s.seq_len = 8;
    s.batch = 2;
    s.schedule = {3e-3, 5, 1000, 0.1, 0.1};
    return s;
}

/// Windows of ids that are drawn from a seed; the same everywhere.
inline std::unique_ptr<training::window_source> drawn_windows(std::uint64_t windows, std::size_t window,
                                                              std::uint32_t vocab, std::uint32_t seed = 1) {
    const std::uint32_t key[] = {seed};
    mt19937 engine(key);
    std::vector<std::int32_t> ids(windows * window);
    for (std::int32_t& id : ids) id = static_cast<std::int32_t>(engine.draw(vocab));
    return training::memory_source(std::move(ids), window);
}

inline std::shared_ptr<const epoch_map> space(std::uint64_t windows, std::uint64_t block) {
    space_parameters p;
    p.num_samples = windows;
    p.block_size = block;
    p.seed = 5;
    return std::make_shared<const epoch_map>(p, epoch_index{0});
}

/// Groups of `blocks` positions each, one after the other.
inline std::vector<phase_group> groups_of(std::uint64_t positions, std::uint64_t blocks) {
    std::vector<phase_group> out;
    for (std::uint64_t p = 0; p < positions; p += blocks)
        out.push_back({out.size(), {make_span(p, std::min(p + blocks, positions))}});
    return out;
}

/// Hooks that hand out these groups and keep the reports.
struct scripted {
    explicit scripted(std::vector<phase_group> g) : waiting(g.begin(), g.end()) {
        hooks.group = [this]() -> training::next_group {
            if (waiting.empty()) return training::group_end{};
            phase_group next = waiting.front();
            waiting.pop_front();
            return next;
        };
        hooks.stepped = [this](const training::step_report& r) {
            reports.push_back(r);
            return decide ? decide(r) : training::after_step::go_on;
        };
    }
    scripted(const scripted&) = delete;
    scripted& operator=(const scripted&) = delete;
    ~scripted() = default;

    std::deque<phase_group> waiting;
    std::vector<training::step_report> reports;
    std::function<training::after_step(const training::step_report&)> decide;
    training::phase_hooks hooks;
};

/// A source that may be told to fail.
class failing_source final : public training::window_source {
public:
    explicit failing_source(std::unique_ptr<training::window_source> inner) : inner_(std::move(inner)) {}
    [[nodiscard]] std::uint64_t num_windows() const override { return inner_->num_windows(); }
    [[nodiscard]] std::size_t window_bytes() const override { return inner_->window_bytes(); }
    [[nodiscard]] result<void> read(std::uint64_t window, std::span<std::byte> out) const override {
        if (window == fail_at) return fail(errc::io_error, "window " + std::to_string(window) + " cannot be read");
        return inner_->read(window, out);
    }

private:
    std::unique_ptr<training::window_source> inner_;

public:
    std::uint64_t fail_at = UINT64_MAX;
};

inline std::vector<float> copy_of(std::span<const float> values) { return {values.begin(), values.end()}; }

}  // namespace darlcore::test
