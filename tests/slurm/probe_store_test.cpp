// SPDX-License-Identifier: Apache-2.0
#include "backends/slurm/probe_store.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "darlcore/random.hpp"
#include "darlcore/testing/budget.hpp"
#include "tests/slurm/stub_command.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::slurm;
using json::value;

constexpr double now = 1788000000;

const site_rule here = [](std::string_view site) { return site == "here"; };

std::size_t probes(const probe_store& s, const probe_query& q = {}) { return s.select("probe", q, now).lines.size(); }

value probe(const std::string& id, double age_s, double wait_s, const std::string& shape = "g4",
            const std::string& site = "here") {
    return json::make_object({{"schema", 1},
                              {"type", "probe"},
                              {"id", id},
                              {"site", site},
                              {"shape", shape},
                              {"args_digest", "d1"},
                              {"collected_s", now - age_s},
                              {"class", "accepted"},
                              {"start_s", now - age_s + wait_s},
                              {"wait_s", wait_s},
                              {"partition", "gpu"},
                              {"nodes", 1},
                              {"flags", json::array{}}});
}

value usage(const std::string& id, double gamma, double age_s = 10) {
    return json::make_object({{"schema", 1},
                              {"type", "usage"},
                              {"id", id},
                              {"site", "here"},
                              {"partition", "gpu"},
                              {"collected_s", now - age_s},
                              {"gamma", gamma}});
}

value body(std::vector<value> records) { return json::make_object({{"records", json::array(records)}}); }

TEST(probe_store, a_record_is_kept_once_by_its_id_also_across_restarts) {
    const slurm_test::stub_folder folder;
    for (int run = 0; run < 3; ++run) {
        auto s = probe_store::open(folder.file("probes"), now);
        ASSERT_TRUE(s.has_value());
        const auto reply =
            s->post(body({probe("here-1", 60, 100), probe("here-2", 30, 200), probe("here-1", 60, 100)}), here, now);
        ASSERT_TRUE(reply.has_value());
        EXPECT_EQ(*reply->at("accepted").as_i64(), run == 0 ? 2 : 0);
        EXPECT_EQ(*reply->at("duplicate").as_i64(), run == 0 ? 1 : 3);
        EXPECT_EQ(probes(*s), 2U);
    }
}

TEST(probe_store, a_torn_last_line_is_cut_and_the_rest_is_there) {
    const slurm_test::stub_folder folder;
    {
        auto s = probe_store::open(folder.file("probes"), now);
        ASSERT_TRUE(s->post(body({probe("here-1", 60, 100)}), here, now).has_value());
    }
    for (const auto& f : std::filesystem::directory_iterator(folder.file("probes")))
        std::ofstream(f.path(), std::ios::app) << "{\"schema\":1,\"type\":\"pro";
    auto s = probe_store::open(folder.file("probes"), now);
    EXPECT_EQ(probes(*s), 1U);
    ASSERT_TRUE(s->post(body({probe("here-2", 50, 100)}), here, now).has_value());
    EXPECT_EQ(probes(*probe_store::open(folder.file("probes"), now)), 2U);
}

TEST(probe_store, a_record_of_another_site_refuses_the_call) {
    const slurm_test::stub_folder folder;
    auto s = probe_store::open(folder.file("probes"), now);
    const auto reply = s->post(body({probe("a-1", 60, 100), probe("b-1", 60, 100, "g4", "there")}), here, now);
    ASSERT_FALSE(reply.has_value());
    EXPECT_EQ(reply.error().code, errc::not_owner);
    EXPECT_EQ(probes(*s), 0U);
}

TEST(probe_store, bad_records_are_rejected_alone_with_field_and_reason) {
    const slurm_test::stub_folder folder;
    auto s = probe_store::open(folder.file("probes"), now);
    value future = probe("f-1", -301, 100), old = probe("f-2", 401 * 86400.0, 100), negative = probe("f-3", 1, -5);
    value name = probe("f-4", 1, 5, "a/b"), schema = probe("f-5", 1, 5), kind = probe("f-6", 1, 5);
    schema.set("schema", 2);
    kind.set("class", "perhaps");
    const auto reply = s->post(body({future, old, negative, name, schema, kind, probe("ok-1", 1, 5)}), here, now);
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(*reply->at("accepted").as_i64(), 1);
    std::string fields;
    for (const auto& r : *reply->at("rejected").as_array()) fields += *r.at("field").as_string() + " ";
    EXPECT_EQ(fields, "collected_s collected_s wait_s shape schema class ");
    EXPECT_FALSE(s->post(json::make_object({{"records", 5}}), here, now).has_value());
}

TEST(probe_store, estimates_show_the_newest_reading_and_gamma_side_by_side) {
    const slurm_test::stub_folder folder;
    auto s = probe_store::open(folder.file("probes"), now);
    ASSERT_TRUE(
        s->post(body({probe("p-1", 3600, 1000), probe("p-2", 60, 2000), probe("p-3", 50, 40, "g1"), usage("u-1", 0.2)}),
                here, now));
    const auto e = s->estimates(now);
    ASSERT_EQ(e.at("estimates").size(), 2U);
    const value& row = e.at("estimates").at(1);
    EXPECT_EQ(*row.at("shape").as_string(), "g4");
    EXPECT_EQ(*row.at("wait_raw_s").as_double(), 2000);
    EXPECT_EQ(*row.at("gamma").as_double(), 0.2);
    EXPECT_NEAR(*row.at("wait_s").as_double(), 2000 * 0.6, 1e-9);
    EXPECT_EQ(*row.at("age_s").as_double(), 60);
    EXPECT_EQ(*row.at("wait_p50_s").as_double(), 1500);
}

TEST(probe_store, an_edited_shape_starts_a_new_series) {
    const slurm_test::stub_folder folder;
    auto s = probe_store::open(folder.file("probes"), now);
    value edited = probe("p-2", 60, 5000);
    edited.set("args_digest", "d2");
    ASSERT_TRUE(s->post(body({probe("p-1", 3600, 1000), edited}), here, now));
    const auto answer = s->estimates(now);
    for (const auto& row : *answer.at("estimates").as_array()) EXPECT_EQ(*row.at("readings").as_i64(), 1);
}

TEST(probe_store, predictions_of_own_jobs_are_scored) {
    const slurm_test::stub_folder folder;
    auto s = probe_store::open(folder.file("probes"), now);
    const auto start = [](const std::string& id, double realised) {
        return json::make_object({{"schema", 1},
                                  {"type", "start"},
                                  {"id", id},
                                  {"site", "here"},
                                  {"partition", "gpu"},
                                  {"collected_s", now},
                                  {"predicted_s", 100},
                                  {"realised_s", realised},
                                  {"p50_s", 100},
                                  {"p90_s", 150}});
    };
    ASSERT_TRUE(s->post(body({start("s-1", 90), start("s-2", 140), start("s-3", 160), start("s-4", 110)}), here, now));
    const auto answer = s->estimates(now);
    const value& score = answer.at("scores").at(0);
    EXPECT_EQ(*score.at("pairs").as_i64(), 4);
    EXPECT_EQ(*score.at("bias_s").as_double(), 25);
    EXPECT_EQ(*score.at("within_p50").as_double(), 0.25);
    EXPECT_EQ(*score.at("within_p90").as_double(), 0.75);
}

TEST(probe_store, queries_filter_and_say_when_they_are_cut) {
    const slurm_test::stub_folder folder;
    auto s = probe_store::open(folder.file("probes"), now);
    std::vector<value> many;
    for (int i = 0; i < 30; ++i) many.push_back(probe("p-" + std::to_string(i), 60 + i, 10, i % 2 == 0 ? "g4" : "g1"));
    ASSERT_TRUE(s->post(body(many), here, now));
    probe_query q;
    q.shape = "g1";
    EXPECT_EQ(probes(*s, q), 15U);
    q.limit = 4;
    EXPECT_TRUE(s->select("probe", q, now).truncated);
    q.since_s = now - 10;
    EXPECT_EQ(probes(*s, q), 0U);
}

// Seen red: without the completion in post() the record is rejected for want of predicted_s.
TEST(probe_store, a_start_is_scored_against_what_was_predicted_when_it_was_submitted) {
    const slurm_test::stub_folder folder;
    auto s = probe_store::open(folder.file("probes"), now);
    ASSERT_TRUE(s->post(body({probe("p-1", 8000, 1000), probe("p-2", 7000, 3000), probe("p-3", 60, 9000)}), here, now));
    const auto start = [](const std::string& id, double submit_s, double realised_s) {
        return json::make_object({{"schema", 1},
                                  {"type", "start"},
                                  {"id", id},
                                  {"site", "here"},
                                  {"shape", "g4"},
                                  {"partition", "gpu"},
                                  {"collected_s", now},
                                  {"submit_s", submit_s},
                                  {"realised_s", realised_s}});
    };
    const auto reply = s->post(body({start("s-1", now - 6900, 2500), start("s-2", now - 50000, 10)}), here, now);
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(*reply->at("accepted").as_i64(), 1);
    ASSERT_EQ(reply->at("rejected").size(), 1U);
    EXPECT_EQ(*reply->at("rejected").at(0).at("field").as_string(), "submit_s");
    const auto again = probe_store::open(folder.file("probes"), now);
    const value score = again->estimates(now).at("scores").at(0);
    EXPECT_EQ(*score.at("bias_s").as_double(), 2500 - 3000) << "the newest reading before the submission";
    EXPECT_EQ(*score.at("within_p50").as_double(), 0) << "p50 of 1000 and 3000 is 2000";
    EXPECT_EQ(*score.at("within_p90").as_double(), 1) << "p90 is 2800";
}

// A later gamma, a later reservation: the prediction is the one that was made.
TEST(probe_store, a_prediction_is_discounted_as_it_was_when_the_job_was_submitted) {
    const slurm_test::stub_folder folder;
    auto s = probe_store::open(folder.file("probes"), now);
    value one = probe("p-3", 60, 9000), two = probe("p-4", 60, 9000, "g8");
    two.set("nodes", 2);
    ASSERT_TRUE(s->post(body({usage("u-1", 0.2, 8000), probe("p-1", 7000, 3000), usage("u-2", 0.9, 100), one, two}),
                        here, now));
    const auto start = json::make_object({{"schema", 1},
                                          {"type", "start"},
                                          {"id", "s-1"},
                                          {"site", "here"},
                                          {"shape", "g4"},
                                          {"partition", "gpu"},
                                          {"collected_s", now},
                                          {"submit_s", now - 6900},
                                          {"realised_s", 2500}});
    ASSERT_EQ(*s->post(body({start}), here, now)->at("accepted").as_i64(), 1);
    const value score = s->estimates(now).at("scores").at(0);
    EXPECT_NEAR(*score.at("bias_s").as_double(), 2500 - 3000 * 0.6, 1e-9);
}

// Seen red: with ids of the newest two months only, the second post is accepted again.
TEST(probe_store, a_record_of_an_old_month_is_kept_once_across_restarts) {
    const slurm_test::stub_folder folder;
    for (int run = 0; run < 2; ++run) {
        auto s = probe_store::open(folder.file("probes"), now);
        const auto reply = s->post(body({probe("o-1", 100 * 86400.0, 5)}), here, now);
        ASSERT_TRUE(reply.has_value());
        EXPECT_EQ(*reply->at("accepted").as_i64(), run == 0 ? 1 : 0);
    }
}

TEST(probe_store, an_id_of_another_site_does_not_hide_a_record) {
    const slurm_test::stub_folder folder;
    auto s = probe_store::open(folder.file("probes"), now);
    const site_rule anybody = [](std::string_view) { return true; };
    const auto reply = s->post(body({probe("x-1", 60, 1, "g4", "there"), probe("x-1", 60, 2)}), anybody, now);
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(*reply->at("accepted").as_i64(), 2);
}

TEST(probe_store, answers_hold_a_bounded_part_and_say_so) {
    const slurm_test::stub_folder folder;
    auto s = probe_store::open(folder.file("probes"), now);
    s->set_recent_bytes_max(4000);
    std::vector<value> many;
    for (int i = 0; i < 100; ++i) many.push_back(probe("p-" + std::to_string(i), 200 - i, 10));
    ASSERT_TRUE(s->post(body(many), here, now));
    const auto got = s->select("probe", {}, now);
    EXPECT_LT(got.lines.size(), 40U);
    EXPECT_GT(got.lines.size(), 0U);
    EXPECT_TRUE(got.truncated);
    EXPECT_EQ(s->records(), 100U);
}

// Whatever a collector sends is kept or rejected, and the answers can still be given.
TEST(probe_store, no_edit_of_a_record_breaks_the_store) {
    const slurm_test::stub_folder folder;
    auto s = probe_store::open(folder.file("probes"), now);
    xoshiro256 draw(11);
    const value odd[] = {value(),
                         value(0),
                         value(-1),
                         value(1e308),
                         value("x"),
                         value(true),
                         value(json::array{}),
                         value(json::object{}),
                         value(UINT64_MAX),
                         value(0.5),
                         value("here"),
                         value(now)};
    std::size_t accepted = 0, rejected = 0;
    for (int run = 0; run < darlcore::testing::property_runs(200); ++run) {
        std::vector<value> records;
        for (int k = 0; k < 20; ++k) {
            const std::string id = "m-" + std::to_string(run) + "-" + std::to_string(k);
            value r =
                draw.below(4) == 0 ? usage(id, draw.unit()) : probe(id, static_cast<double>(draw.below(9000)), 100);
            if (draw.below(4) == 0) r.set("type", "start").set("submit_s", now - 60).set("realised_s", 5);
            auto& members = *r.as_object();
            for (std::uint64_t edits = draw.below(3); edits > 0; --edits)
                members[draw.below(members.size())].second = odd[draw.below(std::size(odd))];
            records.push_back(std::move(r));
        }
        const site_rule all = [](std::string_view) { return true; };
        const auto reply = s->post(body(records), all, now);
        ASSERT_TRUE(reply.has_value());
        accepted += *reply->at("accepted").as_u64();
        rejected += reply->at("rejected").size();
        const value answer = s->estimates(now);
        for (const value& e : *answer.at("estimates").as_array())
            if (e.at("wait_s").as_double()) {
                ASSERT_GE(*e.at("wait_s").as_double(), 0);
            }
    }
    EXPECT_GT(accepted, 0U);
    EXPECT_GT(rejected, 0U);
    const auto again = probe_store::open(folder.file("probes"), now);
    ASSERT_TRUE(again.has_value());
    EXPECT_EQ(json::dump(again->estimates(now)), json::dump(s->estimates(now)));
}

}  // namespace
