// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "darlcore/ledger/codec.hpp"
#include "darlcore/ledger/records.hpp"
#include "darlcore/ledger/separate.hpp"
#include "darlcore/round/state.hpp"

namespace darlcore::ledger {

#define DARLCORE_ENUM_LIMIT(type, value)          \
    template <>                                   \
    struct enum_limit<type> {                     \
        static constexpr type last = type::value; \
    };
DARLCORE_ENUM_LIMIT(permutation_scheme, feistel_1)
DARLCORE_ENUM_LIMIT(lease::commit_policy, on_checkpoint)
DARLCORE_ENUM_LIMIT(lease::site_mode, legacy)
DARLCORE_ENUM_LIMIT(lease::block_state, quarantined)
DARLCORE_ENUM_LIMIT(lease::close_reason, dropped)
DARLCORE_ENUM_LIMIT(lease::contribution_status, rejected)
DARLCORE_ENUM_LIMIT(solo_policy, adopt)
DARLCORE_ENUM_LIMIT(first_step_policy, plain)
DARLCORE_ENUM_LIMIT(round::stop_reason, site_operator)
DARLCORE_ENUM_LIMIT(round::decline_reason, local_error)
DARLCORE_ENUM_LIMIT(round::contribution_status, rejected)
DARLCORE_ENUM_LIMIT(round::duty, left)
#undef DARLCORE_ENUM_LIMIT

/// First byte of every payload; a later format has another.
inline constexpr std::uint8_t record_format = 1;

/// Payload of a record in the journal; its type stands beside it (`type_number`).
/// Promises: canonical; at least one byte.
std::string encode(const record& r);

/// Reads the payload of a record.
/// Errors: errc::corrupt naming the type and the offset; errc::unsupported for a format or type of a later version.
result<record> decode(std::uint16_t type, std::string_view payload);

#if defined(DARLCORE_LEDGER_DEFINITIONS)

DARLCORE_LEDGER_INLINE std::string encode(const record& r) {
    writer w;
    w.byte(record_format);
    std::visit([&](const auto& fact) { w.value(fact); }, r);
    return w.take();
}

namespace detail {

template <std::size_t I = 0>
bool decode_record(std::size_t index, reader& in, record& out) {
    if constexpr (I == std::variant_size_v<record>) {
        return false;
    } else {
        if (index != I) return decode_record<I + 1>(index, in, out);
        in.value(out.emplace<I>());
        return in.finished();
    }
}

}  // namespace detail

DARLCORE_LEDGER_INLINE result<record> decode(std::uint16_t type, std::string_view payload) {
    if (type == 0 || type > std::variant_size_v<record>)
        return fail(errc::unsupported, "record type " + std::to_string(type) + " is not known to this version");
    reader in(payload);
    if (in.byte() != record_format || !in.ok())
        return fail(errc::unsupported, "record format is not " + std::to_string(record_format));
    result<record> out{record{}};
    if (!detail::decode_record(type - 1U, in, *out))
        return fail(errc::corrupt, "record " + std::string(type_name(type)) + " is not canonical at byte " +
                                       std::to_string(in.offset()));
    return out;
}

#endif

}  // namespace darlcore::ledger
