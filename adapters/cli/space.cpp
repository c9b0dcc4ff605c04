// SPDX-License-Identifier: Apache-2.0
// `darl space`: what a position means, and the digest that two sites compare.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "adapters/cli/cli_support.hpp"
#include "adapters/cli/numbers.hpp"
#include "adapters/formats/json.hpp"
#include "darlcore/block_space.hpp"
#include "darlcore/sizing.hpp"

namespace darl {
namespace {

using darlcore::errc;
using darlcore::fail;
using darlcore::result;

struct space_options {
    std::string num_samples;
    std::string block_size;
    std::string seed = "0";
    std::string epoch = "0";
    std::string shown = "16";
    std::string scheme = "mt-shuffle-1";
    bool no_shuffle = false;
    std::string inner_steps;  // empty: no phase is sized
    std::string batch = "1";
    std::string ranks = "1";
    std::string accumulate = "1";
};

/// The phase that H steps of a batch shape need. Units: blocks, windows.
struct phase_size {
    std::uint64_t blocks = 0;
    std::uint64_t global_batch = 0;
    std::uint64_t steps = 0;  // of a phase of whole blocks
};

struct space_request {
    darlcore::space_parameters parameters;
    darlcore::epoch_index epoch;
    std::uint64_t shown = 0;
    std::optional<phase_size> phase;
};

result<phase_size> read_phase(const space_options& o, std::uint64_t block_size) {
    const auto steps = whole_number<std::uint64_t>("--inner-steps", o.inner_steps);
    if (!steps) return steps.error();
    darlcore::batch_shape shape;
    for (const auto& [name, text, value] :
         {std::tuple{"--batch", &o.batch, &shape.batch}, std::tuple{"--ranks", &o.ranks, &shape.ranks},
          std::tuple{"--accumulate", &o.accumulate, &shape.accumulate}}) {
        const auto number = whole_number<std::uint64_t>(name, *text);
        if (!number) return number.error();
        *value = *number;
    }
    const auto blocks = darlcore::blocks_nearest(*steps, shape, block_size);
    if (!blocks) return blocks.error();
    const std::uint64_t per_step = darlcore::global_batch(shape).value();
    const auto windows = darlcore::detail::checked_product(*blocks, block_size, "blocks x block_size");
    if (!windows) return windows.error();
    return phase_size{*blocks, per_step, *windows / per_step + (*windows % per_step != 0 ? 1 : 0)};
}

result<space_request> read_request(const space_options& o) {
    space_request request;
    const auto samples = whole_number<std::uint64_t>("--num-samples", o.num_samples);
    if (!samples) return samples.error();
    const auto block_size = whole_number<std::uint64_t>("--block-size", o.block_size);
    if (!block_size) return block_size.error();
    const auto seed = whole_number<std::int64_t>("--seed", o.seed);
    if (!seed) return seed.error();
    const auto epoch = whole_number<std::uint32_t>("--epoch", o.epoch);
    if (!epoch) return epoch.error();
    const auto shown = whole_number<std::uint64_t>("--first", o.shown);
    if (!shown) return shown.error();
    const auto scheme = darlcore::permutation_scheme_from_word(o.scheme);
    if (!scheme)
        return fail(errc::invalid_argument, "--scheme: `" + o.scheme + "` is neither mt-shuffle-1 nor feistel-1");
    request.parameters = {*samples, *block_size, *seed, !o.no_shuffle, *scheme};
    request.epoch = darlcore::epoch_index{*epoch};
    request.shown = *shown;
    if (o.inner_steps.empty()) return request;
    const auto phase = read_phase(o, *block_size);
    if (!phase) return phase.error();
    request.phase = *phase;
    return request;
}

std::vector<std::uint64_t> blocks_between(const darlcore::epoch_map& map, std::uint64_t begin, std::uint64_t end) {
    std::vector<std::uint64_t> blocks;
    for (std::uint64_t p = begin; p < end; ++p) blocks.push_back(map.block_at(darlcore::position{p}));
    return blocks;
}

darlcore::json::array as_json(const std::vector<std::uint64_t>& numbers) { return {numbers.begin(), numbers.end()}; }

std::string as_text(const darlcore::epoch_map& map, const std::vector<std::uint64_t>& first,
                    const std::vector<std::uint64_t>& last) {
    const auto short_position = map.short_block_position();
    const auto shuffle = map.parameters().shuffle ? std::string(word(map.parameters().scheme)) : "no shuffle";
    return fmt::format(
        "blocks {} ({} windows each{})\norder  {}\ndigest {}\nfirst  {}\nlast   {}", map.num_blocks(),
        map.parameters().block_size,
        short_position ? fmt::format("; the short one, of {}, at position {}",
                                     map.parameters().num_samples % map.parameters().block_size, short_position->count)
                       : std::string(),
        shuffle, darlcore::to_hex(map.digest()), fmt::join(first, " "), fmt::join(last, " "));
}

void run_space(session& s, const space_options& options) {
    const auto request = read_request(options);
    if (!request) return report(s, request.error());
    const auto map = darlcore::block_space::build(request->parameters, request->epoch);
    if (!map) return report(s, map.error());
    const std::uint64_t blocks = (*map)->num_blocks();
    const std::uint64_t shown = std::min(request->shown, blocks);
    const auto first = blocks_between(**map, 0, shown);
    const auto last = blocks_between(**map, blocks - shown, blocks);
    const auto& phase = request->phase;
    if (!s.json) {
        print_line(as_text(**map, first, last));
        if (phase)
            print_line(fmt::format("phase  {} blocks ({} steps of {} windows)", phase->blocks, phase->steps,
                                   phase->global_batch));
        return;
    }
    auto out = darlcore::json::make_object({{"num_blocks", blocks},
                                            {"digest", darlcore::to_hex((*map)->digest())},
                                            {"scheme", word(request->parameters.scheme)},
                                            {"epoch", request->epoch.count},
                                            {"first", as_json(first)},
                                            {"last", as_json(last)}});
    if (phase) {
        out.set("phase_blocks", phase->blocks);
        out.set("phase_steps", phase->steps);
        out.set("global_batch", phase->global_batch);
    }
    print_line(darlcore::json::dump(out));
}

}  // namespace

void add_space(CLI::App& app, session& s) {
    auto* command = app.add_subcommand("space", "the order of blocks in an epoch, and its digest");
    const auto options = std::make_shared<space_options>();
    command->add_option("--num-samples", options->num_samples, "windows in the corpus (N)")->required();
    command->add_option("--block-size", options->block_size, "windows per block (K)")->required();
    command->add_option("--seed", options->seed, "seed of the run")->capture_default_str();
    command->add_option("--epoch", options->epoch, "epoch, from 0")->capture_default_str();
    command->add_option("--first", options->shown, "blocks shown from each end")->capture_default_str();
    command->add_option("--scheme", options->scheme, "mt-shuffle-1, or feistel-1 for more than 2^31 blocks")
        ->capture_default_str();
    command->add_flag("--no-shuffle", options->no_shuffle, "blocks in their own order (for debugging)");
    command->add_option("--inner-steps", options->inner_steps, "also size a phase of this many steps (H)");
    command->add_option("--batch", options->batch, "windows per rank and micro-batch (B)")->capture_default_str();
    command->add_option("--ranks", options->ranks, "ranks (W)")->capture_default_str();
    command->add_option("--accumulate", options->accumulate, "micro-batches per step (A)")->capture_default_str();
    command->footer("Example: darl space --num-samples 2756597 --block-size 1024 --seed 42");
    command->callback([&s, options] { run_space(s, *options); });
}

}  // namespace darl
