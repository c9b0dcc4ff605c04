// SPDX-License-Identifier: Apache-2.0
// bench_tokenizer TEXT_FILE [TOKENIZER...]: bytes of text per second and core. TEXT_FILE: English text, a megabyte or
// more; lines are documents, whole files too. Without further arguments a tokenizer of 704 ids (the tests' own) and one
// of 32 768 ids that is built here from the text. --write FILE keeps the latter for other implementations.
#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "adapters/formats/byte_level.hpp"
#include "adapters/formats/json.hpp"
#include "adapters/formats/posix_file.hpp"
#include "adapters/formats/tokenizer_json.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::formats;

std::string utf8_of(char32_t c) {
    if (c < 0x80) return std::string(1, static_cast<char>(c));
    return {static_cast<char>(0xc0U | c >> 6U), static_cast<char>(0x80U | (c & 0x3fU))};
}

// Words with their space, most frequent first (then by bytes).
std::vector<std::string> frequent_words(const std::string& text) {
    std::unordered_map<std::string, std::uint64_t> counts;
    for (std::size_t at = 0; at < text.size();) {
        std::size_t end = at + 1;
        while (end < text.size() && std::isalpha(static_cast<unsigned char>(text[end])) != 0) ++end;
        ++counts[text.substr(at, end - at)];
        at = end;
    }
    std::vector<std::pair<std::string, std::uint64_t>> sorted(counts.begin(), counts.end());
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
        return a.second != b.second ? a.second > b.second : a.first < b.first;
    });
    std::vector<std::string> words;
    for (auto& [word, count] : sorted) words.push_back(std::move(word));
    return words;
}

// A vocabulary of `ids` tokens: the bytes, then the beginnings of the text's words, frequent words first, each made by
// a merge of a shorter beginning and a byte; a tail of invented tokens fills up what a short text leaves.
std::string build_tokenizer(const std::string& text, std::size_t ids) {
    const auto characters = byte_level_characters();
    json::value vocab{json::object{}};
    std::unordered_set<std::string> known;
    json::object& entries = *vocab.as_object();
    json::array merges;
    const auto add = [&](const std::string& token) {
        known.insert(token);
        entries.emplace_back(token, json::value(entries.size()));
    };
    for (const char32_t c : characters) add(utf8_of(c));
    const auto add_word = [&](const std::string& word) {
        std::string prefix;
        for (const char c : word) {
            const std::string next = utf8_of(characters[static_cast<unsigned char>(c)]);
            if (!prefix.empty() && !known.contains(prefix + next) && entries.size() < ids) {
                add(prefix + next);
                merges.emplace_back(json::array{json::value(prefix), json::value(next)});
            }
            prefix += next;
        }
    };
    for (const std::string& word : frequent_words(text)) add_word(word);
    for (int i = 0; entries.size() < ids; ++i) add_word("q" + std::to_string(i));
    const auto split =
        json::parse(R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":true})");
    return json::dump(
        json::make_object({{"version", "1.0"},
                           {"pre_tokenizer", split.value()},
                           {"decoder", split.value()},
                           {"model", json::make_object({{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}})}}));
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        if (end > at) lines.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return lines;
}

void measure(const std::string& name, const tokenizer& t, const std::string& unit,
             const std::vector<std::string>& documents) {
    std::vector<std::uint32_t> ids;
    double best = 1e9;
    std::size_t bytes = 0, count = 0;
    for (int round = 0; round < 5; ++round) {
        bytes = count = 0;
        const auto begun = std::chrono::steady_clock::now();
        for (const std::string& d : documents) {
            ids.clear();
            t.encode(d, ids).value();
            bytes += d.size();
            count += ids.size();
        }
        best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
    }
    std::printf("%-24s %-6s %8.1f MB/s  %6.2f M ids/s  %.2f bytes per id\n", name.c_str(), unit.c_str(),
                static_cast<double>(bytes) * 1e-6 / best, static_cast<double>(count) * 1e-6 / best,
                static_cast<double>(bytes) / static_cast<double>(count));
}

}  // namespace

int main(int count, char** arguments) {
    while (count > 1 && std::string(arguments[count - 1]).starts_with("--benchmark")) --count;  // scripts/bench
    if (count < 2) {
        std::puts("skipped: no text; usage: bench_tokenizer TEXT_FILE [--write FILE] [TOKENIZER...]");
        return 0;
    }
    const std::string text = read_text_file(arguments[1], std::uint64_t{1} << 30U).value();
    const std::string built = build_tokenizer(text, 32'768);
    std::map<std::string, std::unique_ptr<tokenizer>> all;
    for (int i = 2; i < count; ++i) {
        if (std::string(arguments[i]) == "--write" && i + 1 < count)
            std::ofstream(arguments[++i], std::ios::binary) << built;
        else
            all.emplace(arguments[i], open_tokenizer(arguments[i]).value());
    }
    if (all.empty()) {
        all.emplace("704 ids", open_tokenizer(DARLCORE_TEST_DATA "/tokenizers/qwen.tokenizer.json").value());
        all.emplace("32 768 ids", parse_tokenizer_json(built, "built.json", {}).value());
    }
    for (const auto& [name, t] : all) {
        measure(name, *t, "whole", {text});
        measure(name, *t, "lines", lines_of(text));
    }
    return 0;
}
