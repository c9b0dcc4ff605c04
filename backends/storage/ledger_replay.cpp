// SPDX-License-Identifier: Apache-2.0
#include "backends/storage/ledger_replay.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include "backends/storage/sha256.hpp"
#include "darlcore/ledger/machine.hpp"
#include "darlcore/ledger/record_codec.hpp"

namespace darlcore::storage {
namespace {

std::optional<bytes16> parse_bytes16(std::string_view hex) {
    const auto halves = parse_incarnation(hex);  // 32 hex digits as two numbers
    if (!halves) return std::nullopt;
    bytes16 bytes{};
    for (std::size_t i = 0; i < 8; ++i) {
        bytes[i] = static_cast<std::uint8_t>(halves->high >> (56 - 8 * i));
        bytes[8 + i] = static_cast<std::uint8_t>(halves->low >> (56 - 8 * i));
    }
    return bytes;
}

bytes16 bytes_of_name(std::string_view name) {
    if (const auto parsed = parse_bytes16(name)) return *parsed;
    sha256 hash;
    hash.update(name);
    const std::string digest = hash.digest();
    bytes16 bytes{};
    std::transform(digest.begin(), digest.begin() + 16, bytes.begin(),
                   [](char c) { return static_cast<std::uint8_t>(c); });
    return bytes;
}

}  // namespace

ledger_replay::ledger_replay() = default;
ledger_replay::~ledger_replay() = default;

replay_target ledger_replay::target() {
    return {[this](const snapshot_info& info, std::string_view payload) -> result<void> {
                auto loaded = ledger::machine::from_snapshot(payload, ledger_time{info.ledger_ms});
                if (!loaded) return loaded.error();
                machine_ = std::make_unique<ledger::machine>(std::move(*loaded));
                return {};
            },
            [this](const record& r) -> result<void> {
                const auto decoded = ledger::decode(r.type, r.payload);
                if (!decoded) return decoded.error();
                if (!machine_) {
                    const auto* created = std::get_if<ledger::records::run_created>(&*decoded);
                    if (created == nullptr) return fail(errc::corrupt, "the journal does not begin with run_created");
                    if (const auto good = ledger::check(created->settings); !good)
                        return fail(errc::corrupt, good.error().context);
                    machine_ = std::make_unique<ledger::machine>(created->settings);
                }
                return machine_->replay(*decoded, ledger_time{r.ledger_ms});
            }};
}

std::unique_ptr<ledger::machine> ledger_replay::take() { return std::move(machine_); }

replay_target without_steals(replay_target target) {
    target.replay = [replay = target.replay](const record& r) -> result<void> {
        auto decoded = ledger::decode(r.type, r.payload);
        auto* granted = decoded ? std::get_if<lease::events::granted>(&*decoded) : nullptr;
        if (granted == nullptr || granted->steals.empty()) return replay(r);
        granted->steals.clear();
        const std::string payload = ledger::encode(*decoded);
        auto changed = r;
        changed.payload = payload;
        return replay(changed);
    };
    return target;
}

run_identity identity_of(const ledger::machine& machine) {
    return {bytes_of_name(machine.settings().run_id), bytes_of_name(machine.space_digest())};
}

}  // namespace darlcore::storage
