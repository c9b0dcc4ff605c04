// SPDX-License-Identifier: Apache-2.0
#include "backends/slurm/shape.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "backends/slurm/text.hpp"
#include "darlcore/hex.hpp"
#include "darlcore/plan/argument.hpp"
#include "darlcore/sha2.hpp"

namespace darlcore::slurm {

namespace {

struct option_name {
    std::string_view name;
    char letter;  // 0: none
    bool takes_value;
};

constexpr std::array<option_name, 27> known_options{{
    {"partition", 'p', true},
    {"nodes", 'N', true},
    {"ntasks", 'n', true},
    {"cpus-per-task", 'c', true},
    {"gpus", 'G', true},
    {"gpus-per-node", 0, true},
    {"gpus-per-task", 0, true},
    {"gres", 0, true},
    {"mem", 0, true},
    {"mem-per-cpu", 0, true},
    {"mem-per-gpu", 0, true},
    {"time", 't', true},
    {"account", 'A', true},
    {"qos", 'q', true},
    {"constraint", 'C', true},
    {"reservation", 0, true},
    {"ntasks-per-node", 0, true},
    {"hint", 0, true},
    {"licenses", 'L', true},
    {"begin", 'b', true},
    {"signal", 0, true},
    {"job-name", 'J', true},
    {"dependency", 'd', true},
    {"exclusive", 0, false},
    {"requeue", 0, false},
    {"no-requeue", 0, false},
    {"parsable", 0, false},
}};

const option_name* by_name(std::string_view name) {
    for (const option_name& o : known_options)
        if (o.name == name) return &o;
    return nullptr;
}

const option_name* by_letter(char letter) {
    for (const option_name& o : known_options)
        if (o.letter == letter && letter != 0) return &o;
    return nullptr;
}

using values = std::map<std::string, std::string, std::less<>>;

shape_answer problem(std::string word, std::string detail) {
    return {std::nullopt, {std::move(word), std::move(detail)}};
}

// Characters of a foreign token that may be shown in a message.
std::string shown(std::string_view token) {
    std::string out;
    for (const char c : token.substr(0, 60)) out.push_back(plan::is_plain_argument(std::string_view(&c, 1)) ? c : '?');
    return out;
}

// One argument and possibly its value from the next token.
std::optional<shape_problem> take(std::span<const std::string> args, std::size_t& i, values& found) {
    const std::string_view arg = args[i];
    const option_name* option = nullptr;
    std::optional<std::string> value;
    if (arg == ":") return shape_problem{"heterogeneous", "':' joins several requests; probe each one by itself"};
    if (starts_with(arg, "--")) {
        const std::size_t equals = arg.find('=');
        option = by_name(arg.substr(2, equals == std::string_view::npos ? equals : equals - 2));
        if (equals != std::string_view::npos) value = std::string(arg.substr(equals + 1));
    } else if (arg.size() >= 2 && arg[0] == '-') {
        option = by_letter(arg[1]);
        if (arg.size() > 2) value = std::string(arg.substr(arg[2] == '=' ? 3 : 2));
    }
    if (option == nullptr)
        return shape_problem{"unknown_option", "argument '" + shown(arg) + "' is not allowed in a shape"};
    if (option->takes_value && !value) {
        if (i + 1 >= args.size())
            return shape_problem{"missing_value", "--" + std::string(option->name) + " needs a value"};
        value = args[++i];
    }
    const std::string text = value.value_or("yes");
    if (!plan::is_plain_argument(text))
        return shape_problem{"hostile_argument", "the value of --" + std::string(option->name) +
                                                     " holds a character outside [A-Za-z0-9_.,:=+@%/[]-]: '" +
                                                     shown(text) + "'"};
    const auto [at, fresh] = found.emplace(std::string(option->name), text);
    if (!fresh && at->second != text)
        return shape_problem{"conflicting_option",
                             "--" + std::string(option->name) + " is given twice with different values"};
    return std::nullopt;
}

std::optional<std::uint32_t> count_of(std::string_view text) {
    const auto n = digits(text);
    if (!n || *n < 1 || *n > 1000000) return std::nullopt;
    return static_cast<std::uint32_t>(*n);
}

struct gpu_request {
    std::string type;
    std::uint32_t count = 0;
};

// "4", "h100:4"
std::optional<gpu_request> gpus_of(std::string_view text) {
    const std::size_t colon = text.rfind(':');
    const auto count = count_of(colon == std::string_view::npos ? text : text.substr(colon + 1));
    if (!count) return std::nullopt;
    return gpu_request{std::string(colon == std::string_view::npos ? std::string_view() : text.substr(0, colon)),
                       *count};
}

// "gpu:h100:4", "gpu:4", "gpu"; other resources are no GPUs
std::optional<gpu_request> gpus_of_gres(std::string_view text) {
    for (const std::string_view part : split(text, ',')) {
        if (part == "gpu") return gpu_request{{}, 1};
        if (starts_with(part, "gpu:")) return gpus_of(part.substr(4));
    }
    return gpu_request{};
}

std::optional<shape_problem> read_gpus(const values& v, shape_key& key) {
    const auto bad = [](const std::string& name) {
        return shape_problem{"bad_count", "--" + name + " needs a count of 1 or more, such as 4 or h100:4"};
    };
    std::optional<gpu_request> found;
    if (const auto it = v.find("gpus-per-node"); it != v.end()) {
        found = gpus_of(it->second);
        if (!found) return bad(it->first);
    } else if (const auto gres = v.find("gres"); gres != v.end()) {
        found = gpus_of_gres(gres->second);
        if (!found) return bad(gres->first);
    } else if (const auto total = v.find("gpus"); total != v.end()) {
        found = gpus_of(total->second);
        if (!found) return bad(total->first);
        if (found->count % key.nodes != 0)
            return shape_problem{"bad_count", "--gpus is not a multiple of --nodes; use --gpus-per-node"};
        found->count /= key.nodes;
    }
    if (found) {
        key.gpus_per_node = found->count;
        key.gpu_type = found->type;
    }
    return std::nullopt;
}

shape_answer key_of(const values& v) {
    shape_key key;
    const auto get = [&](std::string_view name) {
        const auto it = v.find(name);
        return it == v.end() ? std::string() : it->second;
    };
    key.partition = get("partition");
    if (key.partition.empty()) return problem("missing_partition", "a shape names its partition: add --partition");
    if (contains(key.partition, ","))
        return problem("partition_list", "the answer would be for one of them only: probe each partition by itself");
    if (const std::string nodes = get("nodes"); !nodes.empty()) {
        if (contains(nodes, "-") && nodes.front() != '-')
            return problem("node_range", "a range of nodes is not one shape: give one count");
        const auto count = count_of(nodes);
        if (!count) return problem("bad_count", "--nodes needs a count of 1 or more");
        key.nodes = *count;
    }
    for (const std::string_view name : {"ntasks", "cpus-per-task", "ntasks-per-node"}) {
        const std::string text = get(name);
        if (!text.empty() && !count_of(text))
            return problem("bad_count", "--" + std::string(name) + " needs a count of 1 or more");
    }
    if (auto bad = read_gpus(v, key)) return {std::nullopt, *bad};
    const std::string time = get("time");
    if (time.empty()) return problem("missing_walltime", "a shape needs a walltime: add --time");
    const duration_reading limit = read_requested_duration(time);
    if (!limit.valid)
        return problem("bad_walltime", "--time is not a time limit; use days-hours:minutes:seconds or minutes");
    if (limit.none)
        return problem("infinite_walltime",
                       "a shape needs a finite walltime: an endless job fits before no reservation");
    key.walltime_s = limit.seconds;
    key.account = get("account");
    key.qos = get("qos");
    return {key, {}};
}

}  // namespace

shape_answer read_shape(std::span<const std::string> args) {
    values found;
    for (std::size_t i = 0; i < args.size(); ++i)
        if (auto bad = take(args, i, found)) return {std::nullopt, *bad};
    return key_of(found);
}

std::string args_digest(std::span<const std::string> args) {
    std::string all;
    for (const std::string& a : args) {
        all += a;
        all.push_back('\0');
    }
    return to_hex(sha256().update(std::string_view(all)).finish()).substr(0, 16);
}

namespace {

// Amounts of a TRES list for a shape; nothing for resources that a shape does not name.
std::optional<double> wanted(std::string_view resource, const shape_key& s) {
    if (resource == "gres/gpu" || (starts_with(resource, "gres/gpu:") && resource.substr(9) == s.gpu_type))
        return s.gpus();
    if (resource == "node") return s.nodes;
    return std::nullopt;
}

std::string check_tres(std::string_view key, std::string_view list, const shape_key& s) {
    for (const std::string_view part : split(list, ',')) {
        const std::size_t equals = part.rfind('=');
        if (equals == std::string_view::npos) continue;
        const auto most = digits(part.substr(equals + 1));
        const std::string_view resource = part.substr(0, equals);
        const auto want = wanted(resource, s);
        if (most && want && *want > static_cast<double>(*most))
            return std::string(key) + " " + std::string(resource) + " " + std::to_string(*most) + " < " +
                   std::to_string(static_cast<std::int64_t>(*want));
    }
    return {};
}

}  // namespace

limit_verdict check_limits(std::string_view record, const shape_key& shape) {
    for (const std::string_view word : words_of(record)) {
        const std::size_t equals = word.find('=');
        if (equals == std::string_view::npos) continue;
        const std::string_view key = word.substr(0, equals);
        const std::string_view value = word.substr(equals + 1);
        std::string reason;
        if (contains(key, "TRES") && !contains(key, "Mins")) reason = check_tres(key, value, shape);
        if (key == "MaxWall") {
            const duration_reading most = read_reported_duration(value);
            if (most.valid && !most.none && shape.walltime_s > most.seconds)
                reason = "MaxWall " + std::to_string(most.seconds) + " < " + std::to_string(shape.walltime_s);
        }
        if (key == "MaxNodes" || key == "GrpNodes")
            if (const auto most = digits(value); most && shape.nodes > *most)
                reason = std::string(key) + " " + std::to_string(*most) + " < " + std::to_string(shape.nodes);
        if (!reason.empty()) return {false, reason};
    }
    return {};
}

}  // namespace darlcore::slurm
