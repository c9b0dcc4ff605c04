// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "darlcore/error.hpp"

namespace darlcore::formats {

/// What one thread needs to match: buffers of the library. Thread-safety: none.
class split_scratch {
public:
    split_scratch();

private:
    friend class split_pattern;
    struct release {
        void operator()(void* p) const;
    };
    struct release_stack {
        void operator()(void* p) const;
    };
    struct release_context {
        void operator()(void* p) const;
    };
    std::unique_ptr<void, release> match_;
    std::unique_ptr<void, release_context> context_;
    std::unique_ptr<void, release_stack> stack_;
};

/// A regular expression of a tokenizer file, matched by PCRE2. The files are written for Oniguruma, so the pattern is
/// translated: white space is Unicode's White_Space, digits are Nd, scripts are the plain ones. What means something
/// else in the two libraries, or was not compared, is refused by name.
/// Thread-safety: const members may be called from several threads, each with its own scratch.
class split_pattern {
public:
    /// Errors: errc::unsupported (a construct that is not translated), errc::parse_error (not a pattern, or one that
    /// matches the empty text).
    static result<split_pattern> compile(std::string_view pattern);
    /// The pattern that matches exactly this text.
    static result<split_pattern> literal(std::string_view text);

    /// First match at or after `from`, as begin and end.
    /// Errors: errc::too_large (the matching takes too many steps).
    /// Preconditions: text is valid UTF-8, from is at a character's first byte.
    [[nodiscard]] result<std::optional<std::pair<std::size_t, std::size_t>>> find(std::string_view text,
                                                                                  std::size_t from,
                                                                                  split_scratch& scratch) const;

private:
    static result<split_pattern> build(const std::string& translated);
    struct release {
        void operator()(void* code) const;
    };
    std::unique_ptr<void, release> code_;
    bool fast_ = false;  // compiled to machine code
};

/// The pattern in PCRE2's spelling. Errors: errc::unsupported, errc::parse_error.
result<std::string> translate_pattern(std::string_view pattern);

}  // namespace darlcore::formats
