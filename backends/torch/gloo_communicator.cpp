// SPDX-License-Identifier: Apache-2.0
// The only file that sees c10d: its classes differ between libtorch 1.13 (ProcessGroup) and 2.x (Backend), their calls
// do not.
#include "backends/torch/communicator.hpp"

#ifdef USE_C10D_GLOO
#include <ATen/core/ivalue.h>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cstring>

namespace darlcore::training {

struct gloo_rendezvous::state {
    c10::intrusive_ptr<c10d::TCPStore> store;
};

namespace {

c10::intrusive_ptr<c10d::TCPStore> make_store(const std::string& host, std::uint16_t port, bool server,
                                              std::int64_t timeout_ms) {
    c10d::TCPStoreOptions options;
    options.port = port;
    options.isServer = server;
    options.waitWorkers = false;
    options.timeout = std::chrono::milliseconds(timeout_ms);
    return c10::make_intrusive<c10d::TCPStore>(host, options);
}

// First line only: libtorch appends its call stack.
std::string first_line(const std::exception& e) {
    const std::string text = e.what();
    return text.substr(0, text.find('\n'));
}

template <class T>
constexpr at::ScalarType type_of() {
    if constexpr (std::is_same_v<T, float>)
        return at::kFloat;
    else if constexpr (std::is_same_v<T, double>)
        return at::kDouble;
    else if constexpr (std::is_same_v<T, std::int64_t>)
        return at::kLong;
    else
        return at::kByte;
}

template <class T>
at::Tensor view_of(std::span<T> values) {
    return at::from_blob(values.data(), {static_cast<std::int64_t>(values.size())},
                         at::TensorOptions().dtype(type_of<T>()));
}

class gloo final : public communicator {
public:
    gloo(c10::intrusive_ptr<c10d::Store> store, const gloo_options& o)
        : store_(std::move(store)), rank_(o.rank), size_(o.size) {
        auto options = c10d::ProcessGroupGloo::Options::create();
        options->timeout = std::chrono::milliseconds(o.timeout_ms);
        const bool local = o.host == "127.0.0.1" || o.host == "localhost";
        options->devices.push_back(local ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                         : c10d::ProcessGroupGloo::createDefaultDevice());
        group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store_, static_cast<int>(rank_), static_cast<int>(size_),
                                                             options);
    }

    [[nodiscard]] std::size_t rank() const override { return rank_; }
    [[nodiscard]] std::size_t size() const override { return size_; }
    result<void> all_reduce_sum(std::span<float> values) override { return sum(values); }
    result<void> all_reduce_sum(std::span<double> values) override { return sum(values); }
    result<void> all_reduce_sum(std::span<std::int64_t> values) override { return sum(values); }

    result<void> broadcast(std::vector<std::byte>& bytes, std::size_t root) override {
        auto count = static_cast<std::int64_t>(bytes.size());
        if (auto ok = send(view_of(std::span<std::int64_t>(&count, 1)), root); !ok) return ok;
        bytes.resize(static_cast<std::size_t>(count));
        if (count == 0) return {};
        return send(view_of(std::span<std::uint8_t>(reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size())),
                    root);
    }

    result<void> all_gather(std::span<const float> part, std::span<float> out) override {
        DARLCORE_ASSERT_CMP(out.size(), ==, size_ * part.size());
        return guarded([&] {
            std::vector<at::Tensor> in{at::empty({static_cast<std::int64_t>(part.size())}, at::kFloat)};
            std::memcpy(in[0].data_ptr(), part.data(), part.size_bytes());
            std::vector<std::vector<at::Tensor>> all(1);
            for (std::size_t r = 0; r < size_; ++r)
                all[0].push_back(view_of(out.subspan(r * part.size(), part.size())));
            group_->allgather(all, in)->wait();
        });
    }

    result<void> barrier() override {
        return guarded([&] { group_->barrier()->wait(); });
    }
    // Closing the connections is what makes the others' calls throw.
    void abort() override { group_.reset(); }
    [[nodiscard]] std::string description() const override {
        return "gloo, " + std::to_string(size_) + " ranks; reduce-scatter by all-reduce, bf16 sums through f32";
    }

private:
    template <class T>
    result<void> sum(std::span<T> values) {
        return guarded([&] {
            std::vector<at::Tensor> tensors{view_of(values)};
            group_->allreduce(tensors)->wait();
        });
    }

    result<void> send(const at::Tensor& values, std::size_t root) {
        return guarded([&] {
            std::vector<at::Tensor> tensors{values};
            c10d::BroadcastOptions options;
            options.rootRank = static_cast<int>(root);
            group_->broadcast(tensors, options)->wait();
        });
    }

    template <class Call>
    result<void> guarded(Call&& call) {
        if (!group_) return fail(errc::unreachable, "this rank's communicator has failed before");
        try {
            call();
        } catch (const std::exception& e) {
            group_.reset();
            return fail(errc::unreachable, "a rank of this site is gone: " + first_line(e));
        }
        return {};
    }

    c10::intrusive_ptr<c10d::Store> store_;
    c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
    std::size_t rank_, size_;
};

}  // namespace

result<gloo_rendezvous> gloo_rendezvous::open(std::uint16_t port) {
    gloo_rendezvous r;
    r.state_ = std::make_unique<state>();
    try {
        r.state_->store = make_store("127.0.0.1", port, true, 300'000);
    } catch (const std::exception& e) {
        return fail(errc::io_error, "ranks: port " + std::to_string(port) + " cannot be used: " + first_line(e));
    }
    return r;
}

std::uint16_t gloo_rendezvous::port() const { return state_->store->getPort(); }

result<std::unique_ptr<communicator>> gloo_communicator(const gloo_options& o) {
    DARLCORE_ASSERT(o.rank < o.size && o.port != 0);
    try {
        return std::unique_ptr<communicator>(
            std::make_unique<gloo>(make_store(o.host, o.port, false, o.timeout_ms), o));
    } catch (const std::exception& e) {
        return fail(errc::unreachable,
                    "ranks: no meeting at " + o.host + ":" + std::to_string(o.port) + ": " + first_line(e));
    }
}

}  // namespace darlcore::training

#else

namespace darlcore::training {

struct gloo_rendezvous::state {};

result<gloo_rendezvous> gloo_rendezvous::open(std::uint16_t) {
    return fail(errc::unsupported, "this build has no Gloo: install libgloo-dev and build again, or use one rank");
}
std::uint16_t gloo_rendezvous::port() const { return 0; }
result<std::unique_ptr<communicator>> gloo_communicator(const gloo_options&) {
    return fail(errc::unsupported, "this build has no Gloo: install libgloo-dev and build again, or use one rank");
}

}  // namespace darlcore::training

#endif

namespace darlcore::training {

gloo_rendezvous::gloo_rendezvous() = default;
gloo_rendezvous::gloo_rendezvous(gloo_rendezvous&&) noexcept = default;
gloo_rendezvous& gloo_rendezvous::operator=(gloo_rendezvous&&) noexcept = default;
gloo_rendezvous::~gloo_rendezvous() = default;

}  // namespace darlcore::training
