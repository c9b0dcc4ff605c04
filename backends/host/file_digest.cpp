// SPDX-License-Identifier: Apache-2.0
#include "backends/host/file_digest.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <new>
#include <optional>

#include "backends/host/instruction_set.hpp"
#include "backends/host/run_threads.hpp"
#include "backends/host/sha256_lanes.hpp"
#include "darlcore/assert.hpp"

namespace darlcore::host {

struct file_digest::state {
    EVP_MD_CTX* context = EVP_MD_CTX_new();
    state() { begin(); }
    ~state() { EVP_MD_CTX_free(context); }
    state(const state&) = delete;
    state& operator=(const state&) = delete;
    void begin() {
        // Both fail only without memory or without a provider of SHA-256: nothing a caller could mend.
        DARLCORE_ASSERT(context != nullptr && EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1);
    }
};

file_digest::file_digest() : state_(std::make_unique<state>()) {}
file_digest::file_digest(file_digest&&) noexcept = default;
file_digest& file_digest::operator=(file_digest&&) noexcept = default;
file_digest::~file_digest() = default;

void file_digest::update(std::span<const std::byte> bytes) {
    DARLCORE_ASSERT(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}

digest32 file_digest::finish() {
    digest32 digest{};
    DARLCORE_ASSERT(EVP_DigestFinal_ex(state_->context, digest.data(), nullptr) == 1);
    state_->begin();
    return digest;
}

namespace {

// Pieces of sixteen parts together stay in the second-level cache.
constexpr std::uint64_t piece_bytes = std::uint64_t{32} << 10U;
// Side by side, the lanes begin at different places of a page: equal ones would share a few lines of the first cache.
constexpr std::uint64_t lane_stride = piece_bytes + 64;
// Fewer parts than this are faster one after the other.
constexpr std::size_t lanes_worthwhile = 6;

bool have_lanes() { return available_instruction_sets().back() == instruction_set::avx512; }

constexpr std::uint32_t first_state[8] = {0x6a09e667U, 0xbb67ae85U, 0x3c6ef372U, 0xa54ff53aU,
                                          0x510e527fU, 0x9b05688cU, 0x1f83d9abU, 0x5be0cd19U};

/// What ends a message of one whole part: a bit, zeros, the number of bits.
std::array<std::byte, 64> end_of_part() {
    std::array<std::byte, 64> block{};
    block[0] = std::byte{0x80};
    constexpr std::uint64_t bits = digest_part_bytes * 8;
    for (std::size_t i = 0; i < 8; ++i) block[63 - i] = static_cast<std::byte>(bits >> (8 * i));
    return block;
}

digest32 digest_of_lane(const sha256_lanes& state, std::size_t lane) {
    digest32 digest{};
    for (std::size_t k = 0; k < 8; ++k)
        for (std::size_t i = 0; i < 4; ++i)
            digest[4 * k + i] = static_cast<std::uint8_t>(state.words[k][lane] >> (24 - 8 * i));
    return digest;
}

/// Work of one thread: whole files, sixteen parts side by side, single parts.
class digest_run {
public:
    explicit digest_run(std::span<const digest_job> jobs) : jobs_(jobs), parts_(jobs.size()), whole_(jobs.size()) {
        std::vector<piece> full, rest;
        for (std::size_t job = 0; job < jobs.size(); ++job) {
            if (!jobs[job].in_parts) {
                units_.push_back(std::vector<piece>{{job, 0, jobs[job].bytes}});
                continue;
            }
            for (std::uint64_t at = 0; at < jobs[job].bytes; at += digest_part_bytes) {
                const std::uint64_t bytes = std::min(digest_part_bytes, jobs[job].bytes - at);
                (bytes == digest_part_bytes && have_lanes() ? full : rest).push_back({job, at, bytes});
            }
            parts_[job].resize((jobs[job].bytes + digest_part_bytes - 1) / digest_part_bytes);
        }
        for (std::size_t at = 0; at < full.size(); at += sha256_lane_count) {
            const auto end = std::min(full.size(), at + sha256_lane_count);
            const std::vector<piece> group(full.begin() + static_cast<std::ptrdiff_t>(at),
                                           full.begin() + static_cast<std::ptrdiff_t>(end));
            if (group.size() >= lanes_worthwhile)
                units_.push_back(group);
            else
                rest.insert(rest.end(), group.begin(), group.end());
        }
        for (const piece& one : rest) units_.push_back(std::vector<piece>{one});
        for (const auto& unit : units_) {
            const std::uint64_t most = lane_stride * sha256_lane_count;
            buffer_bytes_ = std::max(buffer_bytes_, unit.size() > 1 ? most : std::min(most, unit.front().bytes));
        }
    }

    /// Called by every thread.
    void work() {
        std::optional<error> failure;
        try {
            std::vector<std::byte> buffer(buffer_bytes_);
            for (std::size_t u = next_++; u < units_.size() && !failure && !failed_; u = next_++) {
                const auto ok = units_[u].size() == 1 ? take(units_[u].front(), buffer) : take_lanes(units_[u], buffer);
                if (!ok) failure = ok.error();
            }
        } catch (const std::bad_alloc&) {
            failure = error{errc::out_of_memory, {}};
        }
        if (!failure) return;
        const std::lock_guard lock(mutex_);
        failed_ = true;
        if (!failure_) failure_ = std::move(failure);
    }

    result<std::vector<digest32>> finish() {
        if (failure_) return *failure_;
        for (std::size_t job = 0; job < jobs_.size(); ++job) {
            if (!jobs_[job].in_parts) continue;
            file_digest all;
            for (const digest32& part : parts_[job]) all.update(std::as_bytes(std::span(part)));
            whole_[job] = all.finish();
        }
        return std::move(whole_);
    }

private:
    struct piece {
        std::size_t job = 0;
        std::uint64_t at = 0;
        std::uint64_t bytes = 0;
    };

    void keep(const piece& of, const digest32& digest) {
        if (jobs_[of.job].in_parts)
            parts_[of.job][of.at / digest_part_bytes] = digest;
        else
            whole_[of.job] = digest;
    }

    result<void> take(const piece& one, std::span<std::byte> buffer) {
        file_digest digest;
        for (std::uint64_t at = 0; at < one.bytes;) {
            const auto into = buffer.first(std::min<std::uint64_t>(buffer.size(), one.bytes - at));
            if (auto ok = jobs_[one.job].read(one.at + at, into); !ok) return ok;
            digest.update(into);
            at += into.size();
        }
        keep(one, digest.finish());
        return {};
    }

    result<void> take_lanes(std::span<const piece> group, std::span<std::byte> buffer) {
        sha256_lanes state;
        for (std::size_t k = 0; k < 8; ++k) std::fill_n(state.words[k], sha256_lane_count, first_state[k]);
        std::array<const std::byte*, sha256_lane_count> from;
        for (std::size_t lane = 0; lane < from.size(); ++lane)  // lanes without a part repeat the first
            from[lane] = buffer.data() + (lane < group.size() ? lane : 0) * lane_stride;
        for (std::uint64_t at = 0; at < digest_part_bytes; at += piece_bytes) {
            for (std::size_t lane = 0; lane < group.size(); ++lane)
                if (auto ok = jobs_[group[lane].job].read(group[lane].at + at,
                                                          buffer.subspan(lane * lane_stride, piece_bytes));
                    !ok)
                    return ok;
            sha256_lanes_update(state, from.data(), piece_bytes / 64);
        }
        const auto end = end_of_part();
        from.fill(end.data());
        sha256_lanes_update(state, from.data(), 1);
        for (std::size_t lane = 0; lane < group.size(); ++lane) keep(group[lane], digest_of_lane(state, lane));
        return {};
    }

    std::span<const digest_job> jobs_;
    std::vector<std::vector<digest32>> parts_;
    std::vector<digest32> whole_;
    std::vector<std::vector<piece>> units_;
    std::uint64_t buffer_bytes_ = 0;
    std::atomic<std::size_t> next_{0};
    std::atomic<bool> failed_{false};
    std::mutex mutex_;
    std::optional<error> failure_;
};

}  // namespace

result<std::vector<digest32>> digest_files(std::span<const digest_job> jobs, int threads) {
    digest_run run(jobs);
    run_on_threads(threads, [&run] { run.work(); });
    return run.finish();
}

}  // namespace darlcore::host
