// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

namespace darlcore::formats {

/// Words to look for in texts: at the first place where one starts, the longest.
class token_trie {
public:
    struct found {
        std::size_t begin = 0;
        std::size_t bytes = 0;
        std::uint32_t id = 0;
    };

    /// Preconditions: word is not empty. A word that is added again gets the later id.
    void add(std::string_view word, std::uint32_t id) {
        starts_[static_cast<unsigned char>(word.front())] = true;
        std::uint32_t at = 0;
        for (const char c : word) {
            const auto [next, added] = nodes_[at].next.try_emplace(c, static_cast<std::uint32_t>(nodes_.size()));
            at = next->second;
            if (added) nodes_.emplace_back();
        }
        nodes_[at].id = id;
    }

    [[nodiscard]] bool empty() const { return nodes_.size() == 1; }

    /// Complexity: O(bytes scanned x longest word), and one table look-up where no word can start.
    [[nodiscard]] std::optional<found> find(std::string_view text, std::size_t from) const {
        for (; from < text.size(); ++from) {
            if (!starts_[static_cast<unsigned char>(text[from])]) continue;
            std::optional<found> best;
            std::uint32_t at = 0;
            for (std::size_t i = from; i < text.size(); ++i) {
                const auto next = nodes_[at].next.find(text[i]);
                if (next == nodes_[at].next.end()) break;
                at = next->second;
                if (nodes_[at].id) best = found{from, i + 1 - from, *nodes_[at].id};
            }
            if (best) return best;
        }
        return std::nullopt;
    }

private:
    struct node {
        std::map<char, std::uint32_t> next;
        std::optional<std::uint32_t> id;
    };
    std::vector<node> nodes_{1};
    std::array<bool, 256> starts_{};
};

}  // namespace darlcore::formats
