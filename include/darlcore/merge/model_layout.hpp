// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "darlcore/digest.hpp"
#include "darlcore/error.hpp"
#include "darlcore/merge/tensor_spec.hpp"

namespace darlcore {

/// Which tensors a model has: the ordered list that every merge, norm and file of one run follows.
/// Order: ascending unsigned bytes of the name. A tied weight is listed once, under one name: sent twice it would weigh
/// twice in norms and bytes. Two models with equal digests have the same names and shapes: one comparison replaces a
/// thousand.
class model_layout {
public:
    model_layout() : digest_(digest_of({})) {}

    /// Errors: errc::invalid_argument (a name twice, empty or with a control character), errc::unsupported (a type that
    /// does not enter a merge), errc::overflow.
    static result<model_layout> make(std::vector<tensor_spec> specs) {
        std::sort(specs.begin(), specs.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
        model_layout layout;
        for (std::size_t i = 0; i < specs.size(); ++i) {
            if (i > 0 && specs[i].name == specs[i - 1].name)
                return fail(errc::invalid_argument, "tensor '" + specs[i].name + "' occurs twice");
            if (auto ok = layout.append(specs[i]); !ok) return ok.error();
        }
        layout.specs_ = std::move(specs);
        layout.digest_ = digest_of(layout.specs_);
        return layout;
    }

    [[nodiscard]] std::span<const tensor_spec> specs() const { return specs_; }
    [[nodiscard]] std::size_t size() const { return specs_.size(); }
    /// First element of tensor `index` when all are laid one behind the other.
    [[nodiscard]] std::uint64_t offset(std::size_t index) const { return offsets_[index]; }
    [[nodiscard]] std::uint64_t elements(std::size_t index) const { return offsets_[index + 1] - offsets_[index]; }
    [[nodiscard]] std::uint64_t total_elements() const { return offsets_.back(); }
    /// BLAKE2b of 16 bytes over the lines `name:f32:d0,d1,...`; the type is that of the merge, whatever a file carries.
    [[nodiscard]] const digest16& digest() const { return digest_; }

    /// The specs with another element type: what a file in that type has.
    [[nodiscard]] std::vector<tensor_spec> specs_as(dtype type) const {
        std::vector<tensor_spec> out(specs_);
        for (tensor_spec& spec : out) spec.dtype = type;
        return out;
    }

    friend bool operator==(const model_layout& a, const model_layout& b) { return a.digest_ == b.digest_; }

private:
    static digest16 digest_of(std::span<const tensor_spec> specs) {
        blake2b hash(16);
        for (const tensor_spec& spec : specs) {
            std::string line = spec.name + ":f32:";
            for (std::size_t i = 0; i < spec.shape.size(); ++i)
                line.append(i == 0 ? "" : ",").append(std::to_string(spec.shape[i]));
            hash.update(line + "\n");
        }
        return finish_digest<16>(hash);
    }

    result<void> append(const tensor_spec& spec) {
        const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20; };
        if (spec.name.empty() || std::any_of(spec.name.begin(), spec.name.end(), control))
            return fail(errc::invalid_argument, "a tensor name is empty or holds a control character");
        if (!enters_merge(spec.dtype))
            return fail(errc::unsupported, "tensor '" + spec.name + "' is " + std::string(word(spec.dtype)) +
                                               "; only f32, bf16 and f16 can be merged");
        const auto count = element_count(spec.shape);
        if (!count) return fail(errc::overflow, "tensor '" + spec.name + "': " + count.error().context);
        // 2^61 elements, so that bytes in f32 never overflow either.
        if (*count > (std::uint64_t{1} << 61U) - offsets_.back())
            return fail(errc::overflow, "the model has more than 2^61 elements");
        offsets_.push_back(offsets_.back() + *count);
        return {};
    }

    std::vector<tensor_spec> specs_;
    std::vector<std::uint64_t> offsets_{0};
    digest16 digest_;
};

}  // namespace darlcore
