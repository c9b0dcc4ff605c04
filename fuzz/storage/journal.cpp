// SPDX-License-Identifier: Apache-2.0
// Bytes as the journal folder of a state directory: two segments, a snapshot, acked. A start either refuses or gives a
// state that a second start gives again; inspect and salvage never fail in another way.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backends/sim/disk.hpp"
#include "backends/storage/bytes.hpp"
#include "backends/storage/inspect.hpp"
#include "backends/storage/ledger_store.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::storage;

struct seen_records {
    std::vector<std::string> payloads;
    replay_target target() {
        return {[this](const snapshot_info& info, std::string_view payload) -> result<void> {
                    if (info.sequence > 1000) return fail(errc::corrupt, "too far for this target");
                    payloads.assign(static_cast<std::size_t>(info.sequence), std::string(payload));
                    return {};
                },
                [this](const record& r) -> result<void> {
                    payloads.emplace_back(r.payload);
                    return {};
                }};
    }
};

void put_file(sim::disk& on, const std::string& path, std::string_view bytes) {
    auto opened = on.open(path, open_mode::create);
    DARLCORE_ASSERT(opened.has_value());
    DARLCORE_ASSERT(pwrite_all(**opened, bytes, 0).has_value());
    DARLCORE_ASSERT((*opened)->fsync().has_value());
}

// The fuzzer changes payloads and lengths; their checksums are put right where bit 0 of the choice asks for it, so that
// it gets behind them.
std::string sealed(std::string bytes, std::uint32_t salt) {
    for (std::size_t at = segment_header_bytes; at + record_header_bytes <= bytes.size();) {
        const auto payload = get<std::uint32_t>(bytes, at);
        if (payload == 0 || payload > bytes.size() || at + record_bytes(payload) > bytes.size()) break;
        at = reseal_record(bytes, at, (get<std::uint16_t>(bytes, at + 6) & 1U) != 0, salt);
    }
    return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 4 || size > 16384) return 0;
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    const auto choice = static_cast<unsigned char>(input[0]);
    const std::size_t first_bytes = get<std::uint16_t>(input, 1) % (size - 3 + 1);
    std::string first = encode(segment_header{{}, 1, 1, 7}) + std::string(input.substr(3, first_bytes));
    std::string rest(input.substr(3 + first_bytes));
    if ((choice & 1U) != 0) first = sealed(std::move(first), 7);
    sim::disk on;
    DARLCORE_ASSERT(ensure_directory(on, "/run").has_value() && ensure_directory(on, "/run/journal").has_value());
    put_file(on, "/run/term", encode_term(1));
    put_file(on, "/run/journal/" + segment_name(1), first);
    if ((choice & 2U) != 0) put_file(on, "/run/journal/acked", encode(acked_mark{choice, 1}));
    if ((choice & 4U) != 0) put_file(on, "/run/journal/" + segment_name(3), encode(segment_header{{}, 3, 1, 9}) + rest);
    if ((choice & 8U) != 0)
        put_file(on, "/run/journal/" + snapshot_name(2), encode_snapshot({{}, 2, 2, 0, 1}, "state"));
    if ((choice & 16U) != 0) put_file(on, "/run/journal/" + snapshot_name(5), rest);

    seen_records inspected;
    const auto looked = inspect(on, "/run");
    DARLCORE_ASSERT(looked.has_value());
    seen_records salvaged;
    const auto rescued = salvage(on, "/run", "/rescued", salvaged.target());
    if (rescued) {
        seen_records again;
        store_options options;
        options.journal.preallocate_bytes = 256;
        DARLCORE_ASSERT(ledger_store::open(on, "/rescued", {}, options, again.target()).has_value());
        DARLCORE_ASSERT(again.payloads == salvaged.payloads);
    }
    seen_records once;
    store_options options;
    options.journal.preallocate_bytes = 256;
    options.identity = run_identity{};
    const auto started = ledger_store::open(on, "/run", {}, options, once.target());
    if (!started) return 0;
    seen_records twice;
    DARLCORE_ASSERT(read_journal(on, "/run/journal", twice.target()).has_value());
    DARLCORE_ASSERT(once.payloads == twice.payloads);
    return 0;
}
