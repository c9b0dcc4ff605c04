// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "adapters/formats/page.hpp"

namespace darl {

using chart_line = darlcore::page::line;

/// A block of the corpus and whose contribution holds it.
struct block_owner {
    std::uint64_t position = 0;
    std::string site;
};

struct table_row {
    std::vector<std::string> cells;
};

/// What the report of a demo shows.
struct demo_figures {
    std::string verdict;
    std::string headline;
    std::vector<chart_line> loss_by_tokens;  // per site and the baseline
    std::vector<chart_line> loss_by_time;
    std::vector<block_owner> blocks;
    std::uint64_t num_blocks = 0;
    std::vector<std::string> head;
    std::vector<table_row> rounds;
    std::vector<std::string> times_head;
    std::vector<table_row> times;  // where each site's time went
    std::vector<table_row> facts;
    std::vector<std::string> findings;
};

/// The main figure.
darlcore::page::chart loss_chart(const demo_figures& f);

/// One HTML file without external resources: inline SVG, readable without script, every text escaped.
std::string demo_report_html(const demo_figures& f);

}  // namespace darl
