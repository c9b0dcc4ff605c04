// SPDX-License-Identifier: Apache-2.0
// `darl tokenize`: text to token shards and their manifest.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "adapters/cli/cli_support.hpp"
#include "adapters/cli/numbers.hpp"
#include "adapters/cli/progress_line.hpp"
#include "adapters/formats/json.hpp"
#include "adapters/formats/tokenize.hpp"

namespace darl {
namespace {

using darlcore::errc;
using darlcore::fail;
using darlcore::result;
using namespace darlcore::formats;

struct tokenize_options {
    std::vector<std::string> inputs;
    std::string tokenizer;
    std::string out;
    std::string seq_len;
    std::string format = "auto";
    std::string threads = "0";
    std::string shard_bytes = "1073741824";
    std::string invalid_utf8 = "error";
    std::string source;
    tokenizer_settings ends;
};

std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void request_stop(int) { stop_requested = true; }

// A stop ends the pass after the batch at hand, so that the staging folder goes away.
void listen_for_stop() {
    struct sigaction action {};
    action.sa_handler = &request_stop;
    ::sigemptyset(&action.sa_mask);
    for (const int number : {SIGINT, SIGTERM}) ::sigaction(number, &action, nullptr);
}

result<std::optional<document_format>> read_format(const std::string& text) {
    if (text == "auto" || text == "megatron") return std::optional<document_format>();
    if (text == "text") return std::optional(document_format::text);
    if (text == "lines") return std::optional(document_format::lines);
    if (text == "jsonl") return std::optional(document_format::jsonl);
    return fail(errc::invalid_argument, "--format: `" + text + "` is none of auto, text, lines, jsonl, megatron");
}

result<tokenize_settings> read_settings(const tokenize_options& o) {
    const auto seq_len = whole_number<std::uint64_t>("--seq-len", o.seq_len);
    if (!seq_len) return seq_len.error();
    const auto threads = whole_number<unsigned>("--threads", o.threads);
    if (!threads) return threads.error();
    const auto shard_bytes = whole_number<std::uint64_t>("--shard-bytes", o.shard_bytes);
    if (!shard_bytes) return shard_bytes.error();
    const auto format = read_format(o.format);
    if (!format) return format.error();
    if (o.invalid_utf8 != "error" && o.invalid_utf8 != "replace")
        return fail(errc::invalid_argument, "--invalid-utf8: `" + o.invalid_utf8 + "` is neither error nor replace");
    tokenize_settings s;
    s.inputs = o.inputs;
    s.format = *format;
    s.out = o.out;
    s.seq_len = *seq_len;
    s.shard_bytes_max = *shard_bytes;
    s.threads = *threads != 0 ? *threads : std::max(1U, std::thread::hardware_concurrency());
    s.replace_invalid_utf8 = o.invalid_utf8 == "replace";
    s.source = o.source;
    return s;
}

std::string progress_text(const tokenize_progress& p, double seconds) {
    return fmt::format("{} documents, {:.1f} MB, {:.2f} M tokens, {:.2f} M tokens/s", p.documents,
                       static_cast<double>(p.bytes) * 1e-6, static_cast<double>(p.ids) * 1e-6,
                       static_cast<double>(p.ids) * 1e-6 / std::max(seconds, 1e-9));
}

void print_summary(const session& s, const tokenize_summary& summary, const std::string& out) {
    const auto& m = summary.manifest;
    const std::string corpus = darlcore::to_hex(m.corpus());
    const std::string content = darlcore::to_hex(*m.corpus_content);
    if (s.json) {
        print_line(
            darlcore::json::dump(darlcore::json::make_object({{"windows", m.num_windows},
                                                              {"digest", corpus},
                                                              {"corpus_content", content},
                                                              {"documents", summary.documents},
                                                              {"bytes", summary.bytes},
                                                              {"ids", summary.ids},
                                                              {"dropped_ids", summary.dropped_ids},
                                                              {"replaced_utf8_parts", summary.replaced_utf8_parts},
                                                              {"vocab_size", m.vocab_size},
                                                              {"shards", m.shards.size()},
                                                              {"manifest", out + "/manifest.json"}})));
        return;
    }
    print_line(fmt::format("{} windows of {} ids from {} documents in {} shard(s); {} ids of the last window dropped",
                           m.num_windows, m.window(), summary.documents, m.shards.size(), summary.dropped_ids));
    if (summary.replaced_utf8_parts > 0)
        print_line(fmt::format("{} ill-formed parts replaced by U+FFFD", summary.replaced_utf8_parts));
    print_line(fmt::format("corpus  {}\ncontent {}\n{}/manifest.json", corpus, content, out));
}

void run_tokenize(session& s, const tokenize_options& options) {
    const auto settings = read_settings(options);
    if (!settings) return report(s, settings.error());
    const auto tokenizer = open_tokenizer(options.tokenizer, options.ends);
    if (!tokenizer) return report_input(s, tokenizer.error());
    listen_for_stop();
    const auto summary = [&] {
        progress_line line(s.verbosity >= 0);
        const auto begun = std::chrono::steady_clock::now();
        const auto proceed = [&](const tokenize_progress& p) {
            const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begun;
            if (line.shown()) line.show(progress_text(p, passed.count()));
            return !stop_requested;
        };
        if (options.format == "megatron") return convert_megatron(**tokenizer, *settings, proceed);
        return tokenize_files(**tokenizer, *settings, proceed);
    }();
    if (!summary) return report_input(s, summary.error());
    print_summary(s, *summary, options.out);
}

}  // namespace

void add_tokenize(CLI::App& app, session& s) {
    auto* command = app.add_subcommand("tokenize", "text into token shards and their manifest");
    const auto o = std::make_shared<tokenize_options>();
    command->add_option("--input", o->inputs, "text or jsonl files, in the order of the corpus")->required();
    command
        ->add_option("--tokenizer", o->tokenizer,
                     "`bytes`, a tokenizer.json (byte-level BPE) or a SentencePiece .model")
        ->required();
    command->add_option("--out", o->out, "folder to make; must not exist or be empty")->required();
    command->add_option("--seq-len", o->seq_len, "predicted ids per window; a window holds one more")->required();
    command
        ->add_option("--format", o->format,
                     "text: a document per file; lines: per line; jsonl: member `text` per line; "
                     "megatron: prefixes of .idx and .bin files, ids as they are")
        ->capture_default_str();
    command->add_option("--threads", o->threads, "0 = one per core; the result does not depend on it")
        ->capture_default_str();
    command->add_option("--shard-bytes", o->shard_bytes, "largest shard file")->capture_default_str();
    command->add_option("--invalid-utf8", o->invalid_utf8, "error, or replace by U+FFFD")->capture_default_str();
    command->add_option("--bos", o->ends.bos,
                        "special token before every document, or `none` (default: as the file says)");
    command->add_option("--eos", o->ends.eos,
                        "special token after every document, or `none` (default: as the file says)");
    command->add_option("--source", o->source, "note on where the text came from, kept in the manifest");
    command->footer(
        "Keep held-out text in files of its own and tokenise it into a folder of its own.\n"
        "Example: darl tokenize --input books/*.txt --tokenizer bytes --out corpus --seq-len 256");
    command->callback([&s, o] { run_tokenize(s, *o); });
}

}  // namespace darl
