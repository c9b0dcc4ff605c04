// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "darlcore/merge/backend_ops.hpp"

// Tools of the contract suite: tensors as raw bytes on the host, and an outer step on any backend fed from them.
namespace darlcore::testing {

/// Knobs that a factory may honour; a backend without them ignores both.
struct backend_variant {
    int threads = 1;
    std::uint64_t chunk_elements = 0;  ///< 0 = the backend's own
};

/// Own small generator: the suite's data is the same on every machine.
class bit_source {
public:
    explicit bit_source(std::uint64_t seed) : state_(seed) { state_ = next() ^ (seed << 32U); }
    std::uint64_t next() {
        state_ += 0x9e3779b97f4a7c15U;
        std::uint64_t z = state_;
        z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
        return z ^ (z >> 31U);
    }
    /// Uniform in [-1, 1).
    float unit() { return static_cast<float>(static_cast<double>(next() >> 11U) * 0x1p-52 - 1.0); }

private:
    std::uint64_t state_;
};

/// A tensor on the host, as bytes.
struct host_tensor {
    darlcore::dtype dtype = darlcore::dtype::f32;
    std::vector<std::byte> bytes;

    host_tensor() = default;
    host_tensor(darlcore::dtype type, std::uint64_t elements) : dtype(type), bytes(elements * size_of(type)) {}

    [[nodiscard]] std::uint64_t elements() const { return bytes.size() / size_of(dtype); }
    [[nodiscard]] const_tensor_view view() const { return {bytes.data(), elements(), dtype}; }
    [[nodiscard]] tensor_view view() { return {bytes.data(), elements(), dtype}; }
    [[nodiscard]] float at(std::uint64_t i) const { return element_as_f32(view(), i); }
    void set(std::uint64_t i, float value) { scalar_ops::store(view(), i, value); }
    friend bool operator==(const host_tensor&, const host_tensor&) = default;
};

/// Numbers of several magnitudes, with -0, denormals and neighbours of 1 among them.
inline host_tensor arbitrary_tensor(dtype type, std::uint64_t elements, std::uint64_t seed) {
    static constexpr float special[] = {0.0F, -0.0F, 0x1p-149F, -0x1.8p-130F, 1.0F, 0x1.fffffep-1F, -3.0F, 0x1p-20F};
    bit_source bits(seed);
    host_tensor tensor(type, elements);
    for (std::uint64_t i = 0; i < elements; ++i) {
        const std::uint64_t kind = bits.next() % 16;
        const float value = kind == 0   ? special[bits.next() % 8]
                            : kind == 1 ? bits.unit() * 0x1p-126F
                                        : bits.unit() * (kind < 8 ? 1.0F : 0.01F);
        tensor.set(i, value);
    }
    return tensor;
}

/// Operands of one outer step.
struct step_case {
    host_tensor w;
    std::optional<host_tensor> v;
    std::vector<host_tensor> deltas;
    std::vector<float> shares;
    std::vector<float> scales;
    step_rule rule{0.7F, 0.9F, step_mode::nesterov};
    std::optional<dtype> wire;
    bool in_place = false;
};

struct step_outcome {
    host_tensor w;
    host_tensor v;
    host_tensor wire;
    friend bool operator==(const step_outcome&, const step_outcome&) = default;
};

inline step_case arbitrary_step(std::uint64_t elements, std::size_t contributions, dtype type, std::uint64_t seed) {
    bit_source bits(seed);
    step_case one;
    one.w = arbitrary_tensor(dtype::f32, elements, bits.next());
    if (bits.next() % 4 != 0) one.v = arbitrary_tensor(dtype::f32, elements, bits.next());
    for (std::size_t i = 0; i < contributions; ++i) {
        one.deltas.push_back(arbitrary_tensor(type, elements, bits.next()));
        one.shares.push_back((bits.unit() + 1.0F) / static_cast<float>(contributions));
        one.scales.push_back(bits.next() % 4 == 0 ? 0.3F : 1.0F);
    }
    one.rule.mode = bits.next() % 4 == 0 ? step_mode::plain : step_mode::nesterov;
    const std::uint64_t wire = bits.next() % 3;
    if (wire > 0) one.wire = wire == 1 ? dtype::bf16 : dtype::f16;
    one.in_place = bits.next() % 2 == 0;
    return one;
}

/// The step in scalar code on the host: the bits that a backend must give.
inline step_outcome reference_step(const step_case& one) {
    const ieee_mode guard;
    const std::uint64_t n = one.w.elements();
    step_outcome out{host_tensor(dtype::f32, n), host_tensor(dtype::f32, n),
                     host_tensor(one.wire.value_or(dtype::bf16), 0)};
    if (one.wire) out.wire = host_tensor(*one.wire, n);
    for (std::uint64_t k = 0; k < n; ++k) {
        float s = 0.0F;
        for (std::size_t i = 0; i < one.deltas.size(); ++i) {
            const float x = scalar_ops::product(one.scales[i], one.deltas[i].at(k));
            const float p = scalar_ops::product(one.shares[i], x);
            s = i == 0 ? p : s + p;
        }
        const float ahead = one.w.at(k) + scalar_ops::product(one.rule.eta, s);
        const float before = one.v ? one.v->at(k) : one.w.at(k);
        const float next =
            one.rule.mode == step_mode::plain ? ahead : ahead + scalar_ops::product(one.rule.beta, ahead - before);
        out.v.set(k, ahead);
        out.w.set(k, next);
        if (one.wire) out.wire.set(k, next);
    }
    return out;
}

/// Tensors in one buffer of a backend, at addresses with the least alignment that is allowed, with canary bytes around
/// each.
template <tensor_backend B>
class device_tensors {
public:
    static constexpr std::size_t canary_bytes = 64;

    device_tensors(B& backend, typename B::queue& q) : backend_(backend), q_(q) {}

    /// Places a tensor; `misalign` elements are left free before it.
    result<tensor_view> place(const host_tensor& tensor, std::size_t misalign = 0) {
        const std::size_t before = canary_bytes + misalign * size_of(tensor.dtype);
        const std::size_t all = before + tensor.bytes.size() + canary_bytes;
        auto memory = backend_.allocate(all);
        if (!memory) return memory.error();
        std::vector<std::byte> image(all, std::byte{0xa5});
        if (!tensor.bytes.empty()) std::memcpy(image.data() + before, tensor.bytes.data(), tensor.bytes.size());
        const tensor_view whole{memory->data(), all, dtype::u8};
        if (auto ok = backend_.copy_in(q_, image, whole); !ok) return ok.error();
        if (auto ok = backend_.wait(q_); !ok) return ok.error();
        places_.push_back({*std::move(memory), before, tensor.dtype, tensor.elements()});
        return tensor_view{static_cast<std::byte*>(whole.data) + before, tensor.elements(), tensor.dtype};
    }

    /// What place number `index` holds now. Errors: errc::corrupt when a byte beside it changed.
    result<host_tensor> fetch(std::size_t index) {
        const spot& place = places_[index];
        std::vector<std::byte> image(place.memory.size_bytes());
        const tensor_view whole{place.memory.data(), image.size(), dtype::u8};
        if (auto ok = backend_.wait(q_); !ok) return ok.error();
        if (auto ok = backend_.copy_out(q_, whole, image); !ok) return ok.error();
        if (auto ok = backend_.wait(q_); !ok) return ok.error();
        host_tensor tensor(place.type, place.elements);
        const std::size_t end = place.before + tensor.bytes.size();
        for (std::size_t i = 0; i < image.size(); ++i)
            if ((i < place.before || i >= end) && image[i] != std::byte{0xa5})
                return fail(errc::corrupt, "byte " + std::to_string(i) + " beside the tensor was written");
        if (!tensor.bytes.empty()) std::memcpy(tensor.bytes.data(), image.data() + place.before, tensor.bytes.size());
        return tensor;
    }

    [[nodiscard]] std::size_t count() const { return places_.size(); }

private:
    struct spot {
        typename B::buffer memory;
        std::size_t before;
        dtype type;
        std::uint64_t elements;
    };
    B& backend_;
    typename B::queue& q_;
    std::vector<spot> places_;
};

/// Runs the case on a backend by way of run_outer_step.
template <tensor_backend B>
result<step_outcome> step_on(B& backend, const step_case& one, std::size_t misalign = 0) {
    typename B::queue q{};
    device_tensors<B> memory(backend, q);
    const std::uint64_t n = one.w.elements();
    const auto place = [&](const host_tensor& tensor) { return memory.place(tensor, misalign).value(); };
    outer_step_args args;
    args.rule = one.rule;
    args.w = place(one.w);                                                                          // 0
    const tensor_view w_other = place(host_tensor(dtype::f32, n));                                  // 1
    const tensor_view v_other = place(host_tensor(dtype::f32, n));                                  // 2
    const tensor_view wire = place(host_tensor(one.wire.value_or(dtype::bf16), one.wire ? n : 0));  // 3
    const tensor_view v = place(one.v ? *one.v : host_tensor(dtype::f32, 0));                       // 4
    if (one.v) args.v = v;
    args.w_out = one.in_place ? tensor_view{const_cast<void*>(args.w.data), n, dtype::f32} : w_other;
    args.v_out = one.in_place && one.v ? v : v_other;
    if (one.wire) args.wire = wire;
    std::vector<weighted_delta> deltas;
    for (std::size_t i = 0; i < one.deltas.size(); ++i)
        deltas.push_back({place(one.deltas[i]), one.shares[i], one.scales[i]});
    args.deltas = deltas;
    if (auto ok = run_outer_step(backend, q, args); !ok) return ok.error();
    step_outcome out;
    const auto take = [&](host_tensor& to, std::size_t index) -> result<void> {
        auto tensor = memory.fetch(index);
        if (!tensor) return tensor.error();
        to = *std::move(tensor);
        return {};
    };
    if (auto ok = take(out.w, one.in_place ? 0 : 1); !ok) return ok.error();
    if (auto ok = take(out.v, one.in_place && one.v ? 4 : 2); !ok) return ok.error();
    if (auto ok = take(out.wire, 3); !ok) return ok.error();
    for (std::size_t i = 0; i < memory.count(); ++i)  // canaries, and inputs that must not have changed
        if (const auto left = memory.fetch(i); !left) return left.error();
    for (std::size_t i = 0; i < one.deltas.size(); ++i)
        if (!(*memory.fetch(5 + i) == one.deltas[i])) return fail(errc::corrupt, "a delta was written to");
    return out;
}

}  // namespace darlcore::testing
