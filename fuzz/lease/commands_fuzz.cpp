// SPDX-License-Identifier: Apache-2.0
// Lease commands from bytes: table, twin and replay run the same history and must agree. Eight bytes of settings, then
// six per command.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "darlcore/testing/lease_model.hpp"

namespace {

using namespace darlcore;

lease::settings settings_from(const std::uint8_t* b) {
    lease::settings s;
    s.commit_policy = b[0] % 4 == 0 ? lease::commit_policy::on_checkpoint : lease::commit_policy::on_merge;
    s.allow_stealing = b[0] % 8 != 7;
    s.quarantine_second_chance = b[1] % 2 == 0;
    s.max_attempts = b[1] / 2 % 5;
    s.max_losses = std::max<std::uint32_t>(s.max_attempts, b[2] % 12);
    s.max_epochs = 1 + b[3] % 3;
    s.min_blocks = 1 + b[4] % 3;
    s.max_blocks = b[4] % 5 == 0 ? 8 : 0;
    s.steal_min_blocks = 1 + b[5] % 4;
    s.max_leases_per_site = b[5] % 7 == 0 ? 2 : 256;
    s.request_ring = 1 + b[6] % 64;
    return s;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 8) return 0;
    const std::uint64_t blocks = 1 + data[7] % 64;
    testing::lease_model<> model(lease::table::create({blocks, ""}, settings_from(data)).value(), 1 + data[3] % 6);
    for (std::size_t i = 8; i + 6 <= std::min<std::size_t>(size, 8 + 6 * 400); i += 6) {
        const auto amount = static_cast<std::uint16_t>(data[i + 4] | (data[i + 5] << 8U));
        if (model.step({data[i], data[i + 1], data[i + 2], data[i + 3], amount})) continue;
        std::fprintf(stderr, "%s\n", model.fault()->c_str());
        std::abort();
    }
    return 0;
}
