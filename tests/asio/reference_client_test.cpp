// SPDX-License-Identifier: Apache-2.0
// The recorded session of the reference's own client against the real binary.
#include <csignal>
#include <fstream>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "tests/asio/serve_fixture.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::http::testing;

json::value recording() {
    std::ifstream in(DARLCORE_TEST_DATA "/reference_client.json");
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    return json::parse(text).value();
}

std::string text_of(const json::value& v) { return v.as_string() == nullptr ? std::string() : *v.as_string(); }

// --- the allowed differences, by step -------------------------------------------------------------------------------

/// Values that vary from run to run; their kind must agree.
const std::set<std::string> varying = {
    "lease_id",     "granted_at", "deadline", "ttl",      "incarnation",  "joined_at", "last_seen", "rate",  "t",
    "macro_step_s", "rtt_s",      "uptime_s", "progress", "blocks_per_s", "eta_s",     "requests",  "cursor"};
/// Steps whose body differs on purpose; only the status and the code are compared.
const std::map<std::string, std::string> own_code = {
    {"wrong_token", "token"},
    {"wrong_digest", "digest_mismatch"},
    {"register_other_process_while_leased", "cluster_busy"},
    {"commit_foreign", "not_owner"},
    {"advance_unfinished", "epoch_incomplete"},
    {"acquire_unregistered", "unknown_site"},
    {"snapshot", "wrong_scope"},
};
/// Answers that ours gives otherwise although the status is equal; compared by hand below.
const std::set<std::string> other_body = {"commit_close_again"};
/// Texts of ours: a word instead of the reference's sentence.
const std::set<std::string> other_text = {"reason"};

bool same_kind(const json::value& a, const json::value& b) {
    return (a.is_number() && b.is_number()) || (a.as_string() != nullptr && b.as_string() != nullptr) ||
           (a.is_bool() && b.is_bool()) || (a.is_array() && b.is_array()) || (a.is_object() && b.is_object()) ||
           (a.is_null() && b.is_null());
}

/// Every member of the reference is in ours, with the same value unless it may vary.
void expect_contains(const json::value& ours, const json::value& theirs, const std::string& where) {
    if (theirs.is_object()) {
        ASSERT_TRUE(ours.is_object()) << where;
        for (const auto& [key, value] : *theirs.as_object()) {
            const json::value* mine = ours.find(key);
            ASSERT_NE(mine, nullptr) << where << " lacks '" << key << "'";
            if (varying.contains(key) || other_text.contains(key)) {
                EXPECT_TRUE(same_kind(*mine, value)) << where << "." << key;
            } else {
                expect_contains(*mine, value, where + "." + key);
            }
        }
        return;
    }
    if (theirs.is_array()) {
        ASSERT_TRUE(ours.is_array()) << where;
        ASSERT_EQ(ours.size(), theirs.size()) << where << ": " << json::dump(ours);
        for (std::size_t i = 0; i < theirs.size(); ++i)
            expect_contains(ours.at(i), theirs.at(i), where + "[" + std::to_string(i) + "]");
        return;
    }
    if (theirs.is_number()) {
        EXPECT_EQ(ours.as_double(), theirs.as_double()) << where;
    } else {
        EXPECT_EQ(json::dump(ours), json::dump(theirs)) << where;
    }
}

/// A status is recorded as kinds: "int", "number", "string", "bool".
void expect_kinds(const json::value& ours, const json::value& kinds, const std::string& where) {
    if (kinds.is_object()) {
        ASSERT_TRUE(ours.is_object()) << where;
        for (const auto& [key, kind] : *kinds.as_object()) {
            ASSERT_TRUE(ours.contains(key)) << where << " lacks '" << key << "'";
            expect_kinds(ours.at(key), kind, where + "." + key);
        }
        return;
    }
    if (kinds.is_array()) {
        ASSERT_TRUE(ours.is_array()) << where;
        if (kinds.size() > 0 && ours.size() > 0) expect_kinds(ours.at(0), kinds.at(0), where + "[0]");
        return;
    }
    const std::string kind = text_of(kinds);
    if (kind == "int") {
        EXPECT_TRUE(ours.is_integer()) << where;
    } else if (kind == "number") {
        EXPECT_TRUE(ours.is_number()) << where;
    } else if (kind == "string") {
        EXPECT_NE(ours.as_string(), nullptr) << where;
    } else if (kind == "bool") {
        EXPECT_TRUE(ours.is_bool()) << where;
    } else {
        ADD_FAILURE() << where << ": unknown kind " << kind;
    }
}

class recorded_session : public ::testing::Test {
protected:
    recorded_session()
        : server_(folder_ / "state",
                  {"--num-samples", "1000", "--block-size", "10", "--seed", "42", "--max-epochs", "2",
                   "--commit-policy", "on_checkpoint", "--lease.min_ttl_s=1", "--lease.default_ttl_s=30"},
                  "sesame") {}

    client::json_answer play(const json::value& step) {
        client::client_options o;
        o.base_url = server_.url();
        auto client = client::http_client::make(o).value();
        client::call c;
        c.method = text_of(step.at("method"));
        c.path = text_of(step.at("path"));
        c.headers.emplace_back("Connection", "close");
        c.headers.emplace_back("Accept-Encoding", "identity");
        for (const auto& [name, value] : *step.at("headers").as_object()) c.headers.emplace_back(name, text_of(value));
        const std::string body = step.at("body").is_null() ? std::string() : json::dump(translated(step.at("body")));
        c.body = body;
        const auto got = client.perform(c);
        client::json_answer out;
        if (!got) return out;
        out.status = got->status;
        out.body = json::parse(got->body).value_or(json::value());
        if (const json::value* code = out.body.find("code")) out.code = text_of(*code);
        out.retry_after_s = got->retry_after_s;
        return out;
    }
    /// Lease ids of the recording as this server gave them.
    json::value translated(json::value body) const {
        if (const json::value* lease = body.find("lease"); lease != nullptr && ids_.contains(text_of(*lease)))
            body.set("lease", ids_.at(text_of(*lease)));
        if (const json::value* progress = body.find("progress")) {
            json::value out = json::object{};
            for (const auto& [id, through] : *progress->as_object())
                out.set(ids_.contains(id) ? ids_.at(id) : id, through);
            body.set("progress", out);
        }
        return body;
    }
    void learn_ids(const json::value& ours, const json::value& theirs) {
        const json::value* a = ours.find("leases");
        const json::value* b = theirs.find("leases");
        if (a == nullptr || b == nullptr || !a->is_array() || !b->is_array()) return;
        for (std::size_t i = 0; i < std::min(a->size(), b->size()); ++i)
            ids_[text_of(b->at(i).at("lease_id"))] = text_of(a->at(i).at("lease_id"));
    }
    /// A heartbeat's answer names leases by id: ours by theirs.
    json::value with_their_ids(json::value reply) const {
        const json::value* leases = reply.find("leases");
        if (leases == nullptr || !leases->is_object()) return reply;
        json::value out = json::object{};
        for (const auto& [id, entry] : *leases->as_object()) {
            std::string name = id;
            for (const auto& [theirs, ours] : ids_)
                if (ours == id) name = theirs;
            out.set(name, entry);
        }
        reply.set("leases", out);
        return reply;
    }

    temporary_folder folder_;
    served server_;
    std::map<std::string, std::string> ids_;
};

TEST_F(recorded_session, ours_answers_as_the_reference_except_where_the_list_says) {
    ASSERT_TRUE(server_.up()) << server_.log();
    const json::value steps = recording().at("steps");
    ASSERT_GT(steps.size(), 15U);
    for (const json::value& step : *steps.as_array()) {
        const std::string name = text_of(step.at("name"));
        SCOPED_TRACE(name);
        const auto got = play(step);
        ASSERT_EQ(got.status, static_cast<int>(step.at("our_status").as_i64().value())) << json::dump(got.body);
        const json::value& theirs = step.at("reference_reply");
        if (const auto found = own_code.find(name); found != own_code.end()) {
            EXPECT_EQ(got.code, found->second);
            EXPECT_FALSE(text_of(got.body.at("error")).empty());
            if (got.status == 503) {
                EXPECT_TRUE(got.retry_after_s.has_value());
            }
        } else if (name == "status") {
            expect_kinds(got.body, theirs, "status");
        } else if (other_body.contains(name)) {
            EXPECT_EQ(got.body.at("committed_end").as_u64(), 4U);
            EXPECT_EQ(got.body.at("lease_closed").as_bool(), true);
        } else {
            learn_ids(got.body, theirs);
            expect_contains(with_their_ids(got.body), theirs, name);
        }
    }
    EXPECT_EQ(server_.stop(), 0) << server_.log();
}

}  // namespace
