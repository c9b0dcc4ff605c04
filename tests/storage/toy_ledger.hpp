// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/sim/disk.hpp"
#include "backends/sim/rng.hpp"
#include "backends/storage/bytes.hpp"
#include "backends/storage/ledger_store.hpp"

namespace darlcore::storage::toy {

/// Stands in for the ledger: its state is the list of everything it was ever told, so any difference shows.
struct state {
    std::vector<std::uint64_t> entries;

    static std::uint64_t hash(std::uint16_t type, std::string_view payload) {
        std::uint64_t h = 1469598103934665603U ^ type;
        for (const char c : payload) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211U;
        return h;
    }
    void apply(std::uint16_t type, std::string_view payload) { entries.push_back(hash(type, payload)); }

    [[nodiscard]] std::string encode() const {
        std::string bytes;
        put(bytes, static_cast<std::uint64_t>(entries.size()));
        for (const std::uint64_t entry : entries) put(bytes, entry);
        return bytes;
    }
    result<void> decode(std::string_view bytes) {
        if (bytes.size() < 8 || bytes.size() != 8 + 8 * get<std::uint64_t>(bytes, 0))
            return fail(errc::corrupt, "toy snapshot");
        entries.clear();
        for (std::size_t at = 8; at < bytes.size(); at += 8) entries.push_back(get<std::uint64_t>(bytes, at));
        return {};
    }
    [[nodiscard]] bool is_prefix_of(const state& other) const {
        return entries.size() <= other.entries.size() &&
               std::equal(entries.begin(), entries.end(), other.entries.begin());
    }
    friend bool operator==(const state&, const state&) = default;
};

inline replay_target target_of(state& into) {
    return {[&into](const snapshot_info& info, std::string_view payload) -> result<void> {
                state loaded;
                if (const auto decoded = loaded.decode(payload); !decoded) return decoded;
                if (loaded.entries.size() != info.sequence)
                    return fail(errc::corrupt, "toy snapshot of another sequence");
                into = std::move(loaded);
                return {};
            },
            [&into](const record& r) -> result<void> {
                into.apply(r.type, r.payload);
                return {};
            }};
}

inline run_identity identity(std::uint8_t tag = 1) {
    run_identity who;
    who.run_id.fill(tag);
    who.block_space_digest.fill(static_cast<std::uint8_t>(tag + 100));
    return who;
}

inline store_options options(std::uint64_t preallocate_bytes = 2048, storage_mutants mutants = {}) {
    store_options o;
    o.journal.preallocate_bytes = preallocate_bytes;
    // salts differ between segments and starts, and are the same in every run of a test
    o.journal.salt = [next = sim::rng(7)]() mutable { return static_cast<std::uint32_t>(next.next()); };
    o.mutants = mutants;
    o.identity = identity();
    return o;
}

/// A toy ledger on a store: what it holds in memory and what it has acknowledged.
class server {
public:
    static result<server> open(file_system& fs, const std::string& path, store_options with,
                               std::uint64_t payload_seed = 1) {
        server s(payload_seed);
        auto store = ledger_store::open(fs, path, lock_owner{}, std::move(with), target_of(s.state_));
        if (!store) return store.error();
        s.store_.emplace(std::move(*store));
        return s;
    }

    /// One call: a record of pseudo-random size, not durable yet.
    void apply() {
        std::string payload;
        put(payload, random_.next());
        payload.append(random_.below(90), static_cast<char>('a' + random_.below(26)));
        const auto type = static_cast<std::uint16_t>(1 + random_.below(20));
        state_.apply(type, payload);
        ledger_ms_ = std::max(ledger_ms_, store_->batches().durable_position().ledger_ms) + 1;
        store_->append(type, ledger_ms_, payload);
    }
    result<void> commit() {
        const auto done = store_->commit();
        if (done) acked_ = state_;
        return done;
    }
    result<void> snapshot() { return store_->snapshot(state_.encode()); }

    [[nodiscard]] const state& now() const { return state_; }
    [[nodiscard]] const state& acked() const { return acked_; }
    [[nodiscard]] ledger_store& store() { return *store_; }

private:
    explicit server(std::uint64_t payload_seed) : random_(payload_seed) {}
    sim::rng random_;
    state state_;
    state acked_;
    std::int64_t ledger_ms_ = 0;
    std::optional<ledger_store> store_;
};

inline const std::string run_path = "/run";

/// What a start on this image finds; nothing if it refuses.
struct start {
    result<void> outcome;
    state found;
    std::vector<std::string> warnings;
};

inline start start_on(sim::disk& on, const storage_mutants& mutants = {}) {
    start s;
    auto opened = server::open(on, run_path, options(2048, mutants), 99);
    if (!opened) {
        s.outcome = opened.error();
        return s;
    }
    s.found = opened->now();
    s.warnings = opened->store().recovered().warnings;
    return s;
}

}  // namespace darlcore::storage::toy
