// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/run_record.hpp"

#include <fmt/format.h>

#include "adapters/formats/json.hpp"

namespace darl {

using namespace darlcore;

result<void> run_record::open(const std::string& path) {
    file_.open(path, std::ios::app);
    if (!file_) return fail(errc::io_error, fmt::format("{}: cannot be written", path));
    write(R"({"kind":"started"})");
    return {};
}

void run_record::read(std::uint64_t phase, const site::action::train_group& group) {
    json::value spans{json::array{}};
    for (const auto& s : group.spans) spans.push_back(json::value(json::array{s.start.count, s.end.count}));
    write(json::dump(json::make_object({{"kind", "read"},
                                        {"phase", phase},
                                        {"group", group.group},
                                        {"counter", group.counter},
                                        {"epoch", group.epoch.count},
                                        {"spans", spans}})));
}

void run_record::contribution(std::uint64_t phase, std::uint64_t groups, const std::string& id,
                              const std::string& sha256) {
    write(json::dump(json::make_object(
        {{"kind", "contribution"}, {"phase", phase}, {"groups", groups}, {"id", id}, {"sha256", sha256}})));
}

void run_record::settled(const site::action::settle& outcome) {
    write(json::dump(json::make_object({{"kind", "settled"}, {"id", outcome.id.text}, {"merged", outcome.merged}})));
}

void run_record::write(const std::string& line) {
    const std::lock_guard lock(mutex_);
    file_ << line << '\n' << std::flush;
}

}  // namespace darl
