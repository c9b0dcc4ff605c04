// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace darlcore::http {

/// Takes the chunks of a body apart, byte by byte, in any cut.
/// Strict: CR LF only, sizes of 1 to 16 hex digits, extensions and trailers by the grammar; both are dropped.
/// Source: RFC 9112 7.1. Boost.Beast's own chunk parser is not used: it takes "0x1" as a last chunk and asserts when a
/// last chunk arrives in pieces (1.81).
class chunk_decoder {
public:
    enum class outcome : std::uint8_t { need_more, piece, done, malformed };

    explicit chunk_decoder(std::size_t line_bytes_max) : line_bytes_max_(line_bytes_max) {}

    /// Consumes from the front of `bytes`. `piece()` is then a view into them.
    outcome next(std::string_view& bytes);
    [[nodiscard]] std::string_view piece() const { return piece_; }

private:
    enum class state : std::uint8_t {
        size_line,
        size_lf,
        data,
        data_cr,
        data_lf,
        trailer_line,
        trailer_lf,
        done,
        malformed
    };

    outcome fail() {
        state_ = state::malformed;
        return outcome::malformed;
    }
    bool take_size_line();
    /// Collects a line up to its CR; true when the CR was consumed.
    bool collect_line(std::string_view& bytes, bool& malformed);

    std::size_t line_bytes_max_;
    std::string line_;
    std::size_t trailer_bytes_ = 0;
    std::uint64_t left_ = 0;
    std::string_view piece_;
    state state_ = state::size_line;
};

}  // namespace darlcore::http
