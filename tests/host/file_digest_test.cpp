// SPDX-License-Identifier: Apache-2.0
#include "backends/host/file_digest.hpp"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "darlcore/digest.hpp"
#include "darlcore/random.hpp"

namespace {

using namespace darlcore;

/// A long file that is nowhere stored.
class long_file {
public:
    long_file(std::uint64_t seed, std::uint64_t bytes, bool in_parts) : bytes_(bytes), in_parts_(in_parts) {
        xoshiro256 random(seed);
        for (char& c : period_) c = static_cast<char>(random());
    }
    [[nodiscard]] host::digest_job job() const {
        return {bytes_,
                [this](std::uint64_t at, std::span<std::byte> out) -> result<void> {
                    fill(at, reinterpret_cast<char*>(out.data()), out.size());
                    return {};
                },
                in_parts_};
    }
    [[nodiscard]] digest32 expected() const {
        if (!in_parts_) return sha256_of(text(0, bytes_));
        std::string digests;
        for (std::uint64_t at = 0; at < bytes_; at += host::digest_part_bytes) {
            const auto part = sha256_of(text(at, std::min(host::digest_part_bytes, bytes_ - at)));
            digests.append(part.begin(), part.end());
        }
        return sha256_of(digests);
    }

private:
    [[nodiscard]] std::string text(std::uint64_t at, std::uint64_t bytes) const {
        std::string out(bytes, '\0');
        fill(at, out.data(), out.size());
        return out;
    }
    void fill(std::uint64_t at, char* to, std::size_t bytes) const {
        while (bytes > 0) {
            const std::size_t place = at % period_.size();
            const std::size_t take = std::min(bytes, period_.size() - place);
            std::copy_n(period_.data() + place, take, to);
            to += take;
            at += take;
            bytes -= take;
        }
    }
    std::string period_ = std::string(1'000'003, '\0');
    std::uint64_t bytes_;
    bool in_parts_;
};

TEST(file_digest, many_files_at_once_have_the_digests_of_each_alone) {
    constexpr std::uint64_t part = host::digest_part_bytes;
    const std::vector<long_file> files{
        {1, 18 * part + 5, true}, {2, 7 * part, true}, {3, 2 * part + 1, false}, {4, 0, true}, {5, 0, false},
        {6, part - 1, true},      {7, 100, true},      {8, 70'001, false}};
    std::vector<host::digest_job> jobs;
    for (const long_file& f : files) jobs.push_back(f.job());
    for (const int threads : {1, 3}) {
        const auto digests = host::digest_files(jobs, threads);
        ASSERT_TRUE(digests);
        for (std::size_t i = 0; i < files.size(); ++i) EXPECT_EQ((*digests)[i], files[i].expected()) << "file " << i;
    }
}

TEST(file_digest, a_file_that_cannot_be_read_is_the_error_of_all) {
    const long_file good(1, 30, false);
    const host::digest_job bad{40, [](auto, auto) -> result<void> { return fail(errc::short_read, "ends at byte 7"); },
                               true};
    const std::vector<host::digest_job> jobs{good.job(), bad};
    const auto digests = host::digest_files(jobs, 2);
    ASSERT_FALSE(digests);
    EXPECT_EQ(digests.error().code, errc::short_read);
}

TEST(file_digest, of_no_file_is_nothing) { EXPECT_TRUE(host::digest_files({}, 2)->empty()); }

}  // namespace
