// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "darlcore/error.hpp"
#include "darlcore/merge/delta_scan.hpp"
#include "darlcore/merge/norm_history.hpp"
#include "darlcore/units.hpp"

// The guards of a merge: facts about one contribution in, a verdict with its reason out. One set for every transport
// (blobs of the server, inline, files of `darl merge`). A verdict concerns that contribution alone.
namespace darlcore {

/// What a contribution says about itself, in the claim and again in the metadata of its file.
struct contribution_claim {
    std::string run_id;
    site_id site;
    generation base_generation;
    std::uint64_t tokens = 0;
    std::uint64_t steps = 0;

    friend bool operator==(const contribution_claim&, const contribution_claim&) = default;
};

/// Everything a guard may look at. What is not known yet (or not used by a transport) stays empty and is not judged.
struct contribution_facts {
    contribution_claim claim;
    /// Site, incarnation and fencing token are the current ones.
    bool identity_current = true;
    /// The site already has an accepted contribution for this generation under another id.
    bool site_has_another = false;
    std::optional<std::array<std::uint8_t, 16>> layout_digest;
    std::optional<contribution_claim> file_metadata;
    std::optional<std::array<std::uint8_t, 32>> announced_sha256;
    std::optional<std::array<std::uint8_t, 32>> received_sha256;
    std::optional<delta_scan> scan;
};

/// Numbers of the guards; the defaults are those of the design.
struct guard_limits {
    double growth_max = 1000.0;
    double norm_outlier = 100.0;
    double norm_warning = 10.0;
    std::size_t norm_samples_min = 8;
    /// Clip: a delta longer than this multiple of the running median is scaled down to it, then weighted. Off by
    /// default, because it changes the mathematics; it exists because a small site with a delta times 1000 moves a
    /// plain mean five-fold.
    std::optional<double> clip;
};

/// One switch per guard, all on. Tests turn one off and watch its case go red; nothing else may.
struct guard_switches {
    bool stale_generation = true;
    bool fenced = true;
    bool zero_tokens = true;
    bool duplicate_site = true;
    bool layout_mismatch = true;
    bool meta_mismatch = true;
    bool digest_mismatch = true;
    bool not_finite = true;
    bool growth = true;
    bool norm_outlier = true;
};

/// What a contribution is judged against.
struct guard_context {
    generation current;
    std::optional<std::array<std::uint8_t, 16>> layout_digest;
    /// max|w| over the whole global model; 0 switches the growth guard off.
    float max_abs_weight = 0.0F;
    norm_history accepted_norms;
    guard_limits limits;
    guard_switches switches;
};

/// What follows from a verdict for the blocks of the contribution.
enum class fault : std::uint8_t {
    none,      ///< accepted
    standing,  ///< guards 1, 2, 4 to 7: its leases stay as they are
    declined,  ///< guard 3: trained nothing; no failure
    content,   ///< guards 8 to 10: its blocks return to the pool
};

constexpr std::string_view word(fault f) noexcept {
    switch (f) {
        case fault::none:
            return "none";
        case fault::standing:
            return "standing";
        case fault::declined:
            return "declined";
        case fault::content:
            return "content";
    }
    return "none";
}

/// The answer of the guards, and why.
struct guard_verdict {
    std::optional<errc> code;
    darlcore::fault fault = darlcore::fault::none;
    std::string reason;
    /// norm above norm_warning x the running median: accepted, but worth an event.
    bool norm_warning = false;
    /// Factor of the clip option, 1 when off or not needed; the delta is multiplied by it before its share.
    float scale = 1.0F;

    [[nodiscard]] bool accepted() const { return !code.has_value(); }
    friend bool operator==(const guard_verdict&, const guard_verdict&) = default;
};

namespace detail {

inline guard_verdict reject(errc code, fault kind, std::string reason) {
    guard_verdict verdict;
    verdict.code = code;
    verdict.fault = kind;
    verdict.reason = std::move(reason);
    return verdict;
}

template <class T>
std::string differs(const char* field, const T& in_file, const T& claimed) {
    std::ostringstream text;
    text << "the file says " << field << " " << in_file << ", the claim says " << claimed;
    return std::move(text).str();
}

// The first field in which file and claim differ; empty when none does.
inline std::string first_difference(const contribution_claim& in_file, const contribution_claim& claimed) {
    if (in_file.run_id != claimed.run_id) return differs("run", in_file.run_id, claimed.run_id);
    if (in_file.site != claimed.site) return differs("site", in_file.site, claimed.site);
    if (in_file.base_generation != claimed.base_generation)
        return differs("base generation", in_file.base_generation, claimed.base_generation);
    if (in_file.tokens != claimed.tokens) return differs("tokens", in_file.tokens, claimed.tokens);
    if (in_file.steps != claimed.steps) return differs("steps", in_file.steps, claimed.steps);
    return {};
}

inline std::string exceeds(const char* what, double value, double factor, const char* of_what, double base) {
    std::ostringstream text;
    text << what << ' ' << value << " is above " << factor << " x the " << of_what << " of " << base;
    return std::move(text).str();
}

}  // namespace detail

/// Guards 1 to 7: needs no look at the values of the delta.
inline guard_verdict judge_standing(const contribution_facts& facts, const guard_context& context) {
    const guard_switches& on = context.switches;
    const auto standing = [](errc code, std::string reason) {
        return detail::reject(code, fault::standing, std::move(reason));
    };
    if (on.stale_generation && facts.claim.base_generation != context.current)
        return standing(errc::stale_generation, "trained from generation " +
                                                    std::to_string(facts.claim.base_generation.count) +
                                                    ", current is " + std::to_string(context.current.count));
    if (on.fenced && !facts.identity_current) return standing(errc::fenced, "a newer process of this site took over");
    if (on.zero_tokens && facts.claim.tokens == 0)
        return detail::reject(errc::zero_tokens, fault::declined, "trained no tokens, so its share would be 0");
    if (on.duplicate_site && facts.site_has_another)
        return standing(errc::duplicate_site, "this site already has an accepted contribution for this generation");
    if (on.layout_mismatch && facts.layout_digest && context.layout_digest &&
        *facts.layout_digest != *context.layout_digest)
        return standing(errc::layout_mismatch, "names, shapes or types of its tensors are not those of the model");
    if (on.meta_mismatch && facts.file_metadata) {
        std::string difference = detail::first_difference(*facts.file_metadata, facts.claim);
        if (!difference.empty()) return standing(errc::meta_mismatch, std::move(difference));
    }
    if (on.digest_mismatch && facts.announced_sha256 && facts.received_sha256 &&
        *facts.announced_sha256 != *facts.received_sha256)
        return standing(errc::digest_mismatch, "the received bytes do not have the announced sha256");
    return {};
}

/// Guards 8 to 10 and the clip option, from the scan that runs while the bytes stream in.
/// `growth`: exactly growth_max times passes; compared in f64, where the product of two f32 is exact.
inline guard_verdict judge_content(const delta_scan& scan, const guard_context& context) {
    const guard_switches& on = context.switches;
    const guard_limits& limits = context.limits;
    const auto content = [](errc code, std::string reason) {
        return detail::reject(code, fault::content, std::move(reason));
    };
    if (on.not_finite && !scan.finite) return content(errc::not_finite, "the delta holds nan or inf");
    const double growth_bound = limits.growth_max * static_cast<double>(context.max_abs_weight);
    if (on.growth && growth_bound > 0 && static_cast<double>(scan.max_abs) > growth_bound)
        return content(errc::growth, detail::exceeds("the largest change", scan.max_abs, limits.growth_max,
                                                     "largest weight", context.max_abs_weight));
    guard_verdict verdict;
    const auto median = context.accepted_norms.median(limits.norm_samples_min);
    // While the usual delta is exactly zero nothing is known about honest norms (as for growth with weights of zero).
    if (!median || *median <= 0) return verdict;
    const double norm = scan.norm();
    if (on.norm_outlier && norm > limits.norm_outlier * *median)
        return content(errc::norm_outlier,
                       detail::exceeds("the norm", norm, limits.norm_outlier, "running median", *median));
    verdict.norm_warning = norm > limits.norm_warning * *median;
    if (limits.clip && norm > *limits.clip * *median) verdict.scale = static_cast<float>(*limits.clip * *median / norm);
    return verdict;
}

/// All guards in their order, cheap ones first. Without a scan only 1 to 7 are judged.
inline guard_verdict judge(const contribution_facts& facts, const guard_context& context) {
    guard_verdict verdict = judge_standing(facts, context);
    if (!verdict.accepted() || !facts.scan) return verdict;
    return judge_content(*facts.scan, context);
}

/// A number that was claimed, and what counts of it.
struct capped_count {
    std::uint64_t counted = 0;
    bool capped = false;
    friend bool operator==(const capped_count&, const capped_count&) = default;
};

/// Weight of a contribution: never more than the tokens of the blocks it pledges. Whoever reports its own weight can
/// own the merge; the ledger knows the truth, nobody else does. A capped claim is an event (`token_claim_capped`), not
/// a rejection.
constexpr capped_count cap_tokens(std::uint64_t claimed, std::uint64_t tokens_of_pledged_blocks) {
    return claimed > tokens_of_pledged_blocks ? capped_count{tokens_of_pledged_blocks, true}
                                              : capped_count{claimed, false};
}

/// Steps of a contribution: never more than the H that was asked for plus the windows of a block, since a phase exceeds
/// H by whole-block rounding only; a claim of 1e9 steps would make the schedule jump.
constexpr capped_count cap_steps(std::uint64_t claimed, std::uint64_t inner_steps_asked,
                                 std::uint64_t windows_per_block) {
    const std::uint64_t sum = inner_steps_asked + windows_per_block;
    const std::uint64_t bound = sum < inner_steps_asked ? ~std::uint64_t{0} : sum;
    return claimed > bound ? capped_count{bound, true} : capped_count{claimed, false};
}

}  // namespace darlcore
