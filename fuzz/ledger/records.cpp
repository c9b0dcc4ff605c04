// SPDX-License-Identifier: Apache-2.0
// Bytes as a journal: [type u8][size u16][payload]... Whatever decodes must encode to the same bytes, and replaying it
// into a ledger must end in a state or an error, never in a crash. A first byte of 255 means a snapshot.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "darlcore/ledger/machine.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::ledger;

void require(bool holds) {
    if (!holds) std::abort();
}

void replay_records(std::string_view text) {
    run_settings settings;
    settings.run_id = "run";
    settings.space.num_samples = 64;
    settings.space.block_size = 2;
    settings.lease.answer_generations = 10;
    machine m(settings);
    ledger_time now{1'000};
    while (text.size() >= 3) {
        const auto type = static_cast<std::uint8_t>(text[0]);
        const std::size_t size = static_cast<std::uint8_t>(text[1]) + 256U * static_cast<std::uint8_t>(text[2]);
        const auto payload = text.substr(3, size);
        text.remove_prefix(3 + payload.size());
        const auto r = decode(type, payload);
        if (!r) continue;
        require(encode(*r) == payload);
        now = now + 1'000;
        if (!m.replay(*r, now)) return;
    }
    require(machine::from_snapshot(m.snapshot(), now).has_value() || !m.verify());
}

void read_snapshot(std::string_view text) {
    reader in(text);
    run_settings settings;
    (void)in.byte();
    in.value(settings);
    // a snapshot file is protected by a checksum; only its size is kept within reason here
    if (!in.ok() || settings.space.block_size == 0 || block_count(settings.space) > 10'000) return;
    const auto m = machine::from_snapshot(text, ledger_time{1'000});
    if (m) require(m->snapshot() == text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    if (size > 0 && data[0] == 255)
        read_snapshot(text.substr(1));
    else
        replay_records(text);
    return 0;
}
