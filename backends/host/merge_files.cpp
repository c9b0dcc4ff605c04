// SPDX-License-Identifier: Apache-2.0
#include "backends/host/merge_files.hpp"

#include <new>

#include "backends/host/merge_inputs.hpp"
#include "backends/host/merge_stream.hpp"

namespace darlcore::host {

namespace {

result<void> set_shares(const merge_request& request, merge_report& report) {
    std::vector<std::uint64_t> tokens, steps;
    for (const used_delta& u : report.used) {
        tokens.push_back(u.claim.tokens);
        steps.push_back(u.claim.steps);
    }
    const auto shares = shares_of(tokens);
    if (!shares) return shares.error();
    for (std::size_t i = 0; i < shares->size(); ++i) report.used[i].share = (*shares)[i];
    report.rule = rule_for(request.policy, report.used.size(), request.velocity_path.has_value());
    report.step_advance = step_advance(steps);
    return {};
}

result<merge_report> merge(const merge_request& request) {
    if (const auto ok = validate(request.policy); !ok) return ok.error();
    const int threads = request.threads > 0 ? request.threads : cpu_backend().threads();
    merge_report report;
    const auto inputs = gather_inputs(request, threads, report);
    if (!inputs) return inputs.error();
    report.bytes_read = inputs->bytes_read;
    if (report.used.empty()) return report;
    if (const auto ok = set_shares(request, report); !ok) return ok.error();
    if (const auto ok = stream_merge(request, *inputs, threads, report); !ok) return ok.error();
    report.merged = true;
    return report;
}

}  // namespace

result<merge_report> merge_files(const merge_request& request) {
    try {
        return merge(request);
    } catch (const std::bad_alloc&) {
        return fail(errc::out_of_memory, "out of memory");  // short: no memory is taken for it
    }
}

}  // namespace darlcore::host
