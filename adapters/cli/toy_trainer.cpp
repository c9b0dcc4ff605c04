// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/toy_trainer.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <span>

#include <fmt/format.h>

#include "adapters/formats/safetensors.hpp"
#include "backends/storage/posix.hpp"
#include "backends/storage/sha256.hpp"
#include "darlcore/merge/model_layout.hpp"

namespace darl {
namespace {

using namespace darlcore;

std::int64_t now_ms() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

std::vector<tensor_spec> table_specs(std::uint64_t num_samples) {
    return {tensor_spec{"windows", dtype::f32, {num_samples}}};
}

}  // namespace

result<std::unique_ptr<toy_trainer>> toy_trainer::make(options o) {
    auto space = block_space::make(o.space);
    if (!space) return space.error();
    std::error_code failed;
    std::filesystem::create_directories(o.work_dir, failed);
    if (failed) return fail(errc::io_error, fmt::format("{}: {}", o.work_dir, failed.message()));
    std::unique_ptr<toy_trainer> made(new toy_trainer(std::move(o), *std::move(space)));
    if (auto opened = made->record_.open(made->options_.record_path); !opened) return opened.error();
    return made;
}

toy_trainer::~toy_trainer() { stop(); }

std::string toy_trainer::layout_digest(std::uint64_t num_samples) {
    const auto layout = model_layout::make(table_specs(num_samples));
    DARLCORE_ASSERT(layout.has_value());
    return to_hex(layout->digest());
}

void toy_trainer::start(std::function<void(site::event_t)> report) {
    report_ = std::move(report);
    thread_ = std::thread([this] { serve(); });
}

void toy_trainer::stop() {
    stopped_ = true;
    ready_.notify_all();
    if (thread_.joinable()) thread_.join();
}

result<void> toy_trainer::adopt(const site::action::fetch& what, const std::string& wire_file) {
    // The counters themselves are the proof of the audit; a site only checks that what it got is a table of its corpus.
    const auto file = formats::safetensors_reader::open(wire_file);
    if (!file) return file.error();
    const auto* table = file->header().find("windows");
    if (table == nullptr || table->spec.shape != std::vector<std::uint64_t>{options_.space.num_samples})
        return fail(errc::layout_mismatch, fmt::format("{}: is not the table of this corpus", wire_file));
    base_ = what.current;
    run_id_ = what.run_id;
    return {};
}

result<client::upload_job> toy_trainer::first_model() {
    const std::string path = options_.work_dir + "/init.safetensors";
    const auto sha = write_table(path, std::vector<float>(options_.space.num_samples, 0.0F), false);
    if (!sha) return sha.error();
    client::upload_job job;
    job.path = path;
    job.sha256 = *sha;
    job.bytes = std::filesystem::file_size(path);
    job.purpose = "init";
    job.codec = "f32";
    return job;
}

void toy_trainer::put(order o) {
    {
        const std::lock_guard lock(mutex_);
        orders_.push_back(std::move(o));
    }
    ready_.notify_one();
}
void toy_trainer::train_group(const site::action::train_group& group) { put(group); }
void toy_trainer::end_phase() { put(end_order{}); }
void toy_trainer::drop_phase() {
    drop_ = true;
    put(drop_order{});
}

void toy_trainer::serve() {
    while (!stopped_) {
        order next;
        {
            std::unique_lock lock(mutex_);
            ready_.wait(lock, [&] { return stopped_ || !orders_.empty(); });
            if (stopped_) return;
            next = std::move(orders_.front());
            orders_.pop_front();
        }
        if (std::holds_alternative<drop_order>(next)) {
            drop_ = false;
            groups_ = 0;
            report_(site::event::phase_dropped{});
        } else if (drop_) {
            continue;  // the phase is given up: its orders go unread
        } else if (const auto* group = std::get_if<site::action::train_group>(&next)) {
            train(*group);
        } else {
            finish_phase();
        }
    }
}

void toy_trainer::train(const site::action::train_group& reserved) {
    auto group = reserved;
    if (options_.read_beyond)
        for (auto& s : group.spans) s.end.count = std::min(s.end.count + 1, space_.num_blocks());
    if (group.group == 0) {
        ++phase_;
        groups_ = windows_ = 0;
        begun_ms_ = now_ms();
        delta_.assign(options_.space.num_samples, 0.0F);
    }
    record_.read(phase_, group);
    const auto map = space_.map(group.epoch);
    if (!map) return report_(site::event::phase_failed{round::decline_reason::local_error, map.error().context});
    for (const auto& s : group.spans) {
        for (std::uint64_t p = s.start.count; p < s.end.count && !drop_ && !stopped_; ++p) {
            const auto range = (*map)->windows_of(position{p});
            // stands for the time that training takes; nothing waits for it by the clock
            std::this_thread::sleep_for(
                std::chrono::duration<double>(options_.seconds_per_window * static_cast<double>(range.size())));
            for (std::uint64_t w = range.begin; w < range.end; ++w) delta_[w] += 1.0F;
            windows_ += range.size();
        }
    }
    if (drop_ || stopped_) return;
    ++groups_;
    report_(site::event::group_trained{group.group});
}

void toy_trainer::finish_phase() {
    if (groups_ == 0) return report_(site::event::phase_failed{round::decline_reason::no_data, "no group was trained"});
    const std::string id = fmt::format("{}-{}-p{}", options_.site, options_.incarnation.substr(0, 8), phase_);
    const std::string path = options_.work_dir + "/" + id + ".safetensors";
    const auto sha = write_table(path, delta_, true);
    if (!sha) return report_(site::event::phase_failed{round::decline_reason::local_error, sha.error().context});
    std::filesystem::rename(path, contribution_file(*sha));
    record_.contribution(phase_, groups_, id, *sha);
    site::phase_done done;
    done.groups = groups_;
    done.id = contribution_id{id};
    done.blob = {*sha, std::filesystem::file_size(contribution_file(*sha))};
    done.codec = "f32";
    done.tokens = windows_ * options_.seq_len;
    done.steps = 1;
    done.loss_sum = static_cast<double>(windows_);
    done.loss_count = windows_;
    done.compute_ms = now_ms() - begun_ms_;
    report_(site::event::phase_finished{done});
}

result<site::event::evaluated> toy_trainer::evaluate() { return site::event::evaluated{}; }

std::string toy_trainer::contribution_file(const std::string& sha256) {
    return options_.work_dir + "/delta-" + sha256 + ".safetensors";
}

void toy_trainer::settle(const site::action::settle& outcome) { record_.settled(outcome); }

result<std::string> toy_trainer::write_table(const std::string& path, const std::vector<float>& table,
                                             bool with_claim) {
    formats::safetensors_metadata metadata;
    if (with_claim) {
        metadata["darl.run_id"] = run_id_;
        metadata["darl.site"] = options_.site;
        metadata["darl.base_generation"] = std::to_string(base_.count);
        metadata["darl.tokens"] = std::to_string(windows_ * options_.seq_len);
        metadata["darl.steps"] = "1";
        metadata["darl.codec"] = "f32";
    }
    metadata["darl.layout_digest"] = layout_digest(options_.space.num_samples);
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
    auto writer = formats::safetensors_writer::create(path, table_specs(options_.space.num_samples), metadata);
    if (!writer) return writer.error();
    if (auto written = writer->write(std::as_bytes(std::span(table))); !written) return written.error();
    if (auto finished = writer->finish(); !finished) return finished.error();
    storage::posix_file_system files;
    return storage::sha256_of_file(files, path);
}

}  // namespace darl
