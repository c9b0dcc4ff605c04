// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "darlcore/error.hpp"

namespace darlcore::formats {

/// How documents lie in a file: one per file, one per line, or one JSON object per line with a `text` member.
enum class document_format : std::uint8_t { text, lines, jsonl };

/// `text` for every file but *.jsonl and *.ndjson.
document_format document_format_of(std::string_view path);

/// Longest document that is read.
inline constexpr std::uint64_t document_bytes_max = std::uint64_t{1} << 30U;

/// One document and where it came from.
struct text_document {
    std::string text;
    std::string file;
    std::uint64_t offset_bytes = 0;  ///< of its first byte in the file; of its line for jsonl
    std::uint64_t line = 0;          ///< from 1; 0 where the file is the document
};

/// Reads documents from files, one after the other, in the order given. Empty lines are no documents.
/// Thread-safety: none.
class document_reader {
public:
    /// Without a format each file's name decides. With `repair_utf8`, ill-formed parts of jsonl lines become U+FFFD
    /// before the line is read as JSON.
    document_reader(std::vector<std::string> files, std::optional<document_format> format, bool repair_utf8);

    /// The next document; nothing at the end.
    /// Errors: errc::not_found, errc::io_error, errc::too_large, errc::parse_error (a jsonl line without a text); the
    /// context names file and line.
    result<std::optional<text_document>> next();

    /// Bytes read so far, and ill-formed parts replaced in jsonl lines.
    [[nodiscard]] std::uint64_t bytes_read() const { return bytes_read_; }
    [[nodiscard]] std::uint64_t replaced() const { return replaced_; }

private:
    result<text_document> whole_file(const std::string& path);
    result<bool> open_lines(const std::string& path);
    result<std::optional<text_document>> next_line(document_format format);
    result<std::string> text_of_json(const std::string& line);
    [[nodiscard]] std::string place() const;

    std::vector<std::string> files_;
    std::optional<document_format> format_;
    bool repair_utf8_;
    std::size_t file_ = 0;
    std::ifstream lines_;
    std::uint64_t line_ = 0;
    std::uint64_t offset_bytes_ = 0;
    std::uint64_t bytes_read_ = 0;
    std::uint64_t replaced_ = 0;
};

}  // namespace darlcore::formats
