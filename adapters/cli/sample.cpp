// SPDX-License-Identifier: Apache-2.0
// `darl sample`: text from a model, to see what it learned.
#include <fmt/format.h>

#include "adapters/cli/cli_support.hpp"
#include "adapters/cli/model_input.hpp"
#include "adapters/formats/json.hpp"
#include "backends/torch/compute_environment.hpp"
#include "backends/torch/language_model.hpp"

namespace darl {
namespace {

using namespace darlcore;

struct sample_options {
    std::string model, prompt, tokenizer;
    models::language_model::sampling how;
};

// Texts that end inside a character would be no valid JSON: ill-formed bytes are shown as the replacement character.
std::string valid_utf8(const std::string& text) {
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
        const auto lead = static_cast<unsigned char>(text[i]);
        const std::size_t size = lead < 0x80                         ? 1
                                 : (lead >> 5U) == 6 && lead > 0xc1  ? 2
                                 : (lead >> 4U) == 14                ? 3
                                 : (lead >> 3U) == 30 && lead < 0xf5 ? 4
                                                                     : 0;
        bool good = size > 0 && i + size <= text.size();
        for (std::size_t k = 1; good && k < size; ++k) good = (static_cast<unsigned char>(text[i + k]) >> 6U) == 2;
        if (good && size == 3) {
            const auto second = static_cast<unsigned char>(text[i + 1]);
            good = !(lead == 0xe0 && second < 0xa0) && !(lead == 0xed && second > 0x9f);
        } else if (good && size == 4) {
            const auto second = static_cast<unsigned char>(text[i + 1]);
            good = !(lead == 0xf0 && second < 0x90) && !(lead == 0xf4 && second > 0x8f);
        }
        out += good ? text.substr(i, size) : std::string("\xef\xbf\xbd");
        i += good ? size : 1;
    }
    return out;
}

result<std::vector<std::int64_t>> prompt_ids(const formats::tokenizer& words, const std::string& prompt) {
    std::vector<std::uint32_t> ids;
    if (words.bos_id()) ids.push_back(*words.bos_id());
    if (auto ok = words.encode(prompt, ids); !ok) return ok.error();
    return std::vector<std::int64_t>(ids.begin(), ids.end());
}

void run_sample(const sample_options& o, session& s) {
    training::restart_with_worker_environment();
    auto model = models::language_model::open(o.model);
    if (!model) return report_input(s, model.error());
    const auto words = tokenizer_of(o.model, o.tokenizer, model->config().vocab_size);
    if (!words) return report_input(s, words.error());
    auto prompt = prompt_ids(**words, o.prompt);
    if (!prompt) return report_input(s, prompt.error());
    if (prompt->empty())
        return report(
            s, fail(errc::invalid_argument, "sample: the prompt gives no ids and the tokenizer has no start id"));
    const bool bytes = (*words)->name() == "bytes";
    const auto allowed = [&](std::int64_t id) { return !bytes || id < 256; };  // the rest of its vocabulary is padding
    const auto made = model->sample(*prompt, o.how, allowed);
    if (!made) return report(s, made.error());
    const std::vector<std::uint32_t> ids(made->begin(), made->end());
    const auto text = (*words)->decode(ids);
    if (!text) return report(s, text.error());
    if (!s.json) return print_line(o.prompt + valid_utf8(*text));
    print_line(json::dump(json::make_object({{"text", valid_utf8(*text)},
                                             {"ids", json::array(made->begin(), made->end())},
                                             {"prompt_ids", json::array(prompt->begin(), prompt->end())}})));
}

}  // namespace

void add_sample(CLI::App& app, session& s) {
    auto* command = app.add_subcommand("sample", "text from a model");
    auto o = std::make_shared<sample_options>();
    command->add_option("--model", o->model, "model folder (config.json, model.safetensors)")->required();
    command->add_option("--prompt", o->prompt, "text to continue")->required();
    command->add_option("--tokens", o->how.tokens, "ids to draw")->check(CLI::PositiveNumber)->capture_default_str();
    command->add_option("--temperature", o->how.temperature, "0 takes the most likely id")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    command->add_option("--seed", o->how.seed, "another seed, another text")->capture_default_str();
    command->add_option("--tokenizer", o->tokenizer, "bytes or a tokenizer.json (default: the model folder's)");
    command->footer("Example: darl sample --model model --prompt 'It is a truth' --tokens 200 --temperature 0.8");
    command->callback([o, &s] { run_sample(*o, s); });
}

}  // namespace darl
