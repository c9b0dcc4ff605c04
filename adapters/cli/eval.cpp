// SPDX-License-Identifier: Apache-2.0
// `darl eval`: loss and perplexity of a model folder on token shards.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "adapters/cli/cli_support.hpp"
#include "adapters/formats/json.hpp"
#include "adapters/formats/token_corpus.hpp"
#include "adapters/formats/tokenizer.hpp"
#include "backends/torch/compute_environment.hpp"
#include "backends/torch/language_model.hpp"
#include "darlcore/hex.hpp"

namespace darl {
namespace {

using namespace darlcore;

struct eval_options {
    std::string model, data;
    std::uint64_t windows = 0, batch = 8;
};

result<double> loss_over(models::language_model& model, const formats::token_corpus& corpus, std::uint64_t windows,
                         std::uint64_t batch) {
    const std::uint64_t window = corpus.window();
    double total = 0.0;
    std::vector<std::uint32_t> raw;
    for (std::uint64_t first = 0; first < windows; first += batch) {
        const std::uint64_t n = std::min(batch, windows - first);
        raw.resize(static_cast<std::size_t>(n * window));
        if (auto ok = corpus.read_windows(first, n, raw); !ok) return ok.error();
        const std::vector<std::int64_t> ids(raw.begin(), raw.end());
        const auto loss = model.loss_sum(ids, static_cast<std::int64_t>(window));
        if (!loss) return loss;
        total += *loss;
    }
    return total;
}

void run_eval(const eval_options& o, session& s) {
    const auto corpus = formats::token_corpus::open(o.data);
    if (!corpus) return report_input(s, corpus.error());
    training::restart_with_worker_environment();
    auto model = models::language_model::open(o.model);
    if (!model) return report_input(s, model.error());
    const auto rows = static_cast<std::uint64_t>(model->config().vocab_size);
    if (corpus->manifest().vocab_size > formats::padded_vocab_size(rows))
        return report(
            s, fail(errc::invalid_argument,
                    fmt::format("{}: has a vocabulary of {}, {} of {}; tokenize the text with the model's tokenizer",
                                o.data, corpus->manifest().vocab_size, o.model, rows)));
    const std::uint64_t windows = o.windows == 0 ? corpus->num_windows() : std::min(o.windows, corpus->num_windows());
    const auto total = loss_over(*model, *corpus, windows, o.batch);
    if (!total) return report_input(s, total.error());
    const std::uint64_t tokens = windows * (corpus->window() - 1);
    const double loss = *total / static_cast<double>(tokens);
    const bool scored = tokens > 0 && std::isfinite(loss);
    const std::string digest = to_hex(corpus->identity());
    if (s.json) {
        print_line(json::dump(json::make_object({{"loss", scored ? json::value(loss) : json::value()},
                                                 {"perplexity", scored ? json::value(std::exp(loss)) : json::value()},
                                                 {"tokens", tokens},
                                                 {"windows", windows},
                                                 {"set_digest", digest}})));
    } else if (scored) {
        print_line(fmt::format("loss {:.6f}, perplexity {:.4f} over {} tokens in {} windows", loss, std::exp(loss),
                               tokens, windows));
    }
    if (!scored) report(s, fail(errc::not_finite, "eval: the loss is not a finite number"));
}

}  // namespace

void add_eval(CLI::App& app, session& s) {
    auto* command = app.add_subcommand("eval", "loss and perplexity of a model on token shards");
    auto o = std::make_shared<eval_options>();
    command->add_option("--model", o->model, "model folder (config.json, model.safetensors)")->required();
    command->add_option("--data", o->data, "token folder or its manifest.json")->required();
    command->add_option("--windows", o->windows, "score only the first n windows (default: all)");
    command->add_option("--batch", o->batch, "windows at a time")->check(CLI::PositiveNumber)->capture_default_str();
    command->footer("Example: darl eval --model model --data heldout");
    command->callback([o, &s] { run_eval(*o, s); });
}

}  // namespace darl
