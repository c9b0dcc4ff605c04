// SPDX-License-Identifier: Apache-2.0
// `darl logits`: logits of given ids, so that anybody can compare with another implementation.
#include "adapters/cli/cli_support.hpp"
#include "adapters/cli/model_input.hpp"
#include "adapters/formats/json.hpp"
#include "backends/torch/compute_environment.hpp"
#include "backends/torch/language_model.hpp"

namespace darl {
namespace {

using namespace darlcore;

json::value rows_of(const std::vector<float>& flat, std::size_t vocab) {
    json::array rows;
    for (std::size_t first = 0; first < flat.size(); first += vocab) {
        json::array row;
        for (std::size_t i = 0; i < vocab; ++i) row.emplace_back(static_cast<double>(flat[first + i]));
        rows.emplace_back(std::move(row));
    }
    return rows;
}

void run_logits(const std::string& folder, const std::string& ids_file, session& s) {
    const auto sequences = read_id_lists(ids_file);
    if (!sequences) return report_input(s, sequences.error());
    training::restart_with_worker_environment();
    auto model = models::language_model::open(folder);
    if (!model) return report_input(s, model.error());
    json::array all;
    for (const auto& ids : *sequences) {
        const auto flat = model->logits(ids);
        if (!flat) return report(s, fail(flat.error().code, ids_file + ": " + flat.error().context));
        all.push_back(rows_of(*flat, static_cast<std::size_t>(model->config().vocab_size)));
    }
    print_line(json::dump(json::make_object({{"logits", std::move(all)}})));
}

}  // namespace

void add_logits(CLI::App& app, session& s) {
    auto* command = app.add_subcommand("logits", "logits of a model for given ids, as JSON");
    auto folder = std::make_shared<std::string>(), ids = std::make_shared<std::string>();
    command->add_option("--model", *folder, "model folder (config.json, model.safetensors)")->required();
    command->add_option("--ids", *ids, "file with a JSON list of lists of ids")->required();
    command->footer("Example: echo '[[1, 2, 3]]' > ids.json && darl logits --model model --ids ids.json");
    command->callback([folder, ids, &s] { run_logits(*folder, *ids, s); });
}

}  // namespace darl
