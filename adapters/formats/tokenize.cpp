// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/tokenize.hpp"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "adapters/formats/megatron.hpp"
#include "adapters/formats/token_writer.hpp"
#include "adapters/formats/utf8.hpp"

namespace darlcore::formats {

namespace {

// Text that is in memory at a time, beside one document above it.
constexpr std::uint64_t batch_bytes = 8U << 20U;
constexpr std::size_t batch_documents_max = 8192;

struct encoded_document {
    result<void> outcome;
    std::vector<std::uint32_t> ids;
    std::uint64_t replaced = 0;
};

std::string place_of(const text_document& d) { return d.line == 0 ? d.file : d.file + ":" + std::to_string(d.line); }

result<void> check_text(text_document& d, bool replace, std::uint64_t& replaced) {
    const auto bad = first_invalid_utf8(d.text);
    if (!bad) return {};
    if (!replace)
        return fail(errc::parse_error, place_of(d) + ": invalid UTF-8 at byte " +
                                           std::to_string(d.offset_bytes + *bad) +
                                           "; --invalid-utf8 replace puts U+FFFD there");
    d.text = replace_invalid_utf8(d.text, replaced);
    return {};
}

encoded_document encode_document(const tokenizer& t, text_document& d, bool replace) {
    encoded_document out;
    if (t.needs_utf8()) out.outcome = check_text(d, replace, out.replaced);
    if (!out.outcome) return out;
    if (const auto bos = t.bos_id()) out.ids.push_back(*bos);
    out.outcome = t.encode(d.text, out.ids);
    if (!out.outcome) {
        out.outcome = fail(out.outcome.error().code, place_of(d) + ": " + out.outcome.error().context);
        return out;
    }
    if (const auto eos = t.eos_id()) out.ids.push_back(*eos);
    return out;
}

// Each worker takes the next document that nobody has taken; results keep the documents' places.
std::vector<encoded_document> encode_batch(const tokenizer& t, std::vector<text_document>& batch, unsigned threads,
                                           bool replace) {
    std::vector<encoded_document> out(batch.size());
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
        for (std::size_t i = next++; i < batch.size(); i = next++) out[i] = encode_document(t, batch[i], replace);
    };
    std::vector<std::thread> others;
    const std::size_t useful = std::min<std::size_t>(threads, batch.size());
    for (std::size_t k = 1; k < useful; ++k) others.emplace_back(work);
    work();
    for (auto& thread : others) thread.join();
    return out;
}

result<std::vector<text_document>> read_batch(document_reader& reader) {
    std::vector<text_document> batch;
    std::uint64_t bytes = 0;
    while (bytes < batch_bytes && batch.size() < batch_documents_max) {
        auto document = reader.next();
        if (!document) return document.error();
        if (!document->has_value()) break;
        bytes += (*document)->text.size();
        batch.push_back(**std::move(document));
    }
    return batch;
}

token_writer_settings writer_settings(const tokenizer& t, const tokenize_settings& s) {
    token_writer_settings w;
    w.seq_len = s.seq_len;
    w.vocab_size = t.vocab_size();
    w.tokenizer_name = t.name();
    w.tokenizer_sha256 = t.sha256();
    w.source = s.source;
    w.bos_id = t.bos_id();
    w.eos_id = t.eos_id();
    w.shard_bytes_max = s.shard_bytes_max;
    return w;
}

result<tokenize_summary> finish_summary(token_writer& writer, tokenize_summary summary) {
    auto written = writer.finish();
    if (!written) return written.error();
    summary.manifest = std::move(written->manifest);
    summary.dropped_ids = written->dropped_ids;
    return summary;
}

}  // namespace

result<tokenize_summary> tokenize_files(const tokenizer& t, const tokenize_settings& settings,
                                        const std::function<bool(const tokenize_progress&)>& proceed) {
    if (settings.inputs.empty()) return fail(errc::invalid_argument, "no input files");
    if (settings.threads == 0) return fail(errc::invalid_argument, "threads must be at least 1");
    auto writer = token_writer::create(settings.out, writer_settings(t, settings));
    if (!writer) return writer.error();
    document_reader reader(settings.inputs, settings.format, settings.replace_invalid_utf8);
    tokenize_summary summary;
    for (;;) {
        auto batch = read_batch(reader);
        if (!batch) return batch.error();
        if (batch->empty()) break;
        for (const auto& document : encode_batch(t, *batch, settings.threads, settings.replace_invalid_utf8)) {
            if (!document.outcome) return document.outcome.error();
            if (const auto ok = writer->append(document.ids); !ok) return ok.error();
            summary.ids += document.ids.size();
            summary.replaced_utf8_parts += document.replaced;
        }
        summary.documents += batch->size();
        summary.bytes = reader.bytes_read();
        if (!proceed({summary.documents, summary.bytes, summary.ids}))
            return fail(errc::cancelled, "stopped; nothing was written");
    }
    summary.replaced_utf8_parts += reader.replaced();
    return finish_summary(*writer, std::move(summary));
}

result<tokenize_summary> convert_megatron(const tokenizer& t, const tokenize_settings& settings,
                                          const std::function<bool(const tokenize_progress&)>& proceed) {
    if (settings.inputs.empty()) return fail(errc::invalid_argument, "no input files");
    auto writer = token_writer::create(settings.out, writer_settings(t, settings));
    if (!writer) return writer.error();
    tokenize_summary summary;
    for (const auto& input : settings.inputs) {
        const auto set = megatron_dataset::open(input);
        if (!set) return set.error();
        for (std::size_t d = 0; d < set->num_documents(); ++d) {
            const auto ids = set->read_document(d);
            if (!ids) return ids.error();
            if (const auto ok = writer->append(*ids); !ok)
                return fail(ok.error().code, input + ": document " + std::to_string(d) + ": " + ok.error().context);
            ++summary.documents;
            summary.ids += ids->size();
            if (!proceed({summary.documents, summary.bytes, summary.ids}))
                return fail(errc::cancelled, "stopped; nothing was written");
        }
    }
    return finish_summary(*writer, std::move(summary));
}

}  // namespace darlcore::formats
