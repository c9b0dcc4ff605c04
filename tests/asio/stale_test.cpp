// SPDX-License-Identifier: Apache-2.0
// Processes that are no longer who they think they are: at the real server they change nothing.
#include <gtest/gtest.h>

#include "tests/asio/round_fixture.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::http::testing;

class a_stale_process : public round_over_http {
protected:
    static json::value body_of(const std::string& site, char digit,
                               std::initializer_list<std::pair<std::string_view, json::value>> more = {}) {
        json::value out = json::make_object({{"cluster", site}, {"incarnation", std::string(32, digit)}});
        for (const auto& [key, value] : more) out.set(key, value);
        return out;
    }
    /// All that a request could change.
    std::string books() {
        const auto s = get(*client_, "/status").body;
        std::string text;
        for (const char* key : {"committed", "pledged", "leased", "unassigned", "quarantined", "generation", "leases"})
            text += json::dump(s.at(key)) + " ";
        std::string without_time;  // the time to live goes on by itself
        for (std::size_t at = 0; at < text.size(); ++at) {
            for (const char* moving : {"\"ttl\":", "\"deadline\":"})
                if (text.compare(at, std::string(moving).size(), moving) == 0) at = text.find_first_of(",}", at);
            without_time += text[at];
        }
        return without_time;
    }
};

TEST_F(a_stale_process, that_was_replaced_is_fenced_at_every_route_of_leases_rounds_and_blobs) {
    begin_run();
    const json::value leases = claims();
    const client::upload_job delta = make_delta(2.0F);
    const std::string upload = announce(delta);
    const auto twin =
        ask("/register",
            body_of("alpha", 'd', {{"protocol", 2}, {"ranks", 1}, {"take_over", to_text(caller.incarnation)}}));
    ASSERT_EQ(twin.status, 200) << json::dump(twin.body);
    const std::string before = books();
    const json::value& one = leases.at(0);
    const json::value named =
        body_of_site({{"lease", one.at("lease")}, {"token", one.at("token")}, {"through", one.at("through")}});
    const std::pair<const char*, json::value> calls[] = {
        {"/acquire", body_of_site({{"blocks", 1}})},
        {"/reserve", named},
        {"/heartbeat", body_of_site()},
        {"/release", named},
        {"/round/join", body_of_site({{"layout_digest", ""}, {"schedule_digest", "s"}, {"seq_len", 8}})},
        {"/round/poll", body_of_site({{"have_generation", 0}, {"wait_s", 0}})},
        {"/round/contribute", claim_of(delta, leases)},
        {"/round/decline", body_of_site({{"base_generation", 0}, {"reason", "no_data"}})},
        {"/round/evaluation", body_of_site({{"generation", 0}, {"loss_sum", 1.0}, {"tokens", 1}, {"windows", 1}})},
        {"/round/leave", body_of_site()},
        {"/blobs", body_of_site({{"bytes", delta.bytes},
                                 {"sha256", delta.sha256},
                                 {"purpose", "delta"},
                                 {"codec", "f32"},
                                 {"base_generation", 0}})}};
    for (const auto& [path, body] : calls) {
        const auto got = ask(path, body);
        EXPECT_EQ(got.status, 409) << path << " " << json::dump(got.body);
        EXPECT_EQ(got.code, "fenced") << path;
    }
    EXPECT_EQ(patch(upload, 0, read_file(delta.path)).status, 409);
    EXPECT_EQ(ask("/release", body_of_site()).body.at("released").as_u64().value_or(0), 0U) << "it has nothing left";
    EXPECT_EQ(books(), before);
}

TEST_F(a_stale_process, that_slept_beyond_its_leases_can_write_nothing_of_them) {
    more_ = {"--lease.min_ttl_s=1", "--lease.default_ttl_s=1"};
    begin_run();
    const client::upload_job delta = make_delta(2.0F);
    const json::value leases = claims();
    const std::string upload = announce(delta);
    while (get(*client_, "/status").body.at("leased").as_u64() != 0U) {  // until they run out; ctest's limit ends it
    }
    ASSERT_EQ(ask("/register", body_of("beta", 'b', {{"protocol", 2}, {"ranks", 1}})).status, 200);
    const auto all = ask("/acquire", body_of("beta", 'b', {{"blocks", 4}, {"ttl", 600}})).body;
    ASSERT_EQ(*all.at("status").as_string(), "granted");
    std::uint64_t taken = 0;
    for (const json::value& l : *all.at("leases").as_array()) {
        taken += l.at("end").as_u64().value() - l.at("start").as_u64().value();
        ASSERT_EQ(
            ask("/reserve",
                body_of("beta", 'b', {{"lease", l.at("lease_id")}, {"token", l.at("token")}, {"through", l.at("end")}}))
                .status,
            200);
    }
    ASSERT_EQ(patch(upload, 0, read_file(delta.path)).status, 200) << "the upload itself harms nobody";
    for (const json::value& one : *leases.as_array()) {
        const std::string id = *one.at("lease").as_string();
        const auto beat = ask("/heartbeat", body_of_site({{"progress", json::make_object({{id, one.at("through")}})}}));
        EXPECT_EQ(beat.body.at("leases").at(id).at("valid").as_bool(), false) << json::dump(beat.body);
        EXPECT_EQ(
            ask("/reserve",
                body_of_site({{"lease", one.at("lease")}, {"token", one.at("token")}, {"through", one.at("through")}}))
                .code,
            "lease_gone");
    }
    const auto got = ask("/round/contribute", claim_of(delta, leases));
    EXPECT_EQ(got.status, 409) << json::dump(got.body);
    EXPECT_EQ(got.code, "blocks_lost");
    const auto s = get(*client_, "/status").body;
    EXPECT_EQ(s.at("pledged").as_u64(), 0U);
    EXPECT_EQ(s.at("clusters").at("beta").at("held").as_u64(), taken);
}

}  // namespace
