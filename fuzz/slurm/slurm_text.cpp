// SPDX-License-Identifier: Apache-2.0
// First byte: kind of text. The rest: the text; for shapes one token a line.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "backends/slurm/accounting.hpp"
#include "backends/slurm/job_history.hpp"
#include "backends/slurm/parse_json.hpp"
#include "backends/slurm/shape.hpp"
#include "backends/slurm/test_only.hpp"
#include "backends/slurm/text.hpp"

namespace {

void require(bool promise) {
    if (!promise) std::abort();
}

void check_test_only(std::string_view text, bool assume_utc) {
    darlcore::slurm::test_only_options o;
    o.now_s = 1788000000;
    o.rc = static_cast<int>(text.size() % 2);
    o.assume_utc = assume_utc;
    const auto a = darlcore::slurm::parse_test_only(text, o);
    if (a.kind == darlcore::plan::probe_class::accepted) {
        require(a.start_s && a.wait_s);
        require(*a.start_s >= o.now_s - 120 && *a.start_s <= o.now_s + 30LL * 86400);
        require(*a.wait_s >= 0 && *a.wait_s <= 30LL * 86400);
    } else {
        require(!a.wait_s);
    }
    require(a.messages.size() <= 20);
    for (const auto& m : a.messages) require(m.size() <= 512);
}

void check_shape(std::string_view text) {
    std::vector<std::string> args;
    for (const auto line : darlcore::slurm::lines_of(text)) args.emplace_back(line);
    const auto a = darlcore::slurm::read_shape(args);
    require(a.key.has_value() != !a.problem.word.empty());
    if (!a.key) return;
    require(a.key->nodes >= 1 && a.key->walltime_s > 0 && !a.key->partition.empty());
    for (const auto& token : args) require(token.find_first_of(";$`\"'\\|&<>(){}\n") == std::string::npos);
}

void check_sacct(std::string_view text) {
    darlcore::slurm::sacct_options o;
    o.jobs_min = 1;
    const auto a = darlcore::slurm::parse_sacct(text, o);
    if (a.all.gamma) require(*a.all.gamma > 0 && *a.all.gamma <= 1);
    const auto history = darlcore::slurm::read_history(text);
    if (!history) return;
    for (const auto& j : history->jobs) require(j.nodes >= 1 && j.limit_s > 0 && j.start_s >= j.submit_s);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
    switch (data[0] % 5) {
        case 0:
            check_test_only(text, true);
            break;
        case 1:
            check_test_only(text, false);
            break;
        case 2:
            check_shape(text);
            break;
        case 3:
            check_sacct(text);
            break;
        default: {
            constexpr std::size_t kinds = std::size(darlcore::slurm::parse_kinds);
            const auto kind = darlcore::slurm::parse_kinds[static_cast<std::size_t>(data[0] / 5) % kinds];
            require(darlcore::slurm::parse_as_json(kind, text, darlcore::json::value(), {}).has_value());
        }
    }
    return 0;
}
