// SPDX-License-Identifier: Apache-2.0
// `darl export`: weights as a folder that other tools read.
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "adapters/cli/cli_support.hpp"
#include "adapters/cli/token_input.hpp"
#include "adapters/formats/json.hpp"
#include "adapters/formats/posix_file.hpp"
#include "backends/torch/weights_io.hpp"
#ifdef DARL_WITH_CURL
#include "adapters/cli/fetch_generation.hpp"
#endif

namespace darl {
namespace {

using namespace darlcore;

struct export_options {
    std::string flavour, state_folder, config, tokenizer, out;
    server_access server;
    std::int64_t seed = 0, vocab_size = 0, generation = -1;
};

// Weights to export: a generation of a server, in a file of the server's or in one that was fetched.
struct weights_source {
    std::int64_t generation = 0;
    std::string path;
    bool fetched = false;  // ours to remove

    weights_source() = default;
    weights_source(const weights_source&) = delete;
    weights_source& operator=(const weights_source&) = delete;
    ~weights_source() {
        std::error_code ignored;
        if (fetched) std::filesystem::remove(path, ignored);
    }
};

result<models::model_config> given_config(const export_options& o) {
    if (o.config.empty()) return models::flavour(o.flavour, o.vocab_size);
    auto text = formats::read_text_file(o.config, std::uint64_t{1} << 24U);
    if (!text) return text.error();
    return models::parse_config(*text, o.config);
}

// The weights of a generation as the server keeps them: model/gen-000000000012/global.safetensors.
result<std::pair<std::int64_t, std::string>> generation_file(const export_options& o) {
    const std::string model = o.state_folder + "/model";
    std::int64_t generation = o.generation;
    if (generation < 0) {
        auto current = formats::read_text_file(model + "/CURRENT", 4096);
        if (!current) return current.error();
        if (!current->starts_with("gen-")) return fail(errc::corrupt, model + "/CURRENT: does not name a generation");
        generation = std::strtoll(current->c_str() + 4, nullptr, 10);
    }
    return std::pair(generation, fmt::format("{}/gen-{:012}/global.safetensors", model, generation));
}

result<void> find_weights(const export_options& o, weights_source& source) {
#ifdef DARL_WITH_CURL
    if (!o.server.url.empty()) {
        std::error_code ec;
        const auto out = std::filesystem::absolute(o.out, ec).lexically_normal();
        source.path = formats::staging_name((out.has_filename() ? out : out.parent_path()).string()) + ".safetensors";
        source.fetched = true;
        const auto generation = fetch_generation({o.server, o.generation, source.path});
        if (!generation) return generation.error();
        source.generation = *generation;
        return {};
    }
#endif
    auto file = generation_file(o);
    if (!file) return file.error();
    source.generation = file->first;
    source.path = std::move(file->second);
    return {};
}

result<models::written_file> export_weights(const std::string& path, const export_options& o,
                                            std::optional<models::model_config>& config) {
    auto file = formats::safetensors_reader::open(path);
    if (!file) return file.error();
    if (!config) {
        const auto found = models::config_of_weights(*file);
        if (!found) return found.error();
        config = *found;
    }
    const auto specs = models::parameter_specs(*config);
    std::size_t elements = 0;
    for (const auto& spec : specs) elements += static_cast<std::size_t>(spec.elements());
    std::vector<float> flat(elements);
    if (auto read = models::read_weights(*file, specs, flat); !read) return read.error();
    return models::write_model_folder(o.out, *config, [&](std::uint64_t first, std::span<float> part) {
        std::copy_n(flat.begin() + static_cast<std::ptrdiff_t>(first), part.size(), part.begin());
    });
}

// A folder that cannot be written is told before anything is fetched.
result<void> check_paths(const export_options& o) {
    std::error_code ec;
    if (std::filesystem::exists(o.out, ec) && !std::filesystem::is_empty(o.out, ec))
        return fail(errc::already_exists, o.out + ": exists and is not empty; choose another --out or remove it");
    if (!o.tokenizer.empty() && !std::filesystem::is_regular_file(o.tokenizer, ec))
        return fail(errc::not_found, o.tokenizer + ": is no file; give --tokenizer a tokenizer.json");
    return {};
}

void run_export(const export_options& o, session& s) {
    std::optional<models::model_config> config;
    if (!o.flavour.empty() || !o.config.empty()) {
        const auto given = given_config(o);
        if (!given) return report_input(s, given.error());
        config = *given;
    }
    if (const auto ok = check_paths(o); !ok) return report(s, ok.error());
    weights_source source;
    const bool initial = o.state_folder.empty() && o.server.url.empty();
    if (!initial)
        if (const auto ok = find_weights(o, source); !ok) return report(s, ok.error());
    const auto written =
        initial ? models::export_initial(o.out, *config, o.seed) : export_weights(source.path, o, config);
    if (!written) return report_input(s, written.error());
    std::error_code ec;
    if (!o.tokenizer.empty() && !std::filesystem::copy_file(o.tokenizer, o.out + "/tokenizer.json", ec)) {
        return report(s, fail(errc::io_error, fmt::format("{}: cannot be copied: {}", o.tokenizer, ec.message())));
    }
    const auto count = models::parameter_count(*config);
    if (!s.json) return print_line(fmt::format("{}: {} parameters, {} bytes", o.out, count, written->bytes));
    print_line(json::dump(json::make_object({{"generation", source.generation},
                                             {"parameters", count},
                                             {"sha256", written->sha256},
                                             {"bytes", written->bytes},
                                             {"path", o.out}})));
}

}  // namespace

void add_export(CLI::App& app, session& s) {
    auto* command = app.add_subcommand("export", "write a model as a Hugging Face folder");
    auto o = std::make_shared<export_options>();
    auto* flavour = command->add_option("--flavour", o->flavour, "built-in geometry: debug-1m ... 32B");
    auto* config =
        command->add_option("--config-json", o->config, "a config.json instead of a flavour")->excludes(flavour);
    command->add_option("--vocab-size", o->vocab_size, "rows of the embedding, instead of the flavour's own")
        ->needs(flavour);
    auto* seed = command->add_option("--seed", o->seed, "initial weights of this run seed");
    command->add_option("--state-dir", o->state_folder, "a generation of this server state, instead of initial weights")
        ->excludes(seed);
    auto* state = command->get_option("--state-dir");
    command->add_option("--generation", o->generation, "which one (default: the current)");
#ifdef DARL_WITH_CURL
    auto* server = command
                       ->add_option("--server", o->server.url,
                                    "the current generation of this darl serve (URL), as sites get it: bf16")
                       ->excludes(seed)
                       ->excludes(state);
    add_server_access(command, o->server, server);
#else
    (void)state;
#endif
    command->add_option("--tokenizer", o->tokenizer, "tokenizer.json to put beside the weights");
    command->add_option("--out", o->out, "folder to make; must not hold anything")->required();
    command->footer(
        "The geometry of a generation is found from its tensors when it is a built-in one.\n"
        "Example: darl export --flavour debug-1m --seed 1 --out model\n"
        "         darl export --server http://127.0.0.1:8760 --out model");
    command->callback([o, &s, flavour, config] {
        if (flavour->empty() && config->empty() && o->state_folder.empty() && o->server.url.empty()) {
            return report(
                s, fail(errc::invalid_argument, "export: give the model's geometry with --flavour or --config-json"));
        }
        run_export(*o, s);
    });
}

}  // namespace darl
