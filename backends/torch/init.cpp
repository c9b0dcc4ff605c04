// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/init.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace darlcore::models {
namespace {

constexpr std::uint64_t rotate_left(std::uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

std::uint64_t fnv1a(std::string_view text) {
    std::uint64_t h = 0xcbf29ce484222325U;
    for (const char c : text) {
        h ^= static_cast<unsigned char>(c);
        h *= 0x100000001b3U;
    }
    return h;
}

std::uint64_t split_mix(std::uint64_t& state) {
    state += 0x9e3779b97f4a7c15U;
    std::uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

// ln(x) for x in (0, 1] from IEEE operations only: x = m * 2^e, ln m = 2 artanh((m - 1) / (m + 1)), m in [sqrt(1/2),
// sqrt(2)).
double portable_log(double x) {
    int e = 0;
    double m = std::frexp(x, &e);
    if (m < 0.70710678118654752) {
        m *= 2.0;
        --e;
    }
    const double t = (m - 1.0) / (m + 1.0);
    const double t2 = t * t;
    double sum = 0.0;
    for (int k = 23; k >= 1; k -= 2) sum = sum * t2 + 1.0 / k;
    return 2.0 * t * sum + e * 0.69314718055994531;
}

class normal_draws {
public:
    explicit normal_draws(text_random& random) : random_(random) {}
    double next() {
        if (have_) {
            have_ = false;
            return spare_;
        }
        double u = 0.0, v = 0.0, s = 0.0;
        do {
            u = 2.0 * random_.uniform() - 1.0;
            v = 2.0 * random_.uniform() - 1.0;
            s = u * u + v * v;
        } while (s >= 1.0 || s == 0.0);
        const double factor = std::sqrt(-2.0 * portable_log(s) / s);
        spare_ = v * factor;
        have_ = true;
        return u * factor;
    }

private:
    text_random& random_;
    double spare_ = 0.0;
    bool have_ = false;
};

}  // namespace

text_random::text_random(std::string_view text) {
    std::uint64_t state = fnv1a(text);
    for (std::uint64_t& word : s_) word = split_mix(state);
}

std::uint64_t text_random::next() {
    const std::uint64_t out = rotate_left(s_[0] + s_[3], 23) + s_[0];
    const std::uint64_t t = s_[1] << 17U;
    s_[2] ^= s_[0];
    s_[3] ^= s_[1];
    s_[1] ^= s_[2];
    s_[0] ^= s_[3];
    s_[2] ^= t;
    s_[3] = rotate_left(s_[3], 45);
    return out;
}

double text_random::uniform() { return static_cast<double>(next() >> 11U) * 0x1.0p-53; }

void initialise(const parameter_spec& spec, std::int64_t seed, std::span<float> out) {
    DARLCORE_ASSERT_CMP(static_cast<std::int64_t>(out.size()), ==, spec.elements());
    switch (spec.init) {
        case init_rule::zeros:
            std::fill(out.begin(), out.end(), 0.0F);
            return;
        case init_rule::ones:
            std::fill(out.begin(), out.end(), 1.0F);
            return;
        case init_rule::normal:
        case init_rule::uniform:
            break;
    }
    text_random random("darl-init:" + std::to_string(seed) + ":" + spec.name);
    if (spec.init == init_rule::uniform) {
        for (float& x : out) x = static_cast<float>((2.0 * random.uniform() - 1.0) * spec.init_scale);
        return;
    }
    normal_draws normal(random);
    for (float& x : out) x = static_cast<float>(normal.next() * spec.init_scale);
}

}  // namespace darlcore::models
