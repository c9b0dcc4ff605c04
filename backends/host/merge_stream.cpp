// SPDX-License-Identifier: Apache-2.0
#include "backends/host/merge_stream.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <new>
#include <optional>

#include "backends/host/raw_file.hpp"
#include "backends/host/run_threads.hpp"
#include "darlcore/merge/ieee_mode.hpp"
#include "darlcore/merge/scan_accumulator.hpp"

namespace darlcore::host {

namespace {

constexpr std::uint64_t chunk_bytes_min = std::uint64_t{256} << 10U;
constexpr std::uint64_t chunk_bytes_unit = std::uint64_t{64} << 10U;

/// Which of a worker's output buffers a file is written from.
enum output_kind : std::size_t { weights_output = 0, velocity_output = 1, wire_output = 2 };

struct output {
    output_kind kind;
    formats::safetensors_writer writer;
    dtype type;
};

result<output> make_output(const merge_request& request, const model_layout& layout, output_kind kind,
                           const std::string& path) {
    const dtype type = kind == wire_output ? request.wire_type : dtype::f32;
    auto writer = formats::safetensors_writer::create(path, layout.specs_as(type), request.metadata);
    if (!writer) return writer.error();
    return output{kind, *std::move(writer), type};
}

/// Where one input's elements of a chunk lie in its buffer.
struct loaded_stream {
    const layout_file* file = nullptr;
    std::byte* memory = nullptr;

    [[nodiscard]] dtype type_of(const block_place& block) const { return file->entries[block.tensor].spec.dtype; }
};

/// Reads the blocks one behind the other; neighbours in the file become one read.
result<std::uint64_t> load(const loaded_stream& stream, std::span<const block_place> blocks) {
    std::uint64_t filled = 0, run_offset = 0, run_bytes = 0;
    const auto flush = [&]() -> result<void> {
        const auto piece = std::span(stream.memory + filled, run_bytes);
        filled += run_bytes;
        run_bytes = 0;
        return stream.file->reader.read(run_offset, piece);
    };
    for (const block_place& block : blocks) {
        const std::uint64_t element = size_of(stream.type_of(block));
        const std::uint64_t at = stream.file->entries[block.tensor].begin_bytes + block.first * element;
        if (run_bytes > 0 && at != run_offset + run_bytes)
            if (auto ok = flush(); !ok) return ok.error();
        if (run_bytes == 0) run_offset = at;
        run_bytes += block.count * element;
    }
    if (run_bytes > 0)
        if (auto ok = flush(); !ok) return ok.error();
    return filled;
}

/// Sums of blocks become sums of tensors, those the sum of the model: the order of the norm.
delta_scan in_layout_order(std::span<const block_place> blocks,
                           const std::function<const delta_scan&(std::size_t)>& of) {
    delta_scan total, tensor;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
        if (b > 0 && blocks[b].tensor != blocks[b - 1].tensor) {
            total.append(tensor);
            tensor = {};
        }
        tensor.append(of(b));
    }
    total.append(tensor);
    return total;
}

void set_figures(merge_report& report) {
    std::vector<double> norms, shares;
    for (const used_delta& u : report.used) {
        // What was merged: after the clip option.
        norms.push_back(u.scan.norm() * static_cast<double>(u.scale));
        shares.push_back(static_cast<double>(u.share));
    }
    report.drift = drift_of(norms, report.weight_norm);
    report.agreement = agreement_of(norms, shares, report.mean_delta_norm);
}

/// Everything the workers share.
class merge_run {
public:
    merge_run(const merge_request& request, const merge_inputs& inputs, merge_report& report)
        : request_(request), inputs_(inputs), report_(report), kernels_(best_kernels()) {}

    result<void> open(int threads) {
        const auto memory =
            plan_memory(request_.memory_budget_bytes, inputs_.deltas.size(), threads, request_.chunk_bytes_max);
        if (!memory) return memory.error();
        memory_ = *memory;
        blocks_ = blocks_of(inputs_.base->layout);
        chunks_ = chunks_of(inputs_.base->layout, blocks_, memory_.chunk_elements);
        sums_.resize(blocks_.size());
        const std::size_t n = inputs_.deltas.size();
        if (request_.cosines && n <= cosine_contributions_max) dots_.resize(blocks_.size() * (n * (n - 1) / 2));
        return open_outputs();
    }

    result<void> run(int threads) {
        const int workers = std::max(1, std::min(memory_.workers, static_cast<int>(chunks_.size())));
        run_on_threads(workers, [this] { work(); });
        if (failure_) return *failure_;
        return finish(threads);
    }

private:
    /// One worker's buffers: w, v, each delta; w' over w, v' over v, wire.
    struct buffers {
        cpu_backend::buffer memory;
        std::vector<std::byte*> in;
        std::vector<std::byte*> out;
    };

    result<void> open_outputs() {
        const auto add = [&](output_kind kind, const std::string& path) -> result<void> {
            auto made = make_output(request_, inputs_.base->layout, kind, path);
            if (!made) return made.error();
            outputs_.push_back(*std::move(made));
            return {};
        };
        if (auto ok = add(weights_output, request_.weights_out); !ok) return ok;
        if (request_.velocity_out)
            if (auto ok = add(velocity_output, *request_.velocity_out); !ok) return ok;
        return request_.wire_out ? add(wire_output, *request_.wire_out) : result<void>{};
    }

    result<buffers> make_buffers() const {
        const std::size_t inputs = 2 + inputs_.deltas.size();
        const std::size_t bytes = memory_.chunk_elements * sizeof(float);
        auto memory = cpu_backend().allocate(bytes * (inputs + 1));
        if (!memory) return memory.error();
        buffers b{*std::move(memory), {}, {}};
        auto* at = static_cast<std::byte*>(b.memory.data());
        for (std::size_t i = 0; i < inputs; ++i, at += bytes) b.in.push_back(at);
        b.out = {b.in[0], b.in[1], at};
        return b;
    }

    void fail_with(const error& failure) {
        {
            const std::lock_guard lock(failure_mutex_);
            if (!failure_) failure_ = failure;
        }
        stopped_ = true;
    }

    /// An exception must not leave a thread.
    void work() {
        try {
            take_chunks();
        } catch (const std::bad_alloc&) {
            fail_with({errc::out_of_memory, "out of memory"});  // short: no memory is taken for it
        }
    }
    void take_chunks() {
        const ieee_mode guard;
        auto memory = make_buffers();
        if (!memory) return fail_with(memory.error());
        for (std::size_t chunk = next_chunk_++; chunk < chunks_.size() && !stopped_; chunk = next_chunk_++)
            if (auto ok = process(chunk, *memory); !ok) return fail_with(ok.error());
    }

    result<void> process(std::size_t chunk, const buffers& memory) {
        if (request_.cancelled != nullptr && *request_.cancelled) return fail(errc::cancelled, "the merge was stopped");
        const chunk_place& place = chunks_[chunk];
        const auto blocks = std::span(blocks_).subspan(place.first_block, place.end_block - place.first_block);
        std::vector<loaded_stream> streams{{&*inputs_.base, memory.in[0]},
                                           {inputs_.velocity ? &*inputs_.velocity : nullptr, memory.in[1]}};
        for (std::size_t i = 0; i < inputs_.deltas.size(); ++i)
            streams.push_back({&inputs_.deltas[i], memory.in[2 + i]});
        for (const loaded_stream& stream : streams) {
            if (stream.file == nullptr) continue;
            const auto bytes = load(stream, blocks);
            if (!bytes) return bytes.error();
            bytes_read_ += *bytes;
        }
        compute(place, blocks, streams, memory);
        return put_out(chunk, memory);
    }

    void compute(const chunk_place& place, std::span<const block_place> blocks, std::span<const loaded_stream> streams,
                 const buffers& memory) {
        std::vector<std::uint64_t> offsets(streams.size());  // bytes, per stream
        std::vector<weighted_delta> deltas(inputs_.deltas.size());
        std::uint64_t element = 0;
        for (std::size_t b = 0; b < blocks.size(); ++b) {
            const std::uint64_t n = blocks[b].count;
            std::vector<const_tensor_view> views(streams.size());
            for (std::size_t i = 0; i < streams.size(); ++i) {
                if (streams[i].file == nullptr) continue;
                views[i] = {streams[i].memory + offsets[i], n, streams[i].type_of(blocks[b])};
                offsets[i] += views[i].size_bytes();
            }
            for (std::size_t i = 0; i < deltas.size(); ++i)
                deltas[i] = {views[2 + i], report_.used[i].share, report_.used[i].scale};
            outer_step_args args;
            args.w = views[0];
            args.v = views[1];
            args.deltas = deltas;
            args.rule = report_.rule;
            args.w_out = {memory.out[0] + element * 4, n, dtype::f32};
            args.v_out = {memory.out[1] + element * 4, n, dtype::f32};
            if (request_.wire_out) args.wire = {memory.out[2] + element * 2, n, request_.wire_type};
            outer_step_serial(kernels_, args, false, &sums_[place.first_block + b]);
            if (!dots_.empty()) take_dots(place.first_block + b, deltas);
            element += n;
        }
    }

    void take_dots(std::size_t block, std::span<const weighted_delta> deltas) {
        constexpr std::uint64_t piece = 1024;
        std::array<std::array<float, piece>, cosine_contributions_max> wide;
        const std::size_t pairs = deltas.size() * (deltas.size() - 1) / 2;
        std::vector<std::array<double, scan_lanes>> lanes(pairs);
        const std::uint64_t n = deltas.front().delta.elements;
        for (std::uint64_t first = 0; first < n; first += piece) {
            const std::uint64_t count = std::min(piece, n - first);
            for (std::size_t i = 0; i < deltas.size(); ++i) {
                const auto part = deltas[i].delta.part(first, count);
                kernels_.convert(part.data, part.dtype, wide[i].data(), dtype::f32, count);
            }
            std::size_t pair = 0;
            for (std::size_t i = 0; i < deltas.size(); ++i)
                for (std::size_t j = i + 1; j < deltas.size(); ++j)
                    kernels_.dot(wide[i].data(), wide[j].data(), count, lanes[pair++].data());
        }
        for (std::size_t pair = 0; pair < pairs; ++pair) {
            double sum = lanes[pair][0];
            for (std::size_t lane = 1; lane < scan_lanes; ++lane) sum += lanes[pair][lane];
            dots_[block * pairs + pair] = sum;
        }
    }

    result<void> put_out(std::size_t chunk, const buffers& memory) {
        const chunk_place& place = chunks_[chunk];
        for (std::size_t i = 0; i < outputs_.size(); ++i) {
            // A file takes one writer at a time: workers begin with different ones.
            output& out = outputs_[(chunk + i) % outputs_.size()];
            const std::uint64_t size = size_of(out.type);
            const auto bytes = std::span<const std::byte>(memory.out[out.kind], place.elements * size);
            if (auto ok = out.writer.write_at(place.first_element * size, bytes); !ok) return ok;
        }
        return {};
    }

    result<void> finish(int threads) {
        fill_sums();
        if (!report_.weights_after.finite)
            return fail(errc::not_finite,
                        "the merged weights hold nan or inf; the merge is abandoned, the old weights stay");
        set_figures(report_);
        report_.bytes_read += bytes_read_;
        report_.chunk_bytes = memory_.chunk_elements * sizeof(float);
        if (request_.digests)
            if (auto ok = take_digests(threads); !ok) return ok;
        if (auto ok = finish_files(); !ok) {
            for (output& out : outputs_) std::remove(out.writer.path().c_str());
            return ok;
        }
        return {};
    }

    /// From the pages that were just written, while they are in memory and before anybody waits for the disk.
    result<void> take_digests(int threads) {
        std::vector<raw_file> files;
        std::vector<digest_job> jobs;
        files.reserve(outputs_.size());
        for (const output& out : outputs_) {
            auto file = raw_file::open(out.writer.path());
            if (!file) return file.error();
            files.push_back(*std::move(file));
            const auto read = [&of = files.back()](std::uint64_t at, std::span<std::byte> into) {
                return of.read(at, into);
            };
            jobs.push_back({files.back().size_bytes(), read, out.kind != wire_output});
        }
        const auto digests = digest_files(jobs, threads);
        if (!digests) return digests.error();
        for (std::size_t i = 0; i < outputs_.size(); ++i) {
            const output_kind kind = outputs_[i].kind;
            (kind == weights_output    ? report_.weights_parts_digest
             : kind == velocity_output ? report_.velocity_parts_digest
                                       : report_.wire_sha256) = (*digests)[i];
            (kind == weights_output    ? report_.weights_bytes
             : kind == velocity_output ? report_.velocity_bytes
                                       : report_.wire_bytes) = jobs[i].bytes;
        }
        return {};
    }

    /// From here on nothing may fail but the disk: a finished file no longer removes itself.
    result<void> finish_files() {
        try {
            for (output& out : outputs_) {
                report_.bytes_written += out.writer.header_text().size() + out.writer.data_bytes();
                if (auto ok = out.writer.finish(); !ok) return ok;
            }
        } catch (const std::bad_alloc&) {
            return error{errc::out_of_memory, {}};
        }
        return {};
    }

    void fill_sums() {
        report_.weight_norm = in_layout_order(
                                  blocks_, [&](auto b) -> auto& { return sums_[b].w_before; })
                                  .norm();
        report_.mean_delta_norm = in_layout_order(
                                      blocks_, [&](auto b) -> auto& { return sums_[b].mean_delta; })
                                      .norm();
        report_.weights_after = in_layout_order(
            blocks_, [&](auto b) -> auto& { return sums_[b].w_after; });
        if (dots_.empty()) return;
        const std::size_t n = report_.used.size();
        std::size_t pair = 0;
        for (std::size_t i = 0; i < n; ++i)
            for (std::size_t j = i + 1; j < n; ++j, ++pair) {
                double dot = 0;
                for (std::size_t b = 0; b < blocks_.size(); ++b) dot += dots_[b * (n * (n - 1) / 2) + pair];
                report_.cosines.push_back({report_.used[i].claim.site, report_.used[j].claim.site,
                                           cosine_of(dot, report_.used[i].scan.norm(), report_.used[j].scan.norm())});
            }
    }

    const merge_request& request_;
    const merge_inputs& inputs_;
    merge_report& report_;
    const kernel_table& kernels_;
    merge_memory memory_;
    std::vector<block_place> blocks_;
    std::vector<chunk_place> chunks_;
    std::vector<step_sums> sums_;
    std::vector<double> dots_;
    std::vector<output> outputs_;
    std::atomic<std::size_t> next_chunk_{0};
    std::atomic<std::uint64_t> bytes_read_{0};
    std::atomic<bool> stopped_{false};
    std::mutex failure_mutex_;
    std::optional<error> failure_;
};

}  // namespace

std::vector<block_place> blocks_of(const model_layout& layout) {
    std::vector<block_place> blocks;
    for (std::size_t tensor = 0; tensor < layout.size(); ++tensor)
        for (std::uint64_t first = 0; first < layout.elements(tensor); first += scan_block_elements)
            blocks.push_back(
                {static_cast<std::uint32_t>(tensor), first,
                 static_cast<std::uint32_t>(std::min(scan_block_elements, layout.elements(tensor) - first))});
    return blocks;
}

std::vector<chunk_place> chunks_of(const model_layout& layout, std::span<const block_place> blocks,
                                   std::uint64_t elements_max) {
    DARLCORE_ASSERT(elements_max >= scan_block_elements);
    std::vector<chunk_place> chunks;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
        if (chunks.empty() || chunks.back().elements + blocks[b].count > elements_max)
            chunks.push_back({b, b, layout.offset(blocks[b].tensor) + blocks[b].first, 0});
        chunks.back().end_block = b + 1;
        chunks.back().elements += blocks[b].count;
    }
    return chunks;
}

result<merge_memory> plan_memory(std::uint64_t budget_bytes, std::size_t deltas, int threads,
                                 std::uint64_t chunk_bytes_max) {
    const std::uint64_t streams = deltas + 5;
    const std::uint64_t smallest = 2 * streams * chunk_bytes_min;
    if (budget_bytes < smallest)
        return fail(errc::invalid_argument, "a merge of " + std::to_string(deltas) +
                                                " deltas needs a memory budget of " + std::to_string(smallest) +
                                                " bytes, it is " + std::to_string(budget_bytes));
    const auto affordable = budget_bytes / (streams * chunk_bytes_min);
    const auto sets = std::clamp<std::uint64_t>(affordable, 2, static_cast<std::uint64_t>(std::max(2, threads)));
    const std::uint64_t share = budget_bytes / (sets * streams) / chunk_bytes_unit * chunk_bytes_unit;
    const std::uint64_t chunk = std::clamp(share, chunk_bytes_min, std::max(chunk_bytes_min, chunk_bytes_max));
    return merge_memory{chunk / sizeof(float),
                        static_cast<int>(std::min<std::uint64_t>(sets, static_cast<std::uint64_t>(threads)))};
}

result<void> stream_merge(const merge_request& request, const merge_inputs& inputs, int threads, merge_report& report) {
    merge_run run(request, inputs, report);
    if (auto ok = run.open(threads); !ok) return ok;
    return run.run(threads);
}

}  // namespace darlcore::host
