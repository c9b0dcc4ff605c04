// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/run_match.hpp"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

#include "adapters/formats/json.hpp"

namespace darl {
namespace {

using namespace darlcore;

bool differ(double baseline, double sites) { return std::abs(baseline - sites) > match_tolerance * std::abs(sites); }

double windows_per_step(const run_figures& f, std::uint64_t window_tokens) {
    return f.tokens_per_step() / static_cast<double>(window_tokens);
}

}  // namespace

std::vector<std::string> match_differences(const run_figures& baseline, const run_figures& sites,
                                           std::uint64_t window_tokens) {
    DARLCORE_ASSERT(window_tokens > 0);
    std::vector<std::string> out;
    if (differ(static_cast<double>(baseline.tokens), static_cast<double>(sites.tokens)))
        out.push_back(fmt::format("{} tokens, the sites {}", baseline.tokens, sites.tokens));
    if (differ(static_cast<double>(baseline.steps), static_cast<double>(sites.steps)))
        out.push_back(fmt::format("{} steps, the sites {}", baseline.steps, sites.steps));
    const double here = windows_per_step(baseline, window_tokens);
    const double there = windows_per_step(sites, window_tokens);
    if (differ(here, there)) out.push_back(fmt::format("{:.2f} windows per step, the sites {:.2f}", here, there));
    return out;
}

std::string match_text(const run_figures& baseline, const run_figures& sites, std::uint64_t window_tokens) {
    return fmt::format("tokens {} here, {} at the sites; steps {}, {}; windows per step {:.2f}, {:.2f}",
                       baseline.tokens, sites.tokens, baseline.steps, sites.steps,
                       windows_per_step(baseline, window_tokens), windows_per_step(sites, window_tokens));
}

result<run_figures> figures_of_generation(const std::string& path) {
    std::error_code ignored;
    const std::string file = std::filesystem::is_directory(path, ignored) ? path + "/meta.json" : path;
    std::ifstream in(file, std::ios::binary);
    if (!in) return fail(errc::not_found, fmt::format("{}: cannot be read; name a generation's folder", file));
    const auto meta = json::parse(std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()));
    if (!meta) return fail(errc::parse_error, fmt::format("{}: {}", file, meta.error().context));
    const auto* tokens = meta->find("tokens_total");
    const auto* steps = meta->find("global_step");
    if (tokens == nullptr || !tokens->as_u64() || steps == nullptr || !steps->as_u64())
        return fail(errc::parse_error, fmt::format("{}: does not say tokens_total and global_step", file));
    return run_figures{*tokens->as_u64(), *steps->as_u64()};
}

}  // namespace darl
