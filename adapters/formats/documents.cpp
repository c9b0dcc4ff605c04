// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/documents.hpp"

#include <utility>

#include "adapters/formats/json.hpp"
#include "adapters/formats/posix_file.hpp"
#include "adapters/formats/utf8.hpp"

namespace darlcore::formats {

namespace {

bool ends_with(std::string_view text, std::string_view end) {
    return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace

document_format document_format_of(std::string_view path) {
    return ends_with(path, ".jsonl") || ends_with(path, ".ndjson") ? document_format::jsonl : document_format::text;
}

document_reader::document_reader(std::vector<std::string> files, std::optional<document_format> format,
                                 bool repair_utf8)
    : files_(std::move(files)), format_(format), repair_utf8_(repair_utf8) {}

std::string document_reader::place() const { return files_[file_] + ":" + std::to_string(line_); }

result<std::optional<text_document>> document_reader::next() {
    while (file_ < files_.size()) {
        const std::string& path = files_[file_];
        const auto format = format_.value_or(document_format_of(path));
        if (format == document_format::text) {
            auto document = whole_file(path);
            if (!document) return document.error();
            ++file_;
            return std::optional(*std::move(document));
        }
        if (!lines_.is_open())
            if (const auto opened = open_lines(path); !opened) return opened.error();
        auto document = next_line(format);
        if (!document || document->has_value()) return document;
        lines_.close();
        lines_.clear();
        ++file_;
    }
    return std::optional<text_document>();
}

result<text_document> document_reader::whole_file(const std::string& path) {
    auto text = read_text_file(path, document_bytes_max);
    if (!text && text.error().code == errc::too_large)
        return fail(errc::too_large, text.error().context + "; one document per line (--format lines) has no limit");
    if (!text) return text.error();
    bytes_read_ += text->size();
    return text_document{*std::move(text), path, 0, 0};
}

result<bool> document_reader::open_lines(const std::string& path) {
    const auto file = posix_file::open_for_reading(path);  // for its error texts
    if (!file) return file.error();
    lines_.open(path, std::ios::binary);
    if (!lines_) return fail(errc::io_error, path + ": cannot open");
    line_ = 0;
    offset_bytes_ = 0;
    return true;
}

result<std::optional<text_document>> document_reader::next_line(document_format format) {
    std::string text;
    while (std::getline(lines_, text)) {
        ++line_;
        const std::uint64_t at = offset_bytes_;
        offset_bytes_ += text.size() + 1;
        bytes_read_ += text.size() + 1;
        if (text.size() > document_bytes_max) return fail(errc::too_large, place() + ": the line is longer than 1 GiB");
        if (text.empty() || text == "\r") continue;
        if (format == document_format::jsonl) {
            auto member = text_of_json(text);
            if (!member) return member.error();
            text = *std::move(member);
        }
        return std::optional(text_document{std::move(text), files_[file_], at, line_});
    }
    if (lines_.bad()) return fail(errc::io_error, place() + ": cannot read on");
    return std::optional<text_document>();
}

result<std::string> document_reader::text_of_json(const std::string& line) {
    std::string repaired;
    if (const auto bad = first_invalid_utf8(line)) {
        if (!repair_utf8_)
            return fail(errc::parse_error, place() + ": invalid UTF-8 at byte " + std::to_string(*bad) +
                                               " of the line; --invalid-utf8 replace puts U+FFFD there");
        repaired = replace_invalid_utf8(line, replaced_);
    }
    auto doc = json::parse(repaired.empty() ? line : repaired,
                           {.bytes_max = static_cast<std::size_t>(document_bytes_max), .depth_max = 64});
    if (!doc) return fail(doc.error().code, place() + ": " + doc.error().context);
    const auto* text = doc->find("text");
    if (text == nullptr || text->as_string() == nullptr)
        return fail(errc::parse_error, place() + ": has no member `text` that is a string");
    return *text->as_string();
}

}  // namespace darlcore::formats
