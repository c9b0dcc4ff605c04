// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/communicator.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "darlcore/merge/conversions.hpp"

namespace darlcore::training {

result<void> communicator::all_reduce_sum_bf16(std::span<std::uint16_t> values) {
    std::vector<float> wide(values.size());
    std::transform(values.begin(), values.end(), wide.begin(), f32_from_bf16);
    if (auto ok = all_reduce_sum(std::span<float>(wide)); !ok) return ok;
    std::transform(wide.begin(), wide.end(), values.begin(), bf16_from_f32);
    return {};
}

result<void> communicator::reduce_scatter_sum(std::span<float> values, std::span<float> part) {
    DARLCORE_ASSERT_CMP(values.size(), ==, size() * part.size());
    if (auto ok = all_reduce_sum(values); !ok) return ok;
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(rank() * part.size()), part.size(), part.begin());
    return {};
}

namespace {

class single final : public communicator {
public:
    [[nodiscard]] std::size_t rank() const override { return 0; }
    [[nodiscard]] std::size_t size() const override { return 1; }
    result<void> all_reduce_sum(std::span<float>) override { return {}; }
    result<void> all_reduce_sum(std::span<double>) override { return {}; }
    result<void> all_reduce_sum(std::span<std::int64_t>) override { return {}; }
    result<void> all_reduce_sum_bf16(std::span<std::uint16_t>) override { return {}; }
    result<void> broadcast(std::vector<std::byte>&, std::size_t) override { return {}; }
    result<void> all_gather(std::span<const float> part, std::span<float> out) override {
        std::copy(part.begin(), part.end(), out.begin());
        return {};
    }
    result<void> barrier() override { return {}; }
    void abort() override {}
    [[nodiscard]] std::string description() const override { return "one rank"; }
};

// A meeting of all ranks: everyone shows a pointer, everyone looks at all, everyone leaves.
class meeting {
public:
    explicit meeting(std::size_t ranks) : shown_(ranks) {}
    [[nodiscard]] std::size_t ranks() const { return shown_.size(); }
    [[nodiscard]] const void* shown(std::size_t rank) const { return shown_[rank]; }

    result<void> show(std::size_t rank, const void* what) {
        shown_[rank] = what;
        return wait();
    }
    result<void> wait() {
        std::unique_lock<std::mutex> lock(mutex_);
        const std::uint64_t round = round_;
        if (++arrived_ == shown_.size()) {
            arrived_ = 0;
            ++round_;
            all_there_.notify_all();
        }
        all_there_.wait(lock, [&] { return aborted_ || round_ != round; });
        if (aborted_) return fail(errc::unreachable, "a rank of this site has given up");
        return {};
    }
    void abort() {
        const std::lock_guard<std::mutex> lock(mutex_);
        aborted_ = true;
        all_there_.notify_all();
    }

private:
    std::mutex mutex_;
    std::condition_variable all_there_;
    std::vector<const void*> shown_;
    std::size_t arrived_ = 0;
    std::uint64_t round_ = 0;
    bool aborted_ = false;
};

class threaded final : public communicator {
public:
    threaded(std::shared_ptr<meeting> all, std::size_t rank) : all_(std::move(all)), rank_(rank) {}
    [[nodiscard]] std::size_t rank() const override { return rank_; }
    [[nodiscard]] std::size_t size() const override { return all_->ranks(); }
    result<void> all_reduce_sum(std::span<float> values) override { return sum(values); }
    result<void> all_reduce_sum(std::span<double> values) override { return sum(values); }
    result<void> all_reduce_sum(std::span<std::int64_t> values) override { return sum(values); }

    result<void> broadcast(std::vector<std::byte>& bytes, std::size_t root) override {
        if (auto ok = all_->show(rank_, &bytes); !ok) return ok;
        if (rank_ != root) bytes = *static_cast<const std::vector<std::byte>*>(all_->shown(root));
        return all_->wait();
    }
    result<void> all_gather(std::span<const float> part, std::span<float> out) override {
        DARLCORE_ASSERT_CMP(out.size(), ==, size() * part.size());
        if (auto ok = all_->show(rank_, part.data()); !ok) return ok;
        for (std::size_t r = 0; r < size(); ++r)
            std::copy_n(static_cast<const float*>(all_->shown(r)), part.size(), out.data() + r * part.size());
        return all_->wait();
    }
    result<void> barrier() override { return all_->wait(); }
    void abort() override { all_->abort(); }
    [[nodiscard]] std::string description() const override {
        return std::to_string(size()) + " ranks as threads of one process";
    }

private:
    template <class T>
    result<void> sum(std::span<T> values) {
        if (auto ok = all_->show(rank_, values.data()); !ok) return ok;
        std::vector<T> total(values.size(), T{});
        for (std::size_t r = 0; r < size(); ++r) {
            const T* other = static_cast<const T*>(all_->shown(r));
            for (std::size_t i = 0; i < total.size(); ++i) total[i] += other[i];
        }
        if (auto ok = all_->wait(); !ok) return ok;  // everyone has read before anyone writes
        std::copy(total.begin(), total.end(), values.begin());
        return {};
    }

    std::shared_ptr<meeting> all_;
    std::size_t rank_;
};

}  // namespace

std::unique_ptr<communicator> single_communicator() { return std::make_unique<single>(); }

std::vector<std::unique_ptr<communicator>> thread_communicators(std::size_t ranks) {
    DARLCORE_ASSERT(ranks >= 1);
    const auto all = std::make_shared<meeting>(ranks);
    std::vector<std::unique_ptr<communicator>> out;
    for (std::size_t r = 0; r < ranks; ++r) out.push_back(std::make_unique<threaded>(all, r));
    return out;
}

}  // namespace darlcore::training
