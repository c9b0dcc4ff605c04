// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/rank_group.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "adapters/formats/json.hpp"

namespace darl {
namespace {

using namespace darlcore;
using namespace std::chrono_literals;

// Ranks need seconds to start; minutes where many start from a cold shared disk.
constexpr std::int64_t meeting_ms = 600'000;
// A rank waits for the leader's next order as long as the leader waits for the server.
constexpr std::int64_t order_ms = std::int64_t{7} * 24 * 3600 * 1000;

std::int64_t now_ms() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

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

result<rank_beats> rank_beats::make(std::size_t ranks) {
    const int descriptor = ::memfd_create("darl-ranks", 0);
    if (descriptor < 0 || ::ftruncate(descriptor, static_cast<off_t>(ranks * sizeof(std::uint64_t))) != 0)
        return fail(errc::io_error, fmt::format("ranks: no shared memory: {}", std::strerror(errno)));
    return inherited(descriptor, ranks);
}

result<rank_beats> rank_beats::inherited(int descriptor, std::size_t ranks) {
    void* const memory =
        ::mmap(nullptr, ranks * sizeof(std::uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (memory == MAP_FAILED)
        return fail(errc::io_error, fmt::format("ranks: no shared memory: {}", std::strerror(errno)));
    return rank_beats(descriptor, {static_cast<std::uint64_t*>(memory), ranks});
}

rank_beats::~rank_beats() {
    if (descriptor_ < 0) return;
    ::munmap(counts_.data(), counts_.size_bytes());
    ::close(descriptor_);
}

std::vector<std::size_t> rank_beats::behind() const {
    std::vector<std::uint64_t> counts;
    for (std::uint64_t& count : counts_) counts.push_back(std::atomic_ref(count).load());
    std::vector<std::size_t> out;
    for (std::size_t r = 0; r < counts.size(); ++r)
        if (counts[r] < *std::max_element(counts.begin(), counts.end())) out.push_back(r);
    return out;
}

namespace {

class watched final : public training::communicator {
public:
    watched(std::unique_ptr<communicator> inner, rank_beats& beats, call_clock& clock)
        : inner_(std::move(inner)), beats_(beats), clock_(clock) {}
    [[nodiscard]] std::size_t rank() const override { return inner_->rank(); }
    [[nodiscard]] std::size_t size() const override { return inner_->size(); }
    result<void> all_reduce_sum(std::span<float> values) override {
        return timed([&] { return inner_->all_reduce_sum(values); });
    }
    result<void> all_reduce_sum(std::span<double> values) override {
        return timed([&] { return inner_->all_reduce_sum(values); });
    }
    result<void> all_reduce_sum(std::span<std::int64_t> values) override {
        return timed([&] { return inner_->all_reduce_sum(values); });
    }
    result<void> broadcast(std::vector<std::byte>& bytes, std::size_t root) override {
        return timed([&] { return inner_->broadcast(bytes, root); });
    }
    result<void> all_gather(std::span<const float> part, std::span<float> out) override {
        return timed([&] { return inner_->all_gather(part, out); });
    }
    result<void> barrier() override {
        return timed([&] { return inner_->barrier(); });
    }
    void abort() override { inner_->abort(); }
    [[nodiscard]] std::string description() const override { return inner_->description(); }

private:
    template <class Call>
    result<void> timed(Call&& call) {
        beats_.count(rank());
        clock_.begin(now_ms());
        auto done = call();
        clock_.end(now_ms());
        return done;
    }

    std::unique_ptr<communicator> inner_;
    rank_beats& beats_;
    call_clock& clock_;
};

}  // namespace

result<std::unique_ptr<training::communicator>> meet_ranks(const rank_place& place, rank_beats& beats,
                                                           call_clock& clock) {
    beats.count(place.rank);
    clock.begin(now_ms(), meeting_ms);
    auto group = training::gloo_communicator({"127.0.0.1", place.port, place.rank, place.ranks, order_ms});
    clock.end(now_ms());
    if (!group) return group.error();
    return std::unique_ptr<training::communicator>(std::make_unique<watched>(*std::move(group), beats, clock));
}

result<std::unique_ptr<rank_processes>> rank_processes::start(options o) {
    auto beats = rank_beats::make(o.ranks);
    if (!beats) return beats.error();
    std::unique_ptr<rank_processes> group(new rank_processes(std::move(o), *std::move(beats)));
    const options& set = group->options_;
    for (std::size_t r = 1; r < set.ranks; ++r) {
        child_process::options c;
        c.argv = own_arguments();
        c.argv[0] = own_program();
        c.argv.insert(c.argv.end(), {"--rank", std::to_string(r), "--rank-port", std::to_string(set.port),
                                     "--rank-beats", std::to_string(group->beats_.descriptor())});
        c.stderr_file = fmt::format("{}/rank-{}.log", set.log_dir, r);
        auto child = child_process::start(c);
        if (!child) return child.error();
        group->children_.push_back(*std::move(child));
    }
    group->watcher_ = std::thread([g = group.get()] { g->watch(); });
    return group;
}

result<std::unique_ptr<training::communicator>> rank_processes::meet() {
    return meet_ranks({0, options_.ranks, options_.port}, beats_, clock_);
}

void rank_processes::watch() {
    while (!finishing_.load()) {
        for (std::size_t i = 0; i < children_.size(); ++i) {
            if (children_[i].running() || finishing_.load()) continue;
            const auto status = children_[i].wait(0ms).value_or(-1);
            return options_.lost(fmt::format("rank {} (process {}) ended with {}; see {}/rank-{}.log", i + 1,
                                             children_[i].pid(), status, options_.log_dir, i + 1));
        }
        if (const auto waited = clock_.overdue_ms(now_ms())) return options_.lost(end_hung(*waited));
        ::poll(nullptr, 0, 50);
    }
}

// Ends the ranks that the leader waits for: that closes their connections, and the leader's call fails.
std::string rank_processes::end_hung(std::int64_t waited_ms) {
    std::vector<std::size_t> hung = beats_.behind();
    std::erase(hung, std::size_t{0});
    if (hung.empty())  // all are in the same call, and it does not end
        for (std::size_t r = 1; r < options_.ranks; ++r) hung.push_back(r);
    std::string who;
    for (const std::size_t r : hung) {
        who += fmt::format("{}rank {} (process {}, {}/rank-{}.log)", who.empty() ? "" : ", ", r, children_[r - 1].pid(),
                           options_.log_dir, r);
        children_[r - 1].signal(SIGKILL);
    }
    return fmt::format(
        "{} did not answer for {:.1f} s and is ended; train.rank_patience_s is how long a rank may be silent", who,
        static_cast<double>(waited_ms) / 1000.0);
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
