// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/rank_group.hpp"

#include <poll.h>

#include <chrono>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "adapters/formats/json.hpp"

namespace darl {
namespace {

using namespace darlcore;
using namespace std::chrono_literals;

std::vector<std::byte> bytes_of(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
    return {bytes.begin(), bytes.end()};
}

std::vector<std::string> own_arguments() {
    std::ifstream in("/proc/self/cmdline", std::ios::binary);
    std::vector<std::string> words;
    for (std::string word; std::getline(in, word, '\0');) words.push_back(word);
    return words;
}

void append(std::vector<std::byte>& out, std::span<const float> values) {
    const auto bytes = std::as_bytes(values);
    out.insert(out.end(), bytes.begin(), bytes.end());
}

// The other half of share_moments.
result<void> take_moments(training::communicator& ranks, training::inner_trainer& trainer, std::uint64_t updates) {
    std::vector<std::byte> bytes;
    if (auto ok = ranks.broadcast(bytes, 0); !ok) return ok;
    const std::size_t n = trainer.first_moments().size();
    std::vector<float> both(n + trainer.second_moments().size());
    if (bytes.size() != both.size() * sizeof(float))
        return fail(errc::layout_mismatch, "the leader's moments have another size than this rank's");
    std::memcpy(both.data(), bytes.data(), bytes.size());
    const std::span<const float> all(both);
    trainer.restore_moments(all.first(n), all.subspan(n), updates);
    return {};
}

struct follower {
    training::communicator& ranks;
    training::inner_trainer& trainer;
    const follower_inputs& in;
    block_space space;

    result<void> obey(const json::value& order, std::string_view what) {
        const auto number = [&](std::string_view key) {
            const auto* v = order.find(key);
            return v != nullptr ? v->as_u64().value_or(0) : 0;
        };
        if (what == "load") return trainer.load_generation(*order.at("path").as_string());
        if (what == "moments") return take_moments(ranks, trainer, number("updates"));
        if (what == "phase") return phase(static_cast<std::uint32_t>(number("epoch")), number("position"));
        if (what == "evaluate") return evaluate();
        return fail(errc::internal, fmt::format("unknown order '{}' from the leader", what));
    }
    result<void> phase(std::uint32_t epoch, std::uint64_t position) {
        const auto map = space.map(epoch_index{epoch});
        if (!map) return map.error();
        trainer.reload();
        trainer.set_position(position);
        if (auto trained = trainer.train_phase(*map, *in.corpus, {}); !trained) return trained.error();
        return {};
    }
    result<void> evaluate() {
        if (in.held_out == nullptr) return {};
        trainer.reload();
        if (auto scored = trainer.evaluate(*in.held_out, in.eval_windows); !scored) return scored.error();
        return {};
    }
};

}  // namespace

result<void> rank_orders::say(const std::string& text) {
    if (ranks_->size() == 1) return {};
    std::vector<std::byte> bytes = bytes_of(text);
    return ranks_->broadcast(bytes, 0);
}

result<void> rank_orders::load(const std::string& path) {
    return say(json::dump(json::make_object({{"do", "load"}, {"path", path}})));
}

result<void> rank_orders::share_moments(const training::inner_trainer& trainer) {
    if (ranks_->size() == 1) return {};
    if (auto ok = say(json::dump(json::make_object({{"do", "moments"}, {"updates", trainer.updates()}}))); !ok)
        return ok;
    std::vector<std::byte> bytes;
    append(bytes, trainer.first_moments());
    append(bytes, trainer.second_moments());
    return ranks_->broadcast(bytes, 0);
}

result<void> rank_orders::phase(epoch_index epoch, std::uint64_t position) {
    return say(json::dump(json::make_object({{"do", "phase"}, {"epoch", epoch.count}, {"position", position}})));
}
result<void> rank_orders::evaluate() { return say(json::dump(json::make_object({{"do", "evaluate"}}))); }
result<void> rank_orders::stop() { return say(json::dump(json::make_object({{"do", "stop"}}))); }

result<void> follow_orders(training::communicator& ranks, training::inner_trainer& trainer, const follower_inputs& in) {
    auto space = block_space::make(in.space);
    if (!space) return space.error();
    follower me{ranks, trainer, in, *std::move(space)};
    for (;;) {
        std::vector<std::byte> bytes;
        if (auto ok = ranks.broadcast(bytes, 0); !ok) return ok;
        const auto order = json::parse(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
        if (!order) return order.error();
        const std::string what = *order->at("do").as_string();
        if (what == "stop") return {};
        if (auto done = me.obey(*order, what); !done) {
            ranks.abort();
            return done;
        }
    }
}

result<std::unique_ptr<rank_processes>> rank_processes::start(std::size_t ranks, std::uint16_t port,
                                                              const std::string& log_dir,
                                                              std::function<void(const std::string&)> lost) {
    std::unique_ptr<rank_processes> group(new rank_processes());
    group->log_dir_ = log_dir;
    group->lost_ = std::move(lost);
    for (std::size_t r = 1; r < ranks; ++r) {
        child_process::options o;
        o.argv = own_arguments();
        o.argv[0] = own_program();
        o.argv.insert(o.argv.end(), {"--rank", std::to_string(r), "--rank-port", std::to_string(port)});
        o.stderr_file = fmt::format("{}/rank-{}.log", log_dir, r);
        auto child = child_process::start(o);
        if (!child) return child.error();
        group->children_.push_back(*std::move(child));
    }
    group->watcher_ = std::thread([g = group.get()] { g->watch(); });
    return group;
}

void rank_processes::watch() {
    while (!finishing_.load()) {
        for (std::size_t i = 0; i < children_.size(); ++i) {
            if (children_[i].running() || finishing_.load()) continue;
            const auto status = children_[i].wait(0ms).value_or(-1);
            return lost_(fmt::format("rank {} (process {}) ended with {}; see {}/rank-{}.log", i + 1,
                                     children_[i].pid(), status, log_dir_, i + 1));
        }
        ::poll(nullptr, 0, 50);
    }
}

void rank_processes::finish() {
    finishing_.store(true);
    if (watcher_.joinable()) watcher_.join();
    for (auto& child : children_) (void)child.wait(5'000ms);
    children_.clear();  // what still runs is killed
}

rank_processes::~rank_processes() {
    finishing_.store(true);
    if (watcher_.joinable()) watcher_.join();
}

}  // namespace darl
