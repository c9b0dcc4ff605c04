// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "adapters/cli/demo_report.hpp"
#include "adapters/cli/simulation_audit.hpp"
#include "darlcore/error.hpp"

namespace darl {

/// Text to train on and text to be judged by; never the same documents.
struct demo_corpus {
    std::vector<std::string> train;
    std::string held_out;
    std::optional<double> floor;  // perplexity that no model can beat, where it is known
};

/// The last document is held out, of a single one its last tenth; train_bytes are taken evenly from the others.
/// Errors: errc::invalid_argument when there is too little text.
darlcore::result<demo_corpus> split_documents(std::vector<std::string> documents, std::uint64_t train_bytes,
                                              std::uint64_t held_out_bytes);

/// A Markov chain over the letters a..z in which each letter has four successors with probabilities 1/2, 1/4, 1/8, 1/8,
/// drawn with a fixed seed: entropy rate 1.75 bits, floor 2^1.75 = 3.364 per byte.
demo_corpus synthetic_corpus(std::uint64_t train_bytes, std::uint64_t held_out_bytes);

struct demo_settings {
    std::string dir;
    bool quick = false;
    bool verbose = true;
    std::string fault;  // what the fast site is told to do wrong, so that tests see the audit fail
};

struct demo_outcome {
    bool pass = false;
    audit_report audit;
    double federated = 0;  // held-out perplexities
    double centralised = 0;
    double untrained = 0;
    std::optional<double> floor;
    double seconds = 0;
    std::string sample;  // text of the federated model
    std::vector<std::string> findings;
    demo_figures figures;
};

/// Runs everything below `dir` with processes of this program, which all end before it returns.
/// Errors: errc::io_error, errc::timeout: what failed and which log to read.
darlcore::result<demo_outcome> run_demo_in(const demo_settings& settings, const demo_corpus& corpus);

}  // namespace darl
