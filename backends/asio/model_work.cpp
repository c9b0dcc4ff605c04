// SPDX-License-Identifier: Apache-2.0
#include "backends/asio/model_work.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "adapters/formats/json.hpp"
#include "adapters/formats/safetensors.hpp"
#include "backends/asio/scan_text.hpp"
#include "backends/asio/wire_fields.hpp"
#include "backends/host/cpu_backend.hpp"
#include "backends/host/delta_stream.hpp"
#include "backends/host/file_digest.hpp"
#include "backends/host/merge_files.hpp"
#include "backends/host/raw_file.hpp"
#include "backends/storage/model_directory.hpp"
#include "darlcore/hex.hpp"
#include "darlcore/merge/conversions.hpp"

namespace darlcore::http {

namespace {

constexpr std::size_t chunk_elements = std::size_t{1} << 18U;

std::uint64_t number_of(const std::string* text) {
    std::uint64_t n = 0;
    if (text != nullptr) std::from_chars(text->data(), text->data() + text->size(), n);
    return n;
}

/// What a file says about itself; nothing when it says nothing.
std::optional<contribution_claim> claim_of(const formats::safetensors_header& header) {
    const std::string* site = header.meta("darl.site");
    const std::string* run = header.meta("darl.run_id");
    if (site == nullptr || run == nullptr) return std::nullopt;
    return contribution_claim{*run,
                              {*site},
                              generation{number_of(header.meta("darl.base_generation"))},
                              number_of(header.meta("darl.tokens")),
                              number_of(header.meta("darl.steps"))};
}

class scanner final : public storage::blob_scanner {
public:
    explicit scanner(std::uint64_t bytes) : bytes_(bytes), stream_(bytes) {}
    void update(std::string_view bytes) override {
        if (failure_) return;
        if (auto fed = stream_.feed(std::as_bytes(std::span(bytes.data(), bytes.size()))); !fed) failure_ = fed.error();
    }
    result<std::string> finish() override {
        if (failure_) return fail(errc::meta_mismatch, failure_->context);
        const auto found = stream_.finish();
        if (!found) return fail(errc::meta_mismatch, found.error().context);
        ledger::blob_facts facts;
        facts.bytes = bytes_;
        facts.layout_digest = found->layout.digest();
        facts.scan = found->scan;
        facts.metadata = claim_of(found->header);
        return scan_text(facts);
    }

private:
    std::uint64_t bytes_;
    host::delta_stream stream_;
    std::optional<error> failure_;
};

std::string file_in(const std::string& folder, const char* name) { return storage::join(folder, name); }

result<void> write_text(const std::string& path, const std::string& text) {
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out << text << '\n';
    out.close();
    if (!out) return fail(errc::io_error, fmt::format("{}: could not be written", path));
    return {};
}

/// Digests of the files of a first generation.
result<round::model_files> digest_model(const std::string& folder) {
    std::vector<host::raw_file> files;
    for (const char* name : {storage::global_file, storage::wire_file}) {
        auto file = host::raw_file::open(file_in(folder, name));
        if (!file) return file.error();
        files.push_back(*std::move(file));
    }
    std::vector<host::digest_job> jobs;
    for (const host::raw_file& file : files)
        jobs.push_back({file.size_bytes(),
                        [&file](std::uint64_t at, std::span<std::byte> into) { return file.read(at, into); },
                        jobs.empty()});
    const auto digests = host::digest_files(jobs, host::cpu_backend().threads());
    if (!digests) return digests.error();
    return round::model_files{
        {to_hex(digests->front()), jobs.front().bytes}, {}, {to_hex(digests->back()), jobs.back().bytes}, {}};
}

json::value policy_json(const ledger::outer_policy& p) {
    return json::make_object(
        {{"eta", p.eta}, {"beta", p.beta}, {"solo", ledger::word(p.solo)}, {"first_step", ledger::word(p.first_step)}});
}

/// Reads f32 values of a tensor in pieces, whatever type the file has.
class tensor_input {
public:
    tensor_input(const formats::safetensors_reader& file, const formats::safetensors_entry& entry)
        : file_(file), entry_(entry) {}
    result<void> read(std::uint64_t first, std::span<float> out) {
        const std::size_t width = entry_.spec.dtype == dtype::f32 ? 4 : 2;
        raw_.resize(out.size() * width);
        if (auto got = file_.read(entry_, first * width, raw_); !got) return got;
        for (std::size_t i = 0; i < out.size(); ++i) {
            if (width == 4) {
                std::memcpy(&out[i], raw_.data() + 4 * i, 4);
            } else {
                std::uint16_t bits = 0;
                std::memcpy(&bits, raw_.data() + 2 * i, 2);
                out[i] = entry_.spec.dtype == dtype::bf16 ? f32_from_bf16(bits) : f32_from_f16(bits);
            }
        }
        return {};
    }

private:
    const formats::safetensors_reader& file_;
    const formats::safetensors_entry& entry_;
    std::vector<std::byte> raw_;
};

std::uint64_t elements_of(const formats::safetensors_entry& e) {
    return e.size_bytes() / (e.spec.dtype == dtype::f32 ? 4 : 2);
}

/// Writes a model as f32 and as bf16 at once, tensor by tensor in layout order.
class model_output {
public:
    static result<model_output> create(const std::string& folder, const model_layout& layout,
                                       const formats::safetensors_metadata& metadata) {
        const auto full = layout.specs_as(dtype::f32);
        const auto wire = layout.specs_as(dtype::bf16);
        auto global = formats::safetensors_writer::create(file_in(folder, storage::global_file), full, metadata);
        if (!global) return global.error();
        auto half = formats::safetensors_writer::create(file_in(folder, storage::wire_file), wire, metadata);
        if (!half) return half.error();
        return model_output(std::move(*global), std::move(*half));
    }
    result<void> write(std::span<const float> values) {
        half_.resize(values.size());
        for (std::size_t i = 0; i < values.size(); ++i) {
            half_[i] = bf16_from_f32(values[i]);
            max_abs_ = std::max(max_abs_, static_cast<double>(std::fabs(values[i])));
            finite_ = finite_ && std::isfinite(values[i]);
        }
        if (auto ok = global_.write(std::as_bytes(values)); !ok) return ok;
        return wire_.write(std::as_bytes(std::span<const std::uint16_t>(half_)));
    }
    result<void> finish() {
        if (auto ok = global_.finish(); !ok) return ok;
        return wire_.finish();
    }
    [[nodiscard]] bool finite() const { return finite_; }
    [[nodiscard]] double max_abs() const { return max_abs_; }

private:
    model_output(formats::safetensors_writer global, formats::safetensors_writer wire)
        : global_(std::move(global)), wire_(std::move(wire)) {}
    formats::safetensors_writer global_;
    formats::safetensors_writer wire_;
    std::vector<std::uint16_t> half_;
    double max_abs_ = 0;
    bool finite_ = true;
};

result<model_layout> layout_of(const formats::safetensors_reader& file) {
    std::vector<tensor_spec> specs;
    for (const auto& e : file.header().entries) specs.push_back(e.spec);
    return model_layout::make(std::move(specs));
}

/// Writes what a file holds as the files of a model; the largest magnitude of its weights.
result<double> write_model(const formats::safetensors_reader& file, const model_layout& layout,
                           const std::string& staging, const formats::safetensors_metadata& metadata) {
    auto out = model_output::create(staging, layout, metadata);
    if (!out) return out.error();
    std::vector<float> values;
    for (const tensor_spec& spec : layout.specs()) {
        const auto& entry = *file.header().find(spec.name);
        const std::uint64_t total = elements_of(entry);
        for (std::uint64_t at = 0; at < total; at += values.size()) {
            values.resize(static_cast<std::size_t>(std::min<std::uint64_t>(chunk_elements, total - at)));
            if (auto got = tensor_input(file, entry).read(at, values); !got) return got.error();
            if (auto ok = out->write(values); !ok) return ok.error();
        }
    }
    if (auto ok = out->finish(); !ok) return ok.error();
    if (!out->finite()) return fail(errc::not_finite, "the weights hold nan or inf");
    return out->max_abs();
}

json::value ref_json(const round::blob_ref& ref, const char* digest_name) {
    return json::make_object({{digest_name, ref.sha256}, {"bytes", wire::count(ref.bytes)}});
}

/// State files are digested in parts of 16 MiB, the wire copy is not: it is served under its digest.
json::value files_json(const round::model_files& files) {
    json::value out = json::make_object({{storage::global_file, ref_json(files.global, "parts_sha256")},
                                         {storage::wire_file, ref_json(files.wire, "sha256")}});
    if (!files.velocity.sha256.empty()) out.set(storage::velocity_file, ref_json(files.velocity, "parts_sha256"));
    return out;
}

/// A contribution that was used, and what the merge says of it.
struct used_file {
    const merge_file* file = nullptr;
    double share = 0;
    std::optional<double> drift;
};

result<void> write_meta(const merge_order& order, const host::merge_report& report, const round::model_files& files,
                        const std::vector<used_file>& used) {
    json::value list = json::array{};
    std::uint64_t tokens = order.tokens_total;
    for (const used_file& u : used) {
        const auto& input = u.file->input;
        tokens += input.weight_tokens;
        list.push_back(json::make_object({{"site", input.site.name},
                                          {"id", input.id.text},
                                          {"sha256", input.sha256},
                                          {"tokens", wire::count(input.weight_tokens)},
                                          {"steps", wire::count(input.steps)},
                                          {"share", u.share},
                                          {"drift", u.drift ? json::value(*u.drift) : json::value(nullptr)}}));
    }
    const json::value meta = json::make_object({{"run_id", order.run_id},
                                                {"generation", wire::count(order.next.count)},
                                                {"parent", wire::count(order.next.count - 1)},
                                                {"layout_digest", to_hex(report.layout.digest())},
                                                {"global_step", wire::count(order.global_step + report.step_advance)},
                                                {"tokens_total", wire::count(tokens)},
                                                {"policy", policy_json(order.policy)},
                                                {"eta_used", static_cast<double>(report.rule.eta)},
                                                {"contributions", std::move(list)},
                                                {"files", files_json(files)}});
    return write_text(file_in(order.staging, storage::meta_file), json::dump(meta));
}

class host_model_work : public model_work {
public:
    std::unique_ptr<storage::blob_scanner> scanner(const storage::blob_facts& facts) override {
        return std::make_unique<http::scanner>(facts.bytes);
    }
    result<merge_outcome> merge(const merge_order& order) override {
        const auto begun = std::chrono::steady_clock::now();
        auto out = outer(order);
        if (out)
            out->figures.merge_ms =
                std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begun).count();
        return out;
    }
    result<initial_outcome> initialise(const std::string& source, const std::string& staging,
                                       const std::string& run_id) override;

private:
    static result<merge_outcome> outer(const merge_order& order);
};

result<initial_outcome> host_model_work::initialise(const std::string& source, const std::string& staging,
                                                    const std::string& run_id) {
    auto file = formats::safetensors_reader::open(source);
    if (!file) return file.error();
    const auto layout = layout_of(*file);
    if (!layout) return layout.error();
    initial_outcome out;
    out.layout_digest = to_hex(layout->digest());
    const auto largest = write_model(*file, *layout, staging, {{"darl.run_id", run_id}, {"darl.generation", "0"}});
    if (!largest) return largest.error();
    out.max_abs_weight = *largest;
    const auto files = digest_model(staging);
    if (!files) return files.error();
    out.files = *files;
    const json::value meta = json::make_object({{"run_id", run_id},
                                                {"generation", 0},
                                                {"layout_digest", out.layout_digest},
                                                {"global_step", 0},
                                                {"tokens_total", 0},
                                                {"files", files_json(out.files)}});
    if (auto ok = write_text(file_in(staging, storage::meta_file), json::dump(meta)); !ok) return ok.error();
    return out;
}

host::merge_request request_of(const merge_order& order) {
    host::merge_request r;
    r.base_path = file_in(order.current, storage::global_file);
    if (order.has_velocity) r.velocity_path = file_in(order.current, storage::velocity_file);
    for (const merge_file& d : order.deltas) {
        host::merge_delta delta;
        delta.path = d.path;
        delta.claim = {order.run_id, d.input.site, generation{order.next.count - 1}, d.input.weight_tokens,
                       d.input.steps};
        delta.scan = d.facts.scan;
        r.deltas.push_back(std::move(delta));
    }
    r.policy = {order.policy.eta, order.policy.beta, static_cast<darlcore::solo_policy>(order.policy.solo),
                static_cast<darlcore::first_step_policy>(order.policy.first_step)};
    r.guards.current = generation{order.next.count - 1};
    r.guards.accepted_norms = norm_history(order.norms);
    r.guards.limits.clip = order.clip;
    // judged when they were accepted, with the claim as it was told; tokens and steps here are what counts of it
    r.guards.switches.meta_mismatch = r.guards.switches.growth = r.guards.switches.norm_outlier = false;
    r.weights_out = file_in(order.staging, storage::global_file);
    r.velocity_out = file_in(order.staging, storage::velocity_file);
    r.wire_out = file_in(order.staging, storage::wire_file);
    r.metadata = {{"darl.run_id", order.run_id}, {"darl.generation", std::to_string(order.next.count)}};
    return r;
}

result<merge_outcome> host_model_work::outer(const merge_order& order) {
    const auto report = host::merge_files(request_of(order));
    if (!report) return report.error();
    merge_outcome out;
    out.merged = report->merged;
    const auto delta_at = [&](const std::string& path) -> const merge_file& {
        return *std::find_if(order.deltas.begin(), order.deltas.end(),
                             [&](const merge_file& d) { return d.path == path; });
    };
    for (const auto& r : report->rejected) {
        const merge_file& d = delta_at(r.path);
        out.rejected.push_back({d.input.id, d.input.site, r.code});
    }
    if (!out.merged) return out;
    std::vector<used_file> used;
    for (std::size_t i = 0; i < report->used.size(); ++i)
        used.push_back({&delta_at(report->used[i].path), static_cast<double>(report->used[i].share),
                        report->drift ? std::optional(report->drift->per_site[i]) : std::nullopt});
    out.files = {{to_hex(report->weights_parts_digest), report->weights_bytes},
                 {to_hex(report->velocity_parts_digest), report->velocity_bytes},
                 {to_hex(report->wire_sha256), report->wire_bytes},
                 {}};
    if (auto ok = write_meta(order, *report, out.files, used); !ok) return ok.error();
    out.max_abs_weight = static_cast<double>(report->weights_after.max_abs);
    out.figures.bytes = report->bytes_read + report->bytes_written;
    out.figures.agreement = report->agreement.overall.value_or(0.0);
    if (report->drift) {
        out.figures.drift_mean = report->drift->mean;
        out.figures.drift_max = report->drift->max;
    }
    return out;
}

}  // namespace

std::unique_ptr<model_work> make_model_work() { return std::make_unique<host_model_work>(); }

}  // namespace darlcore::http
