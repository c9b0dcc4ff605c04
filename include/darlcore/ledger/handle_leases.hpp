// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "darlcore/hex.hpp"
#include "darlcore/ledger/access.hpp"
#include "darlcore/ledger/machine_class.hpp"
#include "darlcore/ledger/separate.hpp"

#if defined(DARLCORE_LEDGER_DEFINITIONS)

namespace darlcore::ledger {
namespace detail {

inline std::string prefix(const std::string& digest) { return digest.empty() ? "none" : digest.substr(0, 8); }

/// Start of a digest that a client sent; what is none is not repeated.
inline std::string sent_prefix(const std::string& digest) {
    return from_hex<16>(digest) ? digest.substr(0, 8) : "something else than 32 hex digits";
}

inline std::optional<refusal> check_space(const machine& m, const register_request& in) {
    const auto& space = m.settings().space;
    const auto differs = [](const char* what, std::uint64_t run, std::uint64_t site) {
        return access::refuse(errc::digest_mismatch, std::string(what) + " of the run is " + std::to_string(run) +
                                                         ", this site has " + std::to_string(site) +
                                                         ": use the run's geometry");
    };
    if (in.num_samples && *in.num_samples != space.num_samples)
        return differs("num_samples", space.num_samples, *in.num_samples);
    if (in.block_size && *in.block_size != space.block_size)
        return differs("block_size", space.block_size, *in.block_size);
    if (!in.digest.empty() && in.digest != m.space_digest())
        return access::refuse(errc::digest_mismatch, "the block space of the run is " + prefix(m.space_digest()) +
                                                         ", this site has " + sent_prefix(in.digest) +
                                                         ": compare num_samples, block_size and seed");
    return std::nullopt;
}

inline std::optional<refusal> check_corpus(const machine& m, const register_request& in) {
    const auto& pinned = m.kept().pinned;
    if (!in.corpus.empty() && !pinned.corpus.empty() && in.corpus != pinned.corpus)
        return access::refuse(errc::corpus_mismatch, "the corpus of the run is " + prefix(pinned.corpus) +
                                                         ", this site has another one: use the run's manifest");
    if (!in.corpus_content.empty() && !pinned.content.empty() && in.corpus_content != pinned.content)
        return access::refuse(errc::corpus_mismatch, "the tokens of the run have the digest " + prefix(pinned.content) +
                                                         ", this site has others: tokenize again or copy the shards");
    return std::nullopt;
}

}  // namespace detail

DARLCORE_LEDGER_INLINE outcome<register_reply> machine::handle(const register_request& in, ledger_time now) {
    access::step out;
    const auto refuse = [&](refusal why) { return access::refused<register_reply>(std::move(out), std::move(why)); };
    if (!is_valid_name(in.who.site.name))
        return refuse(access::refuse(errc::bad_request, "cluster: 1 to 64 letters, digits, '.', '_' or '-'"));
    if (auto why = detail::check_space(*this, in)) return refuse(*std::move(why));
    if (auto why = detail::check_corpus(*this, in)) return refuse(*std::move(why));
    const bool legacy = in.protocol < 2;
    if (legacy && settings_.lease.commit_policy == lease::commit_policy::on_merge)
        return refuse(access::refuse(errc::policy,
                                     "this run commits at the merge; a client of protocol 1 commits before it: start "
                                     "the server with commit_policy on_checkpoint, or use protocol 2"));
    lease::register_site request{
        in.who, legacy ? lease::site_mode::legacy : lease::site_mode::full, {}, {}, in.ranks, in.take_over};
    auto answer = leases_.apply(request, now);
    const records::corpus_told told{in.corpus, in.corpus_content};
    struct special {
        const register_request& in;
        const records::corpus_told& told;
        records::registered operator()(lease::events::registered& e) const { return {std::move(e), told}; }
        records::superseded operator()(lease::events::superseded& e) const {
            return {std::move(e), round::replaced{in.who.site}, told};
        }
    };
    access::note_events(*this, out, answer.events, now, special{in, told});
    if (!answer.ok()) return refuse(answer.refused());
    const bool pins = (!told.corpus.empty() && books_.pinned.corpus.empty()) ||
                      (!told.content.empty() && books_.pinned.content.empty());
    if (pins) access::note(*this, out, records::corpus_pinned{told}, now);
    rounds_.touch(in.who.site, now);

    const auto& got = answer.reply();
    register_reply reply;
    reply.cluster = in.who.site;
    reply.num_blocks = space_.num_blocks();
    reply.digest = space_digest_;
    reply.epoch_digest = epoch_digest();
    reply.committed = got.committed;
    for (const auto& [site, known] : books_.told) reply.known_clusters.push_back(site);
    reply.incarnation = got.incarnation;
    reply.incarnations = got.incarnations;
    reply.commit_policy = settings_.lease.commit_policy;
    reply.generation = rounds_.current();
    reply.corpus_verified = !told.corpus.empty() && !told.content.empty();
    access::settle(*this, out, now);
    return access::done(std::move(out), std::move(reply));
}

DARLCORE_LEDGER_INLINE outcome<acquire_reply> machine::handle(const acquire_request& in, ledger_time now) {
    access::step out;
    auto answer = leases_.apply(in, now);
    access::note_events(*this, out, answer.events, now);
    rounds_.touch(in.who.site, now);
    access::prepare_next_epoch(*this, out);
    access::settle(*this, out, now);
    if (!answer.ok()) return access::refused<acquire_reply>(std::move(out), answer.refused());
    return access::done(std::move(out), acquire_reply{answer.reply(), epoch_digest()});
}

DARLCORE_LEDGER_INLINE outcome<reserve_reply> machine::handle(const reserve_request& in, ledger_time now) {
    access::step out;
    auto answer = leases_.apply(in, now);
    access::note_events(*this, out, answer.events, now);
    rounds_.touch(in.who.site, now);
    access::add_digest(*this, out, now);
    if (!answer.ok()) return access::refused<reserve_reply>(std::move(out), answer.refused());
    return access::done(std::move(out), answer.reply());
}

DARLCORE_LEDGER_INLINE outcome<heartbeat_reply> machine::handle(const heartbeat_request& in, ledger_time now) {
    access::step out;
    auto answer = leases_.apply(in, now);
    access::note_events(*this, out, answer.events, now);
    access::add_digest(*this, out, now);
    if (!answer.ok()) return access::refused<heartbeat_reply>(std::move(out), answer.refused());
    rounds_.touch(in.who.site, now);
    return access::done(std::move(out), heartbeat_reply{answer.reply(), rounds_.current(), rounds_.state()});
}

DARLCORE_LEDGER_INLINE outcome<commit_reply> machine::handle(const commit_request& in, ledger_time now) {
    access::step out;
    auto answer = leases_.apply(in, now);
    const auto special = [this](lease::events::committed& e) {
        const std::uint64_t windows = access::windows_of(*this, {e.from, e.through});
        return records::committed{std::move(e), windows};
    };
    access::note_events(*this, out, answer.events, now, special);
    rounds_.touch(in.who.site, now);
    access::settle(*this, out, now);
    if (!answer.ok()) return access::refused<commit_reply>(std::move(out), answer.refused());
    return access::done(std::move(out), answer.reply());
}

DARLCORE_LEDGER_INLINE outcome<release_reply> machine::handle(const release_request& in, ledger_time now) {
    access::step out;
    auto answer = leases_.apply(in, now);
    access::note_events(*this, out, answer.events, now);
    access::settle(*this, out, now);
    if (!answer.ok()) return access::refused<release_reply>(std::move(out), answer.refused());
    return access::done(std::move(out), answer.reply());
}

DARLCORE_LEDGER_INLINE outcome<advance_reply> machine::handle(const advance_request& in, ledger_time now) {
    access::step out;
    lease::advance_epoch request;
    request.force = in.force;
    auto answer = leases_.apply(request, now);
    access::note_events(*this, out, answer.events, now);
    if (answer.ok() && answer.reply().advanced) {
        out.effects.emplace_back(effects::wake{std::nullopt});
    }
    access::settle(*this, out, now);
    if (!answer.ok()) return access::refused<advance_reply>(std::move(out), answer.refused());
    return access::done(std::move(out), answer.reply());
}

}  // namespace darlcore::ledger

#endif
