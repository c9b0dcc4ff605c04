// SPDX-License-Identifier: Apache-2.0
#include "backends/storage/ledger_store.hpp"

#include <utility>

namespace darlcore::storage {

result<void> ledger_store::check(const store_options& options) const {
    if (recovered_.empty) {
        if (options.resume_only)
            return fail(errc::not_found,
                        state_->path() + " holds no run to resume; check the path, or start without --resume");
        if (!options.identity)
            return fail(errc::invalid_argument,
                        state_->path() + " holds no run yet: the first start needs the geometry of the data");
        return {};
    }
    if (options.identity && options.identity->block_space_digest != recovered_.identity->block_space_digest)
        return fail(errc::refused,
                    state_->path() +
                        " was built with another block space (number of samples, block size or seed); use "
                        "the same, or another directory");
    if (recovered_.term >= state_->term())
        return fail(errc::refused, join(state_->path(), "term") + " says " + std::to_string(state_->term() - 1) +
                                       ", the journal has records of term " + std::to_string(recovered_.term) +
                                       ": one of them was restored from a backup");
    return {};
}

result<ledger_store> ledger_store::open(file_system& fs, const std::string& path, lock_owner self,
                                        store_options options, const replay_target& target) {
    ledger_store store;
    auto state = state_directory::open(fs, path, std::move(self), options.mutants);
    if (!state) return state.error();
    store.state_ = std::make_unique<state_directory>(std::move(*state));
    const std::string journal = store.state_->journal_path();
    auto recovered = read_journal(fs, journal, target, options.mutants);
    if (!recovered) return recovered.error();
    store.recovered_ = std::move(*recovered);
    if (const auto checked = store.check(options); !checked) return checked.error();
    store.identity_ = store.recovered_.empty ? *options.identity : *store.recovered_.identity;
    if (const auto repaired = repair(fs, journal, store.recovered_.repair, options.mutants); !repaired)
        return repaired.error();
    if (const auto cleaned = remove_leftovers(fs, journal); !cleaned) return cleaned.error();
    auto writer =
        journal_writer::open(*store.state_, store.identity_, store.recovered_.position, std::move(options.journal));
    if (!writer) return writer.error();
    store.writer_ = std::make_unique<journal_writer>(std::move(*writer));
    store.batches_ = group_commit(store.recovered_.position);
    return store;
}

result<void> ledger_store::commit() {
    while (batches_.can_seal()) {
        const auto sealed = batches_.seal(writer_->salt());
        if (const auto written = writer_->write(sealed); !written) return written;
        batches_.durable(sealed);
    }
    return {};
}

bool ledger_store::has_room(std::uint64_t bytes) {
    return writer_->ensure_room(batches_.pending_bytes() + bytes).has_value();
}

snapshot_info ledger_store::snapshot_head() const {
    const auto& position = batches_.durable_position();
    return {identity_, position.sequence, position.batch, position.ledger_ms, state_->term()};
}

result<void> ledger_store::snapshot(std::string_view payload) {
    DARLCORE_ASSERT(batches_.pending_bytes() == 0);
    if (const auto rotated = writer_->rotate(); !rotated) return rotated;
    if (const auto written = write_snapshot(*state_, snapshot_head(), payload); !written) return written;
    return remove_superseded(*state_);
}

result<void> ledger_store::close() {
    if (const auto committed = commit(); !committed) return committed;
    return writer_->close();
}

}  // namespace darlcore::storage
