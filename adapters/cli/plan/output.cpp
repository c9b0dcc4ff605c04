// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/plan/output.hpp"

#include <cmath>

namespace darl::plan_io {

using namespace darlcore::plan;

namespace {

json::value optional_number(const std::optional<double>& v) { return v ? json::value(*v) : json::value(); }
json::value finite_or_null(double v) { return std::isfinite(v) ? json::value(v) : json::value(); }

template <class T>
json::value list_of(const std::vector<T>& items) {
    json::array made;
    for (const T& i : items) made.emplace_back(i);
    return made;
}

json::value readings_of(const std::vector<reading_row>& rows) {
    json::array made;
    for (const reading_row& r : rows)
        made.push_back(json::make_object({{"site", r.site},
                                          {"shape", r.shape},
                                          {"wait_raw_s", optional_number(r.wait_raw_s)},
                                          {"wait_s", optional_number(r.wait_s)},
                                          {"gamma", optional_number(r.gamma)},
                                          {"discounted", r.discounted},
                                          {"age_s", optional_number(r.age_s)},
                                          {"class", r.kind},
                                          {"flags", list_of(r.flags)}}));
    return made;
}

json::value excluded_of(std::vector<exclusion> all, const std::vector<exclusion>& more) {
    all.insert(all.end(), more.begin(), more.end());
    json::array made;
    for (const exclusion& e : all)
        made.push_back(json::make_object({{"site", e.site},
                                          {"shape", e.shape.empty() ? json::value() : json::value(e.shape)},
                                          {"code", word(e.code)},
                                          {"number", optional_number(e.number)},
                                          {"what", e.what},
                                          {"fix", e.fix}}));
    return made;
}

}  // namespace

json::value waterfill_document(const waterfill_input& input, const waterfill_plan& plan, std::optional<double> now_s) {
    json::value sites{json::object{}};
    for (const waterfill_share& s : plan.sites) {
        json::value share = json::make_object({{"units", s.units}});
        if (s.units > 0) {
            share.set("shape", s.shape).set("gpus", s.gpus).set("start_h", s.start_h).set("finish_h", s.finish_h);
            share.set("walltime_h", s.walltime_h).set("jobs", s.jobs);
        }
        sites.set(s.site, share);
    }
    return json::make_object({{"schema", 1},
                              {"kind", "waterfill"},
                              {"inputs", json::make_object({{"now_s", optional_number(now_s)},
                                                            {"units", input.request.units},
                                                            {"reserve_units", input.request.reserve_units},
                                                            {"readings", readings_of(input.readings)}})},
                              {"excluded", excluded_of(input.excluded, plan.excluded)},
                              {"feasible", plan.feasible},
                              {"makespan_h", plan.makespan_h},
                              {"latest_finish_h", plan.latest_finish_h},
                              {"assigned", plan.assigned},
                              {"unassigned", plan.unassigned},
                              {"exact", plan.exact},
                              {"sites", sites}});
}

namespace {

json::value options_of(const planned_campaign& p) {
    json::array made;
    for (std::size_t i = 0; i < p.options.size(); ++i) {
        const plan_option& o = p.options[i];
        std::uint32_t accumulation = 1;
        for (const campaign_lane& l : p.model.lanes)
            if (l.option == i) accumulation = l.cost.accumulation;
        made.push_back(json::make_object({{"site", o.site},
                                          {"shape", o.shape},
                                          {"args", i < p.args.size() ? list_of(p.args[i]) : json::value(json::array{})},
                                          {"nodes", o.nodes},
                                          {"gpus", o.gpus},
                                          {"wait_s", o.wait_s},
                                          {"walltime_s", o.walltime_s},
                                          {"lanes", o.lanes},
                                          {"links", o.links},
                                          {"chain", word(o.chain)},
                                          {"begin_s", o.begin_s},
                                          {"accumulation", accumulation}}));
    }
    return made;
}

json::value sites_of(const planned_campaign& p) {
    json::array made;
    for (std::size_t k = 0; k < p.report.sites.size(); ++k) {
        const site_report& s = p.report.sites[k];
        json::array windows;
        for (const campaign_lane& l : p.model.lanes) {
            if (l.site != k) continue;
            for (const link& w : l.links)
                windows.push_back(json::make_object({{"lane", l.label},
                                                     {"submit_s", w.submit_s},
                                                     {"arrival_s", w.arrival_s},
                                                     {"productive_s", w.productive_s},
                                                     {"end_s", w.end_s}}));
        }
        made.push_back(json::make_object({{"site", s.site},
                                          {"queued_s", s.queued_s},
                                          {"startup_s", s.startup_s},
                                          {"head_s", s.head_s},
                                          {"between_s", s.between_s},
                                          {"coresident_s", s.coresident_s},
                                          {"tail_s", s.tail_s},
                                          {"gap_s", s.gap_s},
                                          {"compute_s", s.compute_s},
                                          {"idle_s", s.idle_s},
                                          {"merges", s.merges},
                                          {"federated", s.federated},
                                          {"tokens", s.tokens},
                                          {"blocks", s.blocks},
                                          {"billed_gpu_s", s.billed_gpu_s},
                                          {"accumulation", list_of(s.accumulation)},
                                          {"links", windows}}));
    }
    return made;
}

json::value intervals_of(const planned_campaign& p) {
    json::array made;
    for (const campaign_interval& v : p.outcome.intervals) {
        json::array members;
        for (std::size_t i = 0; i < p.model.lanes.size(); ++i)
            if ((v.members >> i & 1U) != 0) members.emplace_back(p.model.lanes[i].label);
        made.push_back(json::make_object(
            {{"start_s", v.start_s},
             {"end_s", v.end_s},
             {"members", members},
             {"rounds", v.rounds},
             {"federated", v.federated},
             {"mean_period_s", v.rounds == 0 ? 0.0 : (v.end_s - v.start_s) / static_cast<double>(v.rounds)},
             {"blocks_left", static_cast<double>(v.windows_left) / p.model.block_windows},
             {"stop", word(v.stop, p.config.rules)}}));
    }
    return made;
}

json::value recommended_of(const planned_campaign& p) {
    const campaign_outcome& o = p.outcome;
    const auto reached = p.config.target_tokens ? o.target_s : o.corpus_exhausted_s;
    return json::make_object({{"options", options_of(p)},
                              {"time_to_target_s", optional_number(reached)},
                              {"idealised_time_to_target_s", finite_or_null(p.idealised_s)},
                              {"federated_rounds", o.federated_rounds},
                              {"solo_rounds", o.solo_rounds},
                              {"short_rounds", o.short_rounds},
                              {"tokens", o.windows * p.model.seq_len},
                              {"blocks_used", static_cast<double>(o.windows) / p.model.block_windows},
                              {"run_end_s", o.run_end_s},
                              {"corpus_exhausted_s", optional_number(o.corpus_exhausted_s)},
                              {"attempts_exhausted_s", optional_number(o.attempts_exhausted_s)},
                              {"first_federated_start_s", optional_number(o.first_federated_start_s)},
                              {"last_federated_start_s", optional_number(o.last_federated_start_s)},
                              {"billed_gpu_s", p.report.billed_gpu_s},
                              {"compute_s", p.report.compute_s},
                              {"node_hours", p.report.node_hours},
                              {"jobs", p.report.jobs},
                              {"ended_by", word(o.ended_by)},
                              {"quality", word(p.report.grade)},
                              {"traps", list_of(p.report.traps)},
                              {"warnings", list_of(p.model.warnings)},
                              {"sites", sites_of(p)},
                              {"intervals", intervals_of(p)}});
}

json::value summary_of(const scored_plan& s) {
    json::array options;
    for (const plan_option& o : s.options)
        options.push_back(json::make_object({{"site", o.site},
                                             {"shape", o.shape},
                                             {"lanes", o.lanes},
                                             {"links", o.links},
                                             {"chain", word(o.chain)},
                                             {"begin_s", o.begin_s}}));
    return json::make_object({{"options", options},
                              {"time_to_target_s", finite_or_null(s.time_s)},
                              {"federated_rounds", s.federated},
                              {"solo_rounds", s.solo},
                              {"tokens", s.tokens},
                              {"node_hours", s.node_hours},
                              {"ended_by", word(s.ended_by)},
                              {"quality", word(s.grade)},
                              {"traps", list_of(s.traps)}});
}

}  // namespace

json::value campaign_document(const campaign_input& input, const planned_campaign& p, std::optional<double> now_s) {
    json::array alternatives, rows, marginal;
    for (const losing_plan& a : p.alternatives) {
        json::value row = summary_of(a.plan);
        row.set("lost_by", a.lost_by);
        alternatives.push_back(row);
    }
    for (const sensitivity_row& s : p.sensitivity) {
        json::value row = s.best ? summary_of(*s.best) : json::value(json::object{});
        row.set("setting", s.setting).set("same_choice", s.same_choice);
        rows.push_back(row);
    }
    for (const auto& [site, lost] : p.marginal_s)
        marginal.push_back(json::make_object({{"site", site}, {"time_lost_without_s", finite_or_null(lost)}}));
    json::array argv;
    return json::make_object(
        {{"schema", 1},
         {"kind", "campaign"},
         {"inputs", json::make_object({{"now_s", optional_number(now_s)},
                                       {"rules", input.config.rules == rule_set::strict ? "strict" : "reference"},
                                       {"balance", p.config.balance},
                                       {"horizon_s", input.config.horizon_s},
                                       {"blocks_unassigned", input.config.blocks_unassigned},
                                       {"readings", readings_of(input.readings)}})},
         {"excluded", excluded_of(input.excluded, {})},
         {"recommended", recommended_of(p)},
         {"alternatives", alternatives},
         {"marginal", marginal},
         {"exact", p.exact},
         {"gap_s", finite_or_null(p.gap_s)},
         {"sensitivity", rows},
         {"argv", argv}});
}

}  // namespace darl::plan_io
