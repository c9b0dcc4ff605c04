// SPDX-License-Identifier: Apache-2.0
#include "backends/host/merge_inputs.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <new>

#include "backends/host/delta_stream.hpp"
#include "backends/host/file_digest.hpp"
#include "backends/host/raw_file.hpp"
#include "backends/host/run_threads.hpp"

namespace darlcore::host {

namespace {

using formats::safetensors_header;

struct file_scan {
    delta_facts facts;
    digest32 sha256{};
    std::uint64_t bytes = 0;
};

/// Reads a file once, front to back: scan and, when asked for, digest.
result<file_scan> scan_file(const std::string& path, bool with_digest) {
    auto file = raw_file::open(path);
    if (!file) return file.error();
    delta_stream stream(file->size_bytes());
    file_digest digest;
    std::vector<std::byte> buffer(std::size_t{1} << 20U);
    for (std::uint64_t at = 0; at < file->size_bytes();) {
        const auto piece = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), file->size_bytes() - at));
        if (auto ok = file->read(at, piece); !ok) return ok.error();
        if (with_digest) digest.update(piece);
        if (auto ok = stream.feed(piece); !ok) return fail(ok.error().code, path + ": " + ok.error().context);
        at += piece.size();
    }
    auto facts = stream.finish();
    if (!facts) return fail(facts.error().code, path + ": " + facts.error().context);
    return file_scan{*std::move(facts), with_digest ? digest.finish() : digest32{}, file->size_bytes()};
}

std::optional<std::uint64_t> number_of(const std::string& text) {
    std::uint64_t value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

/// What the file says of itself; fields that it lacks are taken from the claim unless all are required.
/// Errors: errc::meta_mismatch when a field is missing or no number.
result<contribution_claim> metadata_of(const safetensors_header& header, const contribution_claim& claim,
                                       bool required) {
    contribution_claim said = claim;
    const auto missing = [](const char* key) {
        return fail(errc::meta_mismatch, std::string("the file has no ") + key);
    };
    const auto text = [&](const char* key, std::string& to) -> result<void> {
        const std::string* value = header.meta(key);
        if (value == nullptr && required) return missing(key);
        if (value != nullptr) to = *value;
        return {};
    };
    const auto number = [&](const char* key, std::uint64_t& to) -> result<void> {
        const std::string* value = header.meta(key);
        if (value == nullptr && required) return missing(key);
        if (value == nullptr) return {};
        const auto parsed = number_of(*value);
        if (!parsed) return fail(errc::meta_mismatch, std::string(key) + " of the file is not a whole number");
        to = *parsed;
        return {};
    };
    if (auto ok = text("darl.run_id", said.run_id); !ok) return ok.error();
    if (auto ok = text("darl.site", said.site.name); !ok) return ok.error();
    if (auto ok = number("darl.base_generation", said.base_generation.count); !ok) return ok.error();
    if (auto ok = number("darl.tokens", said.tokens); !ok) return ok.error();
    if (auto ok = number("darl.steps", said.steps); !ok) return ok.error();
    return said;
}

struct candidate {
    const merge_delta* delta = nullptr;
    std::optional<layout_file> file;
    contribution_facts facts;
    bool scan_wanted = false;
    std::optional<error> unreadable;
};

void reject(merge_report& report, const merge_delta& delta, errc code, fault kind, std::string reason) {
    report.rejected.push_back({delta.path, delta.claim.site, code, kind, std::move(reason)});
}

/// A file that cannot even be opened; its own digest error is the more useful word when one was announced.
candidate open_candidate(const merge_delta& delta, const merge_request& request) {
    candidate c;
    c.delta = &delta;
    c.facts.claim = delta.claim;
    auto file = open_layout_file(delta.path);
    if (!file) {
        c.unreadable = file.error();
        return c;
    }
    c.facts.layout_digest = file->layout.digest();
    auto said = metadata_of(file->reader.header(), delta.claim, request.require_metadata);
    if (!said) {
        c.unreadable = said.error();
        return c;
    }
    c.facts.file_metadata = *std::move(said);
    c.facts.scan = delta.scan;
    c.scan_wanted = !delta.scan || delta.sha256;
    c.file = *std::move(file);
    return c;
}

void scan_candidate(candidate& c) {
    auto scan = scan_file(c.delta->path, c.delta->sha256.has_value());
    if (!scan) {
        c.unreadable = scan.error();
        return;
    }
    c.facts.scan = scan->facts.scan;
    if (!c.delta->sha256) return;
    c.facts.announced_sha256 = c.delta->sha256;
    c.facts.received_sha256 = scan->sha256;
}

void scan_in_parallel(std::vector<candidate>& candidates, int threads) {
    std::atomic<std::size_t> next{0};
    std::atomic<bool> no_memory{false};
    const auto work = [&] {
        try {
            for (std::size_t i = next++; i < candidates.size(); i = next++)
                if (candidates[i].scan_wanted && !candidates[i].unreadable) scan_candidate(candidates[i]);
        } catch (const std::bad_alloc&) {
            no_memory = true;  // our trouble, no fault of the delta
        }
    };
    run_on_threads(threads, work);
    if (no_memory) throw std::bad_alloc();
}

/// Second look, in order of arrival, when everything about every file is known.
void judge_candidate(candidate& c, const guard_context& context, merge_report& report,
                     std::vector<layout_file>& files) {
    const merge_delta& delta = *c.delta;
    if (c.unreadable) return reject(report, delta, c.unreadable->code, fault::standing, c.unreadable->context);
    c.facts.site_has_another = std::any_of(report.used.begin(), report.used.end(),
                                           [&](const used_delta& u) { return u.claim.site == delta.claim.site; });
    const guard_verdict verdict = judge(c.facts, context);
    if (!verdict.accepted()) return reject(report, delta, *verdict.code, verdict.fault, verdict.reason);
    report.used.push_back({delta.path, delta.claim, 0.0F, verdict.scale, *c.facts.scan, verdict.norm_warning});
    files.push_back(*std::move(c.file));
}

/// Ascending site id, files alongside.
void sort_by_site(std::vector<used_delta>& used, std::vector<layout_file>& files) {
    std::vector<std::size_t> order(used.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](auto a, auto b) { return used[a].claim.site < used[b].claim.site; });
    std::vector<used_delta> used_sorted;
    std::vector<layout_file> files_sorted;
    for (const std::size_t i : order) {
        used_sorted.push_back(std::move(used[i]));
        files_sorted.push_back(std::move(files[i]));
    }
    used = std::move(used_sorted);
    files = std::move(files_sorted);
}

result<void> all_f32(const layout_file& file) {
    for (const auto& entry : file.entries)
        if (entry.spec.dtype != dtype::f32)
            return fail(errc::unsupported, file.reader.path() + ": tensor '" + entry.spec.name + "' is " +
                                               std::string(word(entry.spec.dtype)) + ", weights and velocity are f32");
    return {};
}

result<void> open_state(const merge_request& request, merge_inputs& inputs) {
    auto base = open_layout_file(request.base_path);
    if (!base) return base.error();
    inputs.base = *std::move(base);
    if (auto ok = all_f32(*inputs.base); !ok) return ok;
    if (!request.velocity_path) return {};
    auto velocity = open_layout_file(*request.velocity_path);
    if (!velocity) return velocity.error();
    if (velocity->layout.digest() != inputs.base->layout.digest())
        return fail(errc::layout_mismatch,
                    *request.velocity_path + ": its tensors are not those of " + request.base_path);
    if (auto ok = all_f32(*velocity); !ok) return ok;
    inputs.velocity = *std::move(velocity);
    return {};
}

/// Guard numbers that the base file knows.
result<void> complete_context(const merge_request& request, merge_inputs& inputs, guard_context& context) {
    context.layout_digest = inputs.base->layout.digest();
    if (context.max_abs_weight != 0 || !context.switches.growth) return {};
    const auto scan = scan_file(request.base_path, false);
    if (!scan) return scan.error();
    if (!scan->facts.scan.finite) return fail(errc::not_finite, request.base_path + ": the weights hold nan or inf");
    context.max_abs_weight = scan->facts.scan.max_abs;
    inputs.bytes_read += scan->bytes;
    return {};
}

}  // namespace

result<layout_file> open_layout_file(const std::string& path) {
    auto reader = formats::safetensors_reader::open(path);
    if (!reader) return reader.error();
    std::vector<formats::safetensors_entry> entries = reader->header().entries;
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.spec.name < b.spec.name; });
    std::vector<tensor_spec> specs;
    for (const auto& entry : entries) specs.push_back(entry.spec);
    auto layout = model_layout::make(std::move(specs));
    if (!layout) return fail(layout.error().code, path + ": " + layout.error().context);
    return layout_file{*std::move(reader), *std::move(layout), std::move(entries)};
}

result<merge_inputs> gather_inputs(const merge_request& request, int threads, merge_report& report) {
    merge_inputs inputs;
    if (auto ok = open_state(request, inputs); !ok) return ok.error();
    guard_context context = request.guards;
    if (auto ok = complete_context(request, inputs, context); !ok) return ok.error();
    std::vector<candidate> candidates;
    for (const merge_delta& delta : request.deltas) {
        candidates.push_back(open_candidate(delta, request));
        // What is refused by cheap guards is not read at all.
        candidate& c = candidates.back();
        if (!c.unreadable && !judge_standing(c.facts, context).accepted()) c.scan_wanted = false;
    }
    scan_in_parallel(candidates, std::min(threads, static_cast<int>(candidates.size())));
    for (candidate& c : candidates) {
        if (c.unreadable && c.unreadable->code == errc::out_of_memory) return *c.unreadable;  // no fault of the delta
        if (c.scan_wanted && c.file) inputs.bytes_read += c.file->reader.file_bytes();
        judge_candidate(c, context, report, inputs.deltas);
    }
    sort_by_site(report.used, inputs.deltas);
    report.layout = inputs.base->layout;
    return inputs;
}

}  // namespace darlcore::host
