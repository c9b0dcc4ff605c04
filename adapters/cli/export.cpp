// SPDX-License-Identifier: Apache-2.0
// `darl export`: weights as a folder that other tools read.
#include <filesystem>

#include <fmt/format.h>

#include "adapters/cli/cli_support.hpp"
#include "adapters/formats/json.hpp"
#include "adapters/formats/posix_file.hpp"
#include "backends/torch/weights_io.hpp"

namespace darl {
namespace {

using namespace darlcore;

struct export_options {
    std::string flavour, state_folder, config, tokenizer, out;
    std::int64_t seed = 0, vocab_size = 0, generation = -1;
};

result<models::model_config> config_of(const export_options& o) {
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

result<models::written_file> export_generation(const std::string& path, const models::model_config& config,
                                               const std::string& out) {
    auto file = formats::safetensors_reader::open(path);
    if (!file) return file.error();
    const auto specs = models::parameter_specs(config);
    std::size_t elements = 0;
    for (const auto& spec : specs) elements += static_cast<std::size_t>(spec.elements());
    std::vector<float> flat(elements);
    if (auto read = models::read_weights(*file, specs, flat); !read) return read.error();
    return models::write_model_folder(out, config, [&](std::uint64_t first, std::span<float> part) {
        std::copy_n(flat.begin() + static_cast<std::ptrdiff_t>(first), part.size(), part.begin());
    });
}

void run_export(const export_options& o, session& s) {
    const auto config = config_of(o);
    if (!config) return report(s, config.error());
    std::int64_t generation = 0;
    result<models::written_file> written = models::written_file{};
    if (o.state_folder.empty()) {
        written = models::export_initial(o.out, *config, o.seed);
    } else {
        const auto file = generation_file(o);
        if (!file) return report(s, file.error());
        generation = file->first;
        written = export_generation(file->second, *config, o.out);
    }
    if (!written) return report(s, written.error());
    std::error_code ec;
    if (!o.tokenizer.empty() && !std::filesystem::copy_file(o.tokenizer, o.out + "/tokenizer.json", ec)) {
        return report(s, fail(errc::io_error, fmt::format("{}: cannot be copied: {}", o.tokenizer, ec.message())));
    }
    const auto count = models::parameter_count(*config);
    if (!s.json) return print_line(fmt::format("{}: {} parameters, {} bytes", o.out, count, written->bytes));
    print_line(json::dump(json::make_object({{"generation", generation},
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
    command->add_option("--generation", o->generation, "which one (default: the current)");
    command->add_option("--tokenizer", o->tokenizer, "tokenizer.json to put beside the weights");
    command->add_option("--out", o->out, "folder to make; must not hold anything")->required();
    command->footer("Example: darl export --flavour debug-1m --seed 1 --out model");
    command->callback([o, &s, flavour, config] {
        if (flavour->empty() && config->empty()) {
            return report(
                s, fail(errc::invalid_argument, "export: give the model's geometry with --flavour or --config-json"));
        }
        run_export(*o, s);
    });
}

}  // namespace darl
