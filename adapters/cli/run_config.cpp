// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/run_config.hpp"

#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <variant>

#include <fmt/format.h>
#include <toml++/toml.h>

#include "adapters/cli/did_you_mean.hpp"
#include "darlcore/sizing.hpp"

namespace darl {
namespace {

using darlcore::errc;
using darlcore::fail;
using darlcore::result;

using field =
    std::variant<std::int64_t run_config::*, double run_config::*, bool run_config::*, std::string run_config::*>;

constexpr double infinite = std::numeric_limits<double>::infinity();

struct key_spec {
    std::string_view section;
    std::string_view key;
    field member;
    double low;   // numbers: smallest legal value
    double high;  // numbers: largest legal value
    std::string_view unit;
    std::string_view reason;
    std::string_view choices = {};  // strings: legal values, separated by |
};

// The whole schema: file order, defaults (from run_config), ranges, units and reasons.
using c = run_config;
const std::vector<key_spec> all_keys = {
    {"run", "seed", &c::seed, -9.2e18, 9.2e18, "", "initial weights and block order; equal at every site"},
    {"run", "work_dir", &c::work_dir, 0, 0, "folder",
     "checkpoints, contributions and metrics of this site; must survive a requeue"},
    {"model", "flavour", &c::flavour, 0, 0, "",
     "debug-1m, debug-3m, debug-10m, 0.6B ... 32B; resnet18 for pictures (SGD with Nesterov momentum beta1)"},
    {"data", "manifest", &c::manifest, 0, 0, "file",
     "manifest.json of the training shards (darl tokenize writes it); pictures: cifar10:FILE,... or "
     "idx:IMAGES,LABELS[,COUNT]"},
    {"data", "held_out", &c::held_out, 0, 0, "file", "manifest.json of the held-out set; disjoint from training"},
    {"data", "tokenizer", &c::tokenizer, 0, 0, "", "bytes, or a tokenizer.json"},
    {"data", "seq_len", &c::seq_len, 1, 1048576, "tokens",
     "predicted positions of one window; a window has one id more"},
    {"data", "block_size", &c::block_size, 1, 1e15, "windows",
     "leased together; best when it divides inner_steps x batch x ranks x accumulate"},
    {"train", "inner_steps", &c::inner_steps, 1, 1e9, "steps", "H: optimiser steps between two merges"},
    {"train", "batch", &c::batch, 1, 1e6, "windows", "per rank and micro-batch"},
    {"train", "accumulate", &c::accumulate, 1, 1e6, "micro-batches",
     "per optimiser step; raise it at a fast site to fill the barrier"},
    {"train", "groups", &c::groups, 0, 1e6, "groups",
     "per phase; 0 = one up to 4 blocks, else four; more = a slow tail stays stealable longer"},
    {"train", "peak_lr", &c::peak_lr, 0, 10, "", "learning rate after warm-up; of pictures: that of a batch of 128"},
    {"train", "warmup_steps", &c::warmup_steps, 0, 1e9, "steps", "linear from 0"},
    {"train", "total_steps", &c::total_steps, 0, 1e12, "steps", "length of the schedule; 0 = constant after warm-up"},
    {"train", "decay_fraction", &c::decay_fraction, 0, 1, "", "last part of the schedule that decays (cosine)"},
    {"train", "min_lr_factor", &c::min_lr_factor, 0, 1, "", "of peak_lr, at the end of the decay"},
    {"train", "beta1", &c::beta1, 0, 0.9999999, "", "AdamW first moment"},
    {"train", "beta2", &c::beta2, 0, 0.9999999, "", "AdamW second moment"},
    {"train", "eps", &c::eps, 1e-30, 1, "", "AdamW"},
    {"train", "weight_decay", &c::weight_decay, 0, 10, "", "on matrices only"},
    {"train", "clip", &c::clip, 0, 1e9, "", "global gradient norm; 0 = off"},
    {"train", "threads", &c::threads, 0, 4096, "threads", "of this rank; 0 = its share of the cores"},
    {"train", "log_every", &c::log_every, 1, 1e9, "steps", "between two lines of kind step in metrics.jsonl"},
    {"train", "throttle", &c::throttle, 0, 1000, "", "pretend to be slower by this factor (demo and tests); 0 = off"},
    {"train", "rank_patience_s", &c::rank_patience_s, 0.1, 86400, "s",
     "with --ranks: least silence after which a rank is ended; more where a step takes longer"},
    {"outer", "eta", &c::eta, 0, 10, "", "outer learning rate; part of the run, pinned by the server"},
    {"outer", "beta", &c::beta, 0, 0.9999999, "", "outer Nesterov momentum"},
    {"outer", "solo", &c::solo, 0, 0, "",
     "a merge of one contribution: full (eta 1), outer (eta as above), adopt (local model)", "full|outer|adopt"},
    {"outer", "first_step", &c::first_step, 0, 0, "",
     "the first merge: nesterov moves (1+beta) eta delta, plain eta delta", "nesterov|plain"},
    {"round", "quorum", &c::quorum, 1, 4096, "sites", "contributions before a round may close"},
    {"round", "live_window_s", &c::live_window_s, 1, 86400, "s", "silence after which a site is not waited for"},
    {"round", "keepalive_s", &c::keepalive_s, 0.1, 3600, "s", "a site in a phase calls at least this often"},
    {"round", "round_limit_s", &c::round_limit_s, 1, 604800, "s",
     "after the first pledge the round closes whatever happens"},
    {"round", "failed_retry_s", &c::failed_retry_s, 0.1, 86400, "s",
     "after a phase that failed, until the site is offered the next one"},
    {"round", "unknown_phase_s", &c::unknown_phase_s, 0.1, 604800, "s", "due of a site without an estimate"},
    {"round", "unknown_transfer_s", &c::unknown_transfer_s, 0, 604800, "s", "added to it for moving weights"},
    {"round", "overdue_gap_s", &c::overdue_gap_s, 0, 86400, "s", "a due holds so long after the last contribution"},
    {"round", "lagging_rounds", &c::lagging_rounds, 1, 4096, "rounds", "overdue in a row: not waited for"},
    {"round", "budget", &c::budget, 0, 0, "",
     "slow sites shorten their phases to the others'; off for step-matched experiments"},
    {"round", "keep_generations", &c::keep_generations, 1, 990, "generations", "whose files stay on the server's disk"},
    {"round", "max_epochs", &c::max_epochs, 1, 1e6, "epochs", "passes over the corpus"},
    {"lease", "commit_policy", &c::commit_policy, 0, 0, "",
     "when a block counts: with the merge, or with the site's checkpoint (the paper)", "on_merge|on_checkpoint"},
    {"lease", "min_ttl_s", &c::min_ttl_s, 0.1, 86400, "s", "shortest lease; 30 s rides out a hiccup of the network"},
    {"lease", "default_ttl_s", &c::default_ttl_s, 0.1, 86400, "s", "until a site has told how long a phase takes"},
    {"eval", "windows", &c::eval_windows, 1, 1e9, "windows", "fixed total, so that the score does not depend on ranks"},
    {"eval", "every", &c::eval_every, 0, 1e9, "generations", "when no site waits by itself; 0 = never score"},
    {"network", "proxy", &c::proxy, 0, 0, "", "none, env, or a URL"},
    {"network", "give_up_s", &c::give_up_s, 1, 1e7, "s", "without the server for so long: save and exit 75"},
};

std::string value_text(const run_config& values, const key_spec& spec) {
    return std::visit(
        [&](auto member) -> std::string {
            const auto& v = values.*member;
            using T = std::remove_cvref_t<decltype(v)>;
            if constexpr (std::is_same_v<T, std::string>)
                return fmt::format("\"{}\"", v);
            else if constexpr (std::is_same_v<T, double>) {
                std::string text = fmt::format("{}", v);
                if (text.find_first_of(".en") == std::string::npos) text += ".0";
                return text;
            } else
                return fmt::format("{}", v);
        },
        spec.member);
}

std::string full_name(const key_spec& spec) { return fmt::format("{}.{}", spec.section, spec.key); }

std::string range_text(const key_spec& spec) {
    if (spec.high == infinite) return fmt::format("at least {}", spec.low);
    return fmt::format("between {} and {}", spec.low, spec.high);
}

result<void> set_number(run_config& values, const key_spec& spec, double number, bool whole, const std::string& where) {
    if (!(number >= spec.low && number <= spec.high))
        return fail(errc::invalid_argument, fmt::format("{}: {} must be {}", where, full_name(spec), range_text(spec)));
    if (const auto* as_double = std::get_if<double run_config::*>(&spec.member)) {
        values.*(*as_double) = number;
        return {};
    }
    if (!whole)
        return fail(errc::invalid_argument, fmt::format("{}: {} must be a whole number", where, full_name(spec)));
    values.*std::get<std::int64_t run_config::*>(spec.member) = static_cast<std::int64_t>(number);
    return {};
}

result<void> set_string(run_config& values, const key_spec& spec, const std::string& text, const std::string& where) {
    if (!spec.choices.empty()) {
        const std::string padded = fmt::format("|{}|", spec.choices);
        if (text.find('|') != std::string::npos || padded.find(fmt::format("|{}|", text)) == std::string::npos)
            return fail(errc::invalid_argument,
                        fmt::format("{}: {} must be one of {}", where, full_name(spec), spec.choices));
    }
    values.*std::get<std::string run_config::*>(spec.member) = text;
    return {};
}

result<void> set_node(run_config& values, const key_spec& spec, const toml::node& node, const std::string& where) {
    if (std::holds_alternative<std::string run_config::*>(spec.member)) {
        if (const auto text = node.value_exact<std::string>()) return set_string(values, spec, *text, where);
        return fail(errc::invalid_argument, fmt::format("{}: {} must be a text in quotes", where, full_name(spec)));
    }
    if (const auto* flag = std::get_if<bool run_config::*>(&spec.member)) {
        const auto value = node.value_exact<bool>();
        if (!value)
            return fail(errc::invalid_argument, fmt::format("{}: {} must be true or false", where, full_name(spec)));
        values.*(*flag) = *value;
        return {};
    }
    if (const auto whole = node.value_exact<std::int64_t>()) {
        if (const auto* exact = std::get_if<std::int64_t run_config::*>(&spec.member);
            exact != nullptr && spec.high > 9e18) {
            values.*(*exact) = *whole;  // a seed: all 64 bits, no way through a double
            return {};
        }
        return set_number(values, spec, static_cast<double>(*whole), true, where);
    }
    if (const auto number = node.value_exact<double>()) return set_number(values, spec, *number, false, where);
    return fail(errc::invalid_argument, fmt::format("{}: {} must be a number", where, full_name(spec)));
}

const key_spec* find_spec(std::string_view name) {
    for (const auto& spec : all_keys)
        if (full_name(spec) == name) return &spec;
    return nullptr;
}

darlcore::error unknown_key(const std::string& where, const std::string& name) {
    std::vector<std::string> known;
    for (const auto& spec : all_keys) known.push_back(full_name(spec));
    const std::string near = did_you_mean(name, known);
    return fail(errc::unknown_key,
                fmt::format("{}: unknown key {}{}", where, name,
                            near.empty() ? "; darl init shows all keys" : fmt::format("; did you mean {}?", near)));
}

result<void> set_override(run_config& values, const std::string& name, const std::string& text) {
    const std::string where = fmt::format("--{}", name);
    const key_spec* spec = find_spec(name);
    if (spec == nullptr) return unknown_key(where, name);
    if (std::holds_alternative<std::string run_config::*>(spec->member)) return set_string(values, *spec, text, where);
    try {
        const auto table = toml::parse(fmt::format("v = {}", text));
        if (table.size() != 1) return fail(errc::invalid_argument, fmt::format("{}: one value expected", where));
        return set_node(values, *spec, *table.get("v"), where);
    } catch (const toml::parse_error&) {
        return fail(errc::invalid_argument, fmt::format("{}: not a value that {} can take", where, name));
    }
}

}  // namespace

std::string run_config_text(const run_config& values) {
    std::string out = "# darlcore run file. Every key with its default; [unit] and reason behind it.\n";
    std::string_view section;
    for (const auto& spec : all_keys) {
        if (spec.section != section) {
            section = spec.section;
            out += fmt::format("\n[{}]\n", section);
        }
        const std::string assignment = fmt::format("{} = {}", spec.key, value_text(values, spec));
        out += fmt::format("{:<28} # {}{}\n", assignment, spec.unit.empty() ? "" : fmt::format("[{}] ", spec.unit),
                           spec.reason);
    }
    return out;
}

result<run_config> parse_run_config(std::string_view text, const std::string& name,
                                    const std::vector<std::pair<std::string, std::string>>& overrides) {
    run_config values;
    toml::table table;
    try {
        table = toml::parse(text);
    } catch (const toml::parse_error& e) {
        return fail(errc::parse_error, fmt::format("{}:{}: {}", name, e.source().begin.line, e.description()));
    }
    for (const auto& [section, node] : table) {
        const std::string section_name(section.str());
        const auto* keys = node.as_table();
        const std::string section_where = fmt::format("{}:{}", name, node.source().begin.line);
        if (keys == nullptr) return unknown_key(section_where, section_name);
        for (const auto& [key, item] : *keys) {
            const std::string where = fmt::format("{}:{}", name, item.source().begin.line);
            const std::string full = fmt::format("{}.{}", section_name, key.str());
            const key_spec* spec = find_spec(full);
            if (spec == nullptr) return unknown_key(where, full);
            if (auto set = set_node(values, *spec, item, where); !set) return set.error();
        }
    }
    for (const auto& [key, value] : overrides)
        if (auto set = set_override(values, key, value); !set) return set.error();
    // Each factor is in range; their product may still be more than any counter holds.
    const darlcore::batch_shape shape{static_cast<std::uint64_t>(values.batch), 1,
                                      static_cast<std::uint64_t>(values.accumulate)};
    const auto windows = darlcore::windows_per_phase(static_cast<std::uint64_t>(values.inner_steps), shape);
    if (!windows)
        return fail(windows.error().code, fmt::format("{}: train.inner_steps, train.batch, train.accumulate: {}", name,
                                                      windows.error().context));
    return values;
}

result<run_config> read_run_config(const std::string& path,
                                   const std::vector<std::pair<std::string, std::string>>& overrides) {
    std::ifstream in(path, std::ios::binary);
    if (!in)
        return fail(errc::not_found,
                    fmt::format("{}: cannot be opened; 'darl init' writes a commented run file", path));
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    return parse_run_config(text, path, overrides);
}

result<std::vector<std::pair<std::string, std::string>>> config_overrides(const std::vector<std::string>& rest) {
    std::vector<std::pair<std::string, std::string>> out;
    for (std::size_t i = 0; i < rest.size(); ++i) {
        const std::string& argument = rest[i];
        const bool dotted = argument.rfind("--", 0) == 0 && argument.find('.') != std::string::npos;
        if (!dotted)
            return fail(errc::bad_request,
                        fmt::format("unknown argument '{}'; settings are given as --section.key value", argument));
        const std::size_t equals = argument.find('=');
        if (equals != std::string::npos) {
            out.emplace_back(argument.substr(2, equals - 2), argument.substr(equals + 1));
        } else if (i + 1 < rest.size()) {
            out.emplace_back(argument.substr(2), rest[++i]);
        } else {
            return fail(errc::bad_request, fmt::format("{} needs a value", argument));
        }
    }
    return out;
}

}  // namespace darl
