// SPDX-License-Identifier: Apache-2.0
#define PCRE2_CODE_UNIT_WIDTH 8
#include "adapters/formats/split_pattern.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include <pcre2.h>

namespace darlcore::formats {

namespace {

// Unicode's White_Space; PCRE2's own \s also takes U+180E.
constexpr std::string_view white_space =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";

constexpr auto categories = std::to_array<std::string_view>(
    {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N", "Nd", "Nl", "No", "P",  "Pc", "Pd",
     "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So", "Z", "Zs", "Zl", "Zp", "Cc", "Cf"});
constexpr auto scripts =
    std::to_array<std::string_view>({"Han", "Hiragana", "Katakana", "Hangul", "Latin", "Cyrillic", "Greek", "Arabic",
                                     "Hebrew", "Thai", "Devanagari", "Bengali", "Tamil"});

template <class List>
bool has(const List& list, std::string_view word) {
    return std::find(list.begin(), list.end(), word) != list.end();
}

bool is_punctuation(char c) { return c >= 0x21 && c < 0x7f && std::isalnum(static_cast<unsigned char>(c)) == 0; }

// Walks the pattern once and writes its translation.
class translator {
public:
    explicit translator(std::string_view pattern) : p_(pattern) {}

    result<std::string> run() {
        while (i_ < p_.size()) {
            if (const auto ok = item(); !ok) return ok.error();
        }
        return std::move(out_);
    }

private:
    [[nodiscard]] error refuse(std::string_view what) const {
        return fail(errc::unsupported, "the pattern's `" + std::string(what) + "` (character " + std::to_string(i_) +
                                           ") is not implemented");
    }
    [[nodiscard]] bool at(std::string_view word) const { return p_.substr(i_).starts_with(word); }
    void copy(std::size_t count) {
        out_.append(p_.substr(i_, count));
        i_ += count;
    }

    result<void> item() {
        const char c = p_[i_];
        if (c == '\\') return escape(false);
        if (c == '[') return bracket();
        if (c == '(') return group();
        if (c == '{') return count();
        if (c == '.' || c == '^' || c == '$') return refuse(p_.substr(i_, 1));
        copy(1);
        return {};
    }

    result<void> group() {
        if (!at("(?")) {
            copy(1);
            return {};
        }
        for (const std::string_view known : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"}) {
            if (!at(known)) continue;
            copy(known.size());
            return {};
        }
        return refuse(p_.substr(i_, 4));
    }

    // {n}, {n,}, {n,m}; what may follow a count differs between the libraries.
    result<void> count() {
        const std::size_t end = p_.find('}', i_);
        if (end == std::string_view::npos) return refuse("{");
        const std::string_view inner = p_.substr(i_ + 1, end - i_ - 1);
        const bool digits = !inner.empty() && inner.front() != ',' &&
                            inner.find_first_not_of("0123456789,") == std::string_view::npos &&
                            std::count(inner.begin(), inner.end(), ',') <= 1;
        const char after = end + 1 < p_.size() ? p_[end + 1] : ' ';
        if (!digits || after == '?' || after == '+' || after == '*' || after == '{')
            return refuse(p_.substr(i_, end - i_ + 2));
        copy(end - i_ + 1);
        return {};
    }

    result<void> bracket() {
        copy(1);
        if (i_ < p_.size() && p_[i_] == '^') copy(1);
        if (i_ < p_.size() && p_[i_] == ']') return refuse("[]");
        while (i_ < p_.size() && p_[i_] != ']') {
            if (p_[i_] == '[' || at("&&")) return refuse(p_.substr(i_, 2));
            if (p_[i_] == '\\') {
                if (const auto ok = escape(true); !ok) return ok;
            } else {
                copy(1);
            }
        }
        if (i_ == p_.size()) return fail(errc::parse_error, "the pattern ends inside of [ ]");
        copy(1);
        return {};
    }

    result<void> escape(bool in_brackets) {
        if (i_ + 1 == p_.size()) return fail(errc::parse_error, "the pattern ends with a backslash");
        const char c = p_[i_ + 1];
        if (is_punctuation(c) || c == 'n' || c == 'r' || c == 't' || c == 'f') {
            copy(2);
            return {};
        }
        if (c == 's' || (c == 'S' && !in_brackets)) {
            const std::string inner(white_space);
            out_ += in_brackets ? inner : (c == 's' ? "[" : "[^") + inner + "]";
            i_ += 2;
            return {};
        }
        if (c == 'd' || c == 'D') {
            out_ += c == 'd' ? "\\p{Nd}" : "\\P{Nd}";
            i_ += 2;
            return {};
        }
        if (c == 'p' || c == 'P') return property();
        if (c == 'u') return code_point();
        return refuse(p_.substr(i_, 2));
    }

    result<void> property() {
        const std::size_t end = p_.find('}', i_);
        if (end == std::string_view::npos || p_[i_ + 2] != '{') return refuse(p_.substr(i_, 4));
        const std::string_view name = p_.substr(i_ + 3, end - i_ - 3);
        if (has(categories, name)) {
            copy(end - i_ + 1);
            return {};
        }
        if (!has(scripts, name)) return refuse(p_.substr(i_, end - i_ + 1));
        out_ += std::string(p_.substr(i_, 3)) + "sc:" + std::string(name) + "}";
        i_ = end + 1;
        return {};
    }

    result<void> code_point() {
        const std::string_view digits = p_.substr(i_ + 2, 4);
        if (digits.size() != 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos)
            return refuse(p_.substr(i_, 2));
        out_ += "\\x{" + std::string(digits) + "}";
        i_ += 6;
        return {};
    }

    std::string_view p_;
    std::size_t i_ = 0;
    std::string out_;
};

pcre2_code* as_code(void* p) { return static_cast<pcre2_code*>(p); }

std::string library_text(int code) {
    std::array<PCRE2_UCHAR, 160> text{};
    pcre2_get_error_message(code, text.data(), text.size());
    return reinterpret_cast<const char*>(text.data());
}

constexpr std::size_t stack_bytes_max = std::size_t{8} << 20U;
constexpr std::size_t pattern_bytes_max = std::size_t{1} << 16U;
constexpr std::uint32_t match_steps_max = 20'000'000;

}  // namespace

result<std::string> translate_pattern(std::string_view pattern) { return translator(pattern).run(); }

void split_scratch::release::operator()(void* p) const { pcre2_match_data_free(static_cast<pcre2_match_data*>(p)); }
void split_scratch::release_context::operator()(void* p) const {
    pcre2_match_context_free(static_cast<pcre2_match_context*>(p));
}
void split_scratch::release_stack::operator()(void* p) const { pcre2_jit_stack_free(static_cast<pcre2_jit_stack*>(p)); }

split_scratch::split_scratch()
    : match_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)),
      stack_(pcre2_jit_stack_create(32U << 10U, stack_bytes_max, nullptr)) {
    DARLCORE_ASSERT(match_ != nullptr && context_ != nullptr);
    auto* context = static_cast<pcre2_match_context*>(context_.get());
    pcre2_set_match_limit(context, match_steps_max);
    if (stack_) pcre2_jit_stack_assign(context, nullptr, stack_.get());
}

void split_pattern::release::operator()(void* code) const { pcre2_code_free(as_code(code)); }

result<split_pattern> split_pattern::build(const std::string& translated) {
    if (translated.size() > pattern_bytes_max) return fail(errc::too_large, "the pattern is longer than 64 KiB");
    int code = 0;
    PCRE2_SIZE place = 0;
    split_pattern pattern;
    pattern.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                      PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &code, &place, nullptr));
    if (!pattern.code_) return fail(errc::parse_error, "the pattern is not one: " + library_text(code));
    std::uint32_t matches_empty = 0;
    pcre2_pattern_info(as_code(pattern.code_.get()), PCRE2_INFO_MATCHEMPTY, &matches_empty);
    if (matches_empty != 0) return fail(errc::parse_error, "the pattern matches the empty text");
    pattern.fast_ = pcre2_jit_compile(as_code(pattern.code_.get()), PCRE2_JIT_COMPLETE) == 0;
    return pattern;
}

result<split_pattern> split_pattern::compile(std::string_view pattern) {
    const auto translated = translate_pattern(pattern);
    if (!translated) return translated.error();
    return build(*translated);
}

result<split_pattern> split_pattern::literal(std::string_view text) {
    std::string translated;
    for (const char c : text) {
        if (is_punctuation(c)) translated += '\\';
        translated += c;
    }
    return build(translated);
}

result<std::optional<std::pair<std::size_t, std::size_t>>> split_pattern::find(std::string_view text, std::size_t from,
                                                                               split_scratch& scratch) const {
    using place = std::optional<std::pair<std::size_t, std::size_t>>;
    auto* match = static_cast<pcre2_match_data*>(scratch.match_.get());
    auto* context = static_cast<pcre2_match_context*>(scratch.context_.get());
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    const int code =
        fast_ ? pcre2_jit_match(as_code(code_.get()), subject, text.size(), from, 0, match, context)
              : pcre2_match(as_code(code_.get()), subject, text.size(), from, PCRE2_NO_UTF_CHECK, match, context);
    if (code == PCRE2_ERROR_NOMATCH) return place();
    if (code < 0) return fail(errc::too_large, "splitting the text: " + library_text(code));
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match);
    return place(std::pair(ends[0], ends[1]));
}

}  // namespace darlcore::formats
