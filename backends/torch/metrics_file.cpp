// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/metrics_file.hpp"

#include <sys/resource.h>

#include <chrono>

namespace darlcore::training {
namespace {

double wall_seconds() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()) / 1000.0;
}

json::value or_null(const std::optional<double>& x) { return x ? json::value(*x) : json::value(); }

}  // namespace

result<metrics_file> metrics_file::open(const std::string& path, metrics_common common) {
    metrics_file m;
    m.file_.reset(std::fopen(path.c_str(), "a"));
    if (!m.file_) return fail(errc::io_error, path + ": cannot be opened for appending");
    m.common_ = std::move(common);
    return m;
}

std::string metrics_file::write(std::string_view kind, const metrics_place& place, const json::value& members) {
    json::value line = json::make_object({{"time", wall_seconds()},
                                          {"run_id", common_.run_id},
                                          {"site", common_.site},
                                          {"incarnation", common_.incarnation},
                                          {"kind", kind},
                                          {"generation", place.generation},
                                          {"global_step", place.global_step},
                                          {"tokens_total", place.tokens_total}});
    for (const auto& [key, member] : *members.as_object()) line.set(key, member);
    std::string text = json::dump(line);
    failed_ = std::fprintf(file_.get(), "%s\n", text.c_str()) < 0 || std::fflush(file_.get()) != 0 || failed_;
    return text;
}

json::value step_metrics(const step_report& r) {
    return json::make_object(
        {{"loss", r.loss},
         {"lr", r.lr},
         {"grad_norm", r.grad_norm},
         {"tokens", r.tokens},
         {"tokens_per_s", r.step_s > 0.0 ? json::value(static_cast<double>(r.tokens) / r.step_s) : json::value()},
         {"step_s", r.step_s},
         {"data_wait_s", r.data_wait_s}});
}

json::value phase_metrics(const phase_summary& p, const delta_norms& norms, const phase_seconds& seconds,
                          std::uint64_t blocks, const std::string& contribution_id, std::span<const span> positions) {
    const bool any = p.tokens > 0;
    json::array trained;
    for (const span& s : positions)
        trained.push_back(json::array{json::value(s.start.count), json::value(s.end.count)});
    return json::make_object({{"steps", p.steps},
                              {"tokens", p.tokens},
                              {"loss", any ? json::value(p.loss_sum / static_cast<double>(p.tokens)) : json::value()},
                              {"blocks", blocks},
                              {"windows", p.windows},
                              {"compute_s", seconds.compute_s},
                              {"data_wait_s", p.data_wait_s},
                              {"download_s", seconds.download_s},
                              {"checkpoint_s", seconds.checkpoint_s},
                              {"upload_s", seconds.upload_s},
                              {"wait_s", seconds.wait_s},
                              {"evaluate_s", seconds.evaluate_s},
                              {"lost_s", seconds.lost_s},
                              {"wall_s", seconds.wall_s},
                              {"delta_norm", norms.delta},
                              {"drift", norms.weights > 0.0 ? json::value(norms.delta / norms.weights) : json::value()},
                              {"param_norm", norms.weights},
                              {"mem_peak_bytes", peak_memory_bytes()},
                              {"mfu", nullptr},
                              {"contribution", contribution_id},
                              {"positions", std::move(trained)}});
}

json::value evaluation_metrics(const evaluation& e, const std::string& set_digest) {
    return json::make_object({{"loss", or_null(e.loss())},
                              {"perplexity", or_null(e.perplexity())},
                              {"tokens", e.tokens},
                              {"windows", e.windows},
                              {"set_digest", set_digest}});
}

std::uint64_t peak_memory_bytes() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return 1024 * static_cast<std::uint64_t>(usage.ru_maxrss);
}

}  // namespace darlcore::training
