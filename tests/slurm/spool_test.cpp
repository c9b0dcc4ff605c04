// SPDX-License-Identifier: Apache-2.0
#include "backends/slurm/spool.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <set>

#include "tests/slurm/stub_command.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::slurm;

json::value record(int i) { return json::make_object({{"schema", 1}, {"n", i}}); }

TEST(spool, records_survive_a_restart_in_order_and_go_after_the_yes) {
    const slurm_test::stub_folder folder;
    std::vector<std::string> ids;
    {
        auto s = spool::open(folder.file("spool"), "here");
        ASSERT_TRUE(s.has_value());
        for (int i = 0; i < 5; ++i) ids.push_back(*s->append(record(i)));
    }
    struct stat st {};
    ASSERT_EQ(::stat(folder.file("spool").c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 0777U, 0700U);
    auto s = spool::open(folder.file("spool"), "here");
    ASSERT_TRUE(s.has_value());
    const auto pending = s->pending(3);
    ASSERT_EQ(pending.size(), 3U);
    EXPECT_EQ(*pending[0].at("n").as_i64(), 0);
    s->remove({ids[0], ids[1]});
    EXPECT_EQ(*s->pending(1)[0].at("n").as_i64(), 2);
    EXPECT_EQ(s->count(), 3U);
}

TEST(spool, no_id_is_used_twice_even_when_all_were_sent) {
    const slurm_test::stub_folder folder;
    std::set<std::string> ids;
    for (int run = 0; run < 4; ++run) {
        auto s = spool::open(folder.file("spool"), "here");
        ASSERT_TRUE(s.has_value());
        for (int i = 0; i < 3; ++i) {
            const auto id = s->append(record(i));
            ASSERT_TRUE(ids.insert(*id).second) << *id;
            s->remove({*id});
        }
    }
}

TEST(spool, a_second_collector_is_kept_out) {
    const slurm_test::stub_folder folder;
    const auto first = spool::open(folder.file("spool"), "here");
    const auto second = spool::open(folder.file("spool"), "here");
    ASSERT_FALSE(second.has_value());
    EXPECT_EQ(second.error().code, errc::locked);
}

TEST(spool, above_its_size_the_oldest_go_and_their_number_is_told) {
    const slurm_test::stub_folder folder;
    auto s = spool::open(folder.file("spool"), "here");
    s->set_bytes_max(300);
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(s->append(record(i)).has_value());
    EXPECT_LE(s->bytes(), 300U);
    const auto left = s->pending(100);
    EXPECT_EQ(*left.back().at("n").as_i64(), 19);
    EXPECT_TRUE(left.back().contains("dropped"));
}

TEST(spool, a_broken_file_does_not_block_the_others) {
    const slurm_test::stub_folder folder;
    auto s = spool::open(folder.file("spool"), "here");
    const auto bad = *s->append(record(0));
    ASSERT_TRUE(s->append(record(1)).has_value());
    std::ofstream(folder.file("spool/" + bad + ".json")) << "{\"n\":";
    const auto pending = s->pending(10);
    ASSERT_EQ(pending.size(), 1U);
    EXPECT_EQ(*pending[0].at("n").as_i64(), 1);
}

TEST(spool, the_backoff_grows_to_five_minutes_with_jitter) {
    EXPECT_EQ(upload_backoff_s(0, 0.0), 0.5);
    EXPECT_LT(upload_backoff_s(3, 0.999), 8.0);
    EXPECT_EQ(upload_backoff_s(60, 0.0), 150.0);
}

}  // namespace
