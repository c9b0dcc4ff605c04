// SPDX-License-Identifier: Apache-2.0
// `darl merge`: one outer step on safetensors files, without a server.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "adapters/cli/cli_support.hpp"
#include "adapters/cli/numbers.hpp"
#include "adapters/formats/json.hpp"
#include "adapters/formats/safetensors.hpp"
#include "backends/host/merge_files.hpp"
#include "darlcore/hex.hpp"

namespace darl {
namespace {

using darlcore::errc;
using darlcore::fail;
using darlcore::result;
namespace formats = darlcore::formats;
namespace host = darlcore::host;
namespace json = darlcore::json;

struct merge_options {
    std::string base;
    std::string velocity;
    std::vector<std::string> deltas;
    double eta = 0.7;
    double beta = 0.9;
    std::string solo = "full";
    std::string first_step = "nesterov";
    std::string out;
    std::string velocity_out;
    std::string wire_out;
    std::string generation;
    std::string memory_mib = "256";
    int threads = 0;
};

std::atomic<bool> stop_requested{false};
void on_stop(int) { stop_requested = true; }

/// FILE:TOKENS or FILE:TOKENS:SHA256; the file's name may hold colons.
result<host::merge_delta> read_delta(const std::string& text) {
    host::merge_delta delta;
    std::string rest = text;
    const auto cut = [&rest]() -> std::string {
        const std::size_t colon = rest.rfind(':');
        if (colon == std::string::npos) return {};
        std::string tail = rest.substr(colon + 1);
        rest.resize(colon);
        return tail;
    };
    std::string tokens = cut();
    if (const auto digest = darlcore::from_hex<32>(tokens)) {
        delta.sha256 = *digest;
        tokens = cut();
    }
    if (rest.empty() || tokens.empty())
        return fail(errc::invalid_argument, "--delta: `" + text + "` is not FILE:TOKENS or FILE:TOKENS:SHA256");
    const auto count = whole_number<std::uint64_t>("--delta " + rest, tokens);
    if (!count) return count.error();
    delta.path = rest;
    delta.claim.tokens = *count;
    return delta;
}

std::optional<std::uint64_t> number_in(const formats::safetensors_header& header, const char* key) {
    const std::string* text = header.meta(key);
    if (text == nullptr) return std::nullopt;
    const auto number = whole_number<std::uint64_t>(key, *text);
    return number ? std::optional(*number) : std::nullopt;
}

/// What the files know: site and steps of each delta, the run, the generation they were trained from. A file that
/// cannot be read keeps its name as its site; the merge will reject it with the reason.
void complete_from_files(host::merge_request& request, std::optional<std::uint64_t> generation) {
    std::string run_id;
    if (const auto base = formats::safetensors_reader::open(request.base_path)) {
        if (const std::string* run = base->header().meta("darl.run_id")) run_id = *run;
        if (!generation) generation = number_in(base->header(), "darl.generation");
    }
    std::uint64_t newest = 0;
    for (host::merge_delta& delta : request.deltas) {
        delta.claim.site.name = std::filesystem::path(delta.path).stem().string();
        const auto reader = formats::safetensors_reader::open(delta.path);
        if (!reader) continue;
        const auto& header = reader->header();
        if (const std::string* site = header.meta("darl.site")) delta.claim.site.name = *site;
        if (const std::string* run = header.meta("darl.run_id"); run != nullptr && run_id.empty()) run_id = *run;
        delta.claim.steps = number_in(header, "darl.steps").value_or(0);
        delta.claim.base_generation.count = number_in(header, "darl.base_generation").value_or(generation.value_or(0));
        newest = std::max(newest, delta.claim.base_generation.count);
    }
    request.guards.current.count = generation.value_or(newest);
    for (host::merge_delta& delta : request.deltas) delta.claim.run_id = run_id;
    request.metadata = {{"darl.generation", std::to_string(request.guards.current.count + 1)}};
    if (!run_id.empty()) request.metadata.emplace("darl.run_id", run_id);
}

result<void> read_policy(const merge_options& o, host::merge_request& request) {
    const auto solo = darlcore::solo_policy_from_word(o.solo);
    if (!solo) return fail(errc::invalid_argument, "--solo: `" + o.solo + "` is none of full, outer, adopt");
    const auto first = darlcore::first_step_policy_from_word(o.first_step);
    if (!first)
        return fail(errc::invalid_argument, "--first-step: `" + o.first_step + "` is neither nesterov nor plain");
    request.policy = {o.eta, o.beta, *solo, *first};
    return validate(request.policy);
}

result<host::merge_request> read_request(const merge_options& o) {
    host::merge_request request;
    request.base_path = o.base;
    if (!o.velocity.empty()) request.velocity_path = o.velocity;
    for (const std::string& text : o.deltas) {
        auto delta = read_delta(text);
        if (!delta) return delta.error();
        request.deltas.push_back(*std::move(delta));
    }
    if (const auto ok = read_policy(o, request); !ok) return ok.error();
    const auto mib = whole_number<std::uint32_t>("--memory-mib", o.memory_mib);
    if (!mib) return mib.error();
    request.memory_budget_bytes = std::uint64_t{*mib} << 20U;
    request.threads = o.threads;
    std::optional<std::uint64_t> generation;
    if (!o.generation.empty()) {
        const auto number = whole_number<std::uint64_t>("--generation", o.generation);
        if (!number) return number.error();
        generation = *number;
    }
    complete_from_files(request, generation);
    request.cosines = true;
    request.cancelled = &stop_requested;
    request.weights_out = formats::staging_name(o.out);
    if (!o.velocity_out.empty()) request.velocity_out = formats::staging_name(o.velocity_out);
    if (!o.wire_out.empty()) request.wire_out = formats::staging_name(o.wire_out);
    return request;
}

/// The weights last: whoever finds them finds the others too.
result<void> publish(const merge_options& o, const host::merge_request& request) {
    if (request.velocity_out)
        if (const auto ok = formats::publish_file(*request.velocity_out, o.velocity_out); !ok) return ok;
    if (request.wire_out)
        if (const auto ok = formats::publish_file(*request.wire_out, o.wire_out); !ok) return ok;
    return formats::publish_file(request.weights_out, o.out);
}

json::value number_or_null(const std::optional<double>& x) { return x ? json::value(*x) : json::value(nullptr); }

std::string as_json(const merge_options& o, const host::merge_report& r) {
    json::array used, rejected, cosines;
    for (std::size_t i = 0; i < r.used.size(); ++i) {
        const auto& u = r.used[i];
        used.push_back(
            json::make_object({{"site", u.claim.site.name},
                               {"file", u.path},
                               {"tokens", u.claim.tokens},
                               {"share", static_cast<double>(u.share)},
                               {"drift", r.drift ? json::value(r.drift->per_site[i]) : json::value(nullptr)}}));
    }
    for (const auto& x : r.rejected)
        rejected.push_back(
            json::make_object({{"file", x.path}, {"site", x.site.name}, {"code", word(x.code)}, {"reason", x.reason}}));
    for (const auto& c : r.cosines)
        cosines.push_back(json::make_object({{"a", c.a.name}, {"b", c.b.name}, {"cosine", number_or_null(c.cosine)}}));
    json::value document =
        json::make_object({{"merged", r.merged},
                           {"contributions", r.used.size()},
                           {"used", used},
                           {"rejected", rejected},
                           {"drift_max", r.drift ? json::value(r.drift->max) : json::value(nullptr)},
                           {"drift_mean", r.drift ? json::value(r.drift->mean) : json::value(nullptr)},
                           {"agreement", number_or_null(r.agreement.overall)},
                           {"cosines", cosines},
                           {"parameters", r.layout.total_elements()},
                           {"layout_digest", darlcore::to_hex(r.layout.digest())}});
    if (r.merged) {
        document.set("out", o.out);
        document.set("eta", static_cast<double>(r.rule.eta));
        document.set("weights_parts_digest", darlcore::to_hex(r.weights_parts_digest));
        if (!o.wire_out.empty()) document.set("wire_sha256", darlcore::to_hex(r.wire_sha256));
    }
    return json::dump(document);
}

std::string as_text(const merge_options& o, const host::merge_report& r) {
    std::string text;
    for (std::size_t i = 0; i < r.used.size(); ++i) {
        const auto& u = r.used[i];
        text += fmt::format("used      {}  share {:.4f}  drift {}\n", u.claim.site.name, u.share,
                            r.drift ? fmt::format("{:.3g}", r.drift->per_site[i]) : "-");
    }
    for (const auto& x : r.rejected) text += fmt::format("rejected  {}  {}: {}\n", x.path, word(x.code), x.reason);
    if (!r.merged) return text + "nothing usable: no file was written";
    if (r.agreement.overall)
        text += fmt::format("agreement {:.3f} (orthogonal deltas would give {:.3f})\n", *r.agreement.overall,
                            r.agreement.orthogonal_floor);
    return text + fmt::format("wrote     {}  {} parameters, eta {:g}, beta {:g}", o.out, r.layout.total_elements(),
                              r.rule.eta, r.rule.beta);
}

void run_merge(session& s, const merge_options& options) {
    const auto request = read_request(options);
    if (!request) return report(s, request.error());
    std::signal(SIGINT, &on_stop);
    std::signal(SIGTERM, &on_stop);
    const auto merged = host::merge_files(*request);
    if (!merged) return report_input(s, merged.error());
    if (merged->merged)
        if (const auto ok = publish(options, *request); !ok) return report(s, ok.error());
    print_line(s.json ? as_json(options, *merged) : as_text(options, *merged));
    if (!merged->merged) s.exit_code = exit_failed;
}

}  // namespace

void add_merge(CLI::App& app, session& s) {
    auto* command = app.add_subcommand("merge", "one outer step on safetensors files, without a server");
    const auto o = std::make_shared<merge_options>();
    command->add_option("--base", o->base, "global weights (f32)")->required();
    command->add_option("--velocity", o->velocity, "velocity of the merge before (f32); none for a first merge");
    command->add_option("--delta", o->deltas, "FILE:TOKENS, or FILE:TOKENS:SHA256; once per site")->required();
    command->add_option("--eta", o->eta, "outer learning rate")->capture_default_str();
    command->add_option("--beta", o->beta, "outer momentum")->capture_default_str();
    command->add_option("--solo", o->solo, "with one usable delta: full, outer or adopt")->capture_default_str();
    command->add_option("--first-step", o->first_step, "without a velocity: nesterov or plain")->capture_default_str();
    command->add_option("--out", o->out, "new global weights")->required();
    command->add_option("--velocity-out", o->velocity_out, "new velocity");
    command->add_option("--wire-out", o->wire_out, "new weights in bf16, as sites download them");
    command->add_option("--generation", o->generation, "generation of --base; default: what the files say");
    command->add_option("--memory-mib", o->memory_mib, "buffers, whatever the size of the model")
        ->capture_default_str();
    command->add_option("--threads", o->threads, "0 = all processors")->capture_default_str();
    command->footer(
        "Example: darl merge --base w.safetensors --delta a.safetensors:300000 --delta b.safetensors:100000 --out "
        "w2.safetensors "
        "--velocity-out v2.safetensors");
    command->callback([&s, o] { run_merge(s, *o); });
}

}  // namespace darl
