// SPDX-License-Identifier: Apache-2.0
// The real binary over loopback.
#include <csignal>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "backends/asio/token_file.hpp"
#include "tests/asio/raw_client.hpp"
#include "tests/asio/serve_fixture.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::http::testing;

const std::vector<std::string> small_run = {"--num-samples", "1000", "--block-size", "10"};
constexpr const char* process = "0123456789abcdef0123456789abcdef";

json::value body_of_site(const std::string& site,
                         std::initializer_list<std::pair<std::string_view, json::value>> more = {}) {
    json::value body = json::make_object({{"cluster", site}, {"incarnation", process}});
    for (const auto& [key, value] : more) body.set(key, value);
    return body;
}

client::json_answer register_site(client::http_client& c, const std::string& site) {
    return post(c, "/register", body_of_site(site, {{"protocol", 2}, {"ranks", 1}}));
}

TEST(darl_serve, leases_survive_kill_minus_nine) {
    temporary_folder folder;
    std::string lease_id;
    {
        served server(folder / "state", small_run);
        ASSERT_TRUE(server.up()) << server.log();
        EXPECT_EQ(server.term(), 1U);
        auto c = server.client();
        ASSERT_EQ(register_site(c, "alpha").status, 200);
        const auto granted = post(c, "/acquire", body_of_site("alpha", {{"blocks", 8}, {"request_id", "r1"}}));
        ASSERT_EQ(granted.status, 200);
        ASSERT_EQ(granted.body.at("leases").size(), 1U) << json::dump(granted.body);
        lease_id = *granted.body.at("leases").at(0).at("lease_id").as_string();
        server.child().kill();
    }
    served again(folder / "state", {"--resume"});
    ASSERT_TRUE(again.up()) << again.log();
    EXPECT_EQ(again.term(), 2U);
    auto c = again.client();
    const auto repeated = post(c, "/acquire", body_of_site("alpha", {{"blocks", 8}, {"request_id", "r1"}}));
    ASSERT_EQ(repeated.status, 200) << json::dump(repeated.body);
    EXPECT_EQ(*repeated.body.at("leases").at(0).at("lease_id").as_string(), lease_id);
    EXPECT_EQ(get(c, "/status").body.at("leased").as_u64(), 4U);
    EXPECT_EQ(again.stop(), 0) << again.log();
}

TEST(darl_serve, a_clean_stop_leaves_a_snapshot_and_the_next_start_goes_on) {
    temporary_folder folder;
    {
        served server(folder / "state", small_run);
        ASSERT_TRUE(server.up()) << server.log();
        auto c = server.client();
        ASSERT_EQ(register_site(c, "alpha").status, 200);
        EXPECT_EQ(server.stop(), 0) << server.log();
    }
    bool snapshot = false;
    for (const auto& e : std::filesystem::directory_iterator(folder / "state/journal"))
        snapshot = snapshot || e.path().filename().string().starts_with("snapshot-");
    EXPECT_TRUE(snapshot);
    served again(folder / "state", {});
    ASSERT_TRUE(again.up()) << again.log();
    auto c = again.client();
    EXPECT_EQ(post(c, "/acquire", body_of_site("alpha", {{"blocks", 1}})).status, 200);
}

TEST(darl_serve, a_second_server_on_the_directory_is_refused_with_3) {
    temporary_folder folder;
    served first(folder / "state", small_run);
    ASSERT_TRUE(first.up()) << first.log();
    served second(folder / "state", {});
    EXPECT_FALSE(second.up());
    EXPECT_EQ(second.exit_code(), 3);
    EXPECT_NE(second.log().find(std::to_string(first.child().pid())), std::string::npos) << second.log();
}

// Where the file system ignores locks, or the lock is lost, the number of the term tells a server that another one
// came.
TEST(darl_serve, a_server_whose_directory_another_one_took_acknowledges_nothing_more_and_ends_with_3) {
    temporary_folder folder;
    served first(folder / "state", small_run);
    ASSERT_TRUE(first.up()) << first.log();
    auto c = first.client();
    ASSERT_EQ(register_site(c, "alpha").status, 200);
    std::filesystem::remove(folder / "state/lock");
    served second(folder / "state", {"--resume"});
    ASSERT_TRUE(second.up()) << second.log();
    EXPECT_EQ(second.term(), 2U);
    EXPECT_NE(register_site(c, "beta").status, 200);
    EXPECT_EQ(first.exit_code(), 3) << first.log();
    EXPECT_NE(first.log().find("term"), std::string::npos) << first.log();
    auto d = second.client();
    EXPECT_EQ(get(d, "/status").body.at("clusters").size(), 1U) << "beta was never acknowledged";
    EXPECT_EQ(register_site(d, "beta").status, 200);
    EXPECT_EQ(second.stop(), 0) << second.log();
}

TEST(darl_serve, wrong_starts_have_their_exit_codes) {
    temporary_folder folder;
    const auto code = [&](const std::string& state, std::vector<std::string> arguments) {
        served s(folder / state, std::move(arguments));
        EXPECT_FALSE(s.up());
        return s.exit_code();
    };
    EXPECT_EQ(code("empty", {"--resume"}), 2);
    EXPECT_EQ(code("empty2", {}), 2) << "geometry is needed for a new run";
    EXPECT_EQ(code("s", {"--num-samples", "0", "--block-size", "1"}), 2);
    EXPECT_EQ(code("s", {"--num-samples", "10", "--block-size", "1", "--round.quorumm=2"}), 2);
    EXPECT_EQ(code("s", {"--num-samples", "10", "--block-size", "1", "--listen", "0.0.0.0:0"}), 2) << "given twice";
    EXPECT_EQ(code("s", {"--num-samples", "10", "--block-size", "1", "--tls-certificate", "x"}), 2);
}

TEST(darl_serve, other_geometry_after_a_restart_is_refused_naming_both_values) {
    temporary_folder folder;
    {
        served server(folder / "state", small_run);
        ASSERT_TRUE(server.up()) << server.log();
        EXPECT_EQ(server.stop(), 0);
    }
    served other(folder / "state", {"--num-samples", "2000", "--block-size", "10"});
    EXPECT_FALSE(other.up());
    EXPECT_EQ(other.exit_code(), 2);
    EXPECT_NE(other.log().find("1000"), std::string::npos) << other.log();
    EXPECT_NE(other.log().find("2000"), std::string::npos) << other.log();
}

TEST(darl_serve, fresh_moves_the_former_run_aside) {
    temporary_folder folder;
    {
        served server(folder / "state", small_run);
        ASSERT_TRUE(server.up()) << server.log();
        auto c = server.client();
        ASSERT_EQ(register_site(c, "alpha").status, 200);
        EXPECT_EQ(server.stop(), 0);
    }
    std::vector<std::string> arguments = small_run;
    arguments.emplace_back("--fresh");
    served fresh(folder / "state", arguments);
    ASSERT_TRUE(fresh.up()) << fresh.log();
    auto c = fresh.client();
    EXPECT_EQ(get(c, "/status").body.at("clusters").size(), 0U);
    bool kept = false;
    for (const auto& e : std::filesystem::directory_iterator(folder / "state"))
        kept = kept || (e.path().filename().string().starts_with("superseded-") &&
                        std::filesystem::exists(e.path() / "journal"));
    EXPECT_TRUE(kept);
}

TEST(darl_serve, scopes_and_site_names_are_enforced) {
    temporary_folder folder;
    const std::string tokens = folder / "tokens";
    ASSERT_TRUE(http::write_secret_file(tokens, http::token_line("alpha", "ta", {"lease", "blob"}, {}, {}) + "\n" +
                                                    http::token_line("viewer", "tv", {"read"}, {}, {}) + "\n" +
                                                    http::token_line("boss", "tb", {"admin"}, {}, {}) + "\n"));
    std::vector<std::string> arguments = small_run;
    arguments.insert(arguments.end(), {"--token-file", tokens});
    served server(folder / "state", arguments);
    ASSERT_TRUE(server.up()) << server.log();
    auto alpha = server.client("ta");
    auto viewer = server.client("tv");
    auto boss = server.client("tb");
    auto nobody = server.client();
    auto wrong = server.client("nonsense");
    EXPECT_EQ(register_site(alpha, "alpha").status, 200);
    EXPECT_EQ(register_site(alpha, "alpha-r0").status, 200);
    const auto foreign = register_site(alpha, "beta");
    EXPECT_EQ(foreign.status, 403);
    EXPECT_EQ(foreign.code, "wrong_scope");
    EXPECT_EQ(register_site(viewer, "viewer").status, 403);
    EXPECT_EQ(get(viewer, "/status").status, 200);
    EXPECT_EQ(get(nobody, "/status").status, 401);
    EXPECT_EQ(get(wrong, "/status").status, 401);
    EXPECT_EQ(get(nobody, "/health").status, 200);
    EXPECT_EQ(get(wrong, "/health").status, 401);
    EXPECT_EQ(get(nobody, "/nothing").status, 401) << "strangers learn nothing about routes";
    EXPECT_EQ(get(viewer, "/nothing").status, 404);
    EXPECT_EQ(get(alpha, "/acquire").status, 405);
    EXPECT_EQ(post(alpha, "/snapshot", json::object{}).status, 403);
    EXPECT_EQ(post(boss, "/snapshot", json::object{}).status, 200);
}

TEST(darl_serve, a_reload_takes_the_new_tokens_and_a_bad_file_keeps_the_old_ones) {
    temporary_folder folder;
    const std::string tokens = folder / "tokens";
    ASSERT_TRUE(http::write_secret_file(tokens, http::token_line("alpha", "old", {"lease"}, {}, {}) + "\n"));
    std::vector<std::string> arguments = small_run;
    arguments.insert(arguments.end(), {"--token-file", tokens});
    served server(folder / "state", arguments);
    ASSERT_TRUE(server.up()) << server.log();
    const auto replace = [&](const std::string& text) {
        std::filesystem::remove(tokens);
        ASSERT_TRUE(http::write_secret_file(tokens, text));
        server.child().signal(SIGHUP);
    };
    const auto status = [&](const std::string& token) {
        auto c = server.client(token);
        return get(c, "/status").status;
    };
    replace("not a token line {\n# and a comment\n");
    while (server.log().find("not reloaded") == std::string::npos) EXPECT_EQ(status("old"), 200);
    EXPECT_EQ(status("old"), 200);
    replace(http::token_line("alpha", "new", {"lease"}, {}, {}) + "\n");
    while (server.log().find("token file reloaded") == std::string::npos) (void)status("new");
    EXPECT_EQ(status("old"), 401);
    EXPECT_EQ(status("new"), 200);
}

TEST(darl_serve, requests_without_sense_are_400_with_the_field_and_never_500) {
    temporary_folder folder;
    served server(folder / "state", small_run);
    ASSERT_TRUE(server.up()) << server.log();
    auto c = server.client();
    ASSERT_EQ(register_site(c, "alpha").status, 200);
    struct row {
        const char* path;
        const char* body;
        int status;
    };
    const row rows[] = {
        {"/acquire", "{", 400},
        {"/acquire", "[]", 400},
        {"/acquire", "{\"cluster\":\"alpha\",\"cluster\":\"beta\"}", 400},
        {"/acquire", "{\"blocks\":1}", 400},
        {"/acquire", "{\"cluster\":\"../x\"}", 400},
        {"/acquire", "{\"cluster\":7}", 400},
        {"/acquire", "{\"cluster\":\"alpha\",\"blocks\":1.5}", 400},
        {"/acquire", "{\"cluster\":\"alpha\",\"blocks\":\"x\"}", 400},
        {"/acquire", "{\"cluster\":\"alpha\",\"blocks\":true}", 400},
        {"/acquire", "{\"cluster\":\"alpha\",\"ttl\":NaN}", 400},
        {"/acquire", "{\"cluster\":\"alpha\",\"ttl\":\"5\"}", 400},
        {"/acquire", "{\"cluster\":\"alpha\",\"max_spans\":65}", 400},
        {"/acquire", "{\"cluster\":\"alpha\",\"max_spans\":0}", 400},
        {"/acquire",
         "{\"cluster\":\"alpha\",\"request_id\":\"01234567890123456789012345678901234567890123456789012345678901234\"}",
         400},
        {"/acquire", "{\"cluster\":\"alpha\",\"incarnation\":\"zz\"}", 400},
        {"/acquire", "{\"cluster\":\"nobody\"}", 409},
        {"/reserve", "{\"cluster\":\"alpha\"}", 400},
        {"/reserve", "{\"cluster\":\"alpha\",\"lease\":\"x\",\"through\":1}", 400},
        {"/reserve", "{\"cluster\":\"alpha\",\"lease\":\"e0-b0-99\",\"through\":1}", 409},
        {"/reserve", "{\"cluster\":\"alpha\",\"lease\":\"e0-b0-99\",\"token\":\"?\",\"through\":1}", 400},
        {"/heartbeat", "{\"cluster\":\"alpha\",\"progress\":[]}", 400},
        {"/heartbeat", "{\"cluster\":\"alpha\",\"progress\":{\"e0-b0-1\":1.5}}", 400},
        {"/commit", "{\"cluster\":\"alpha\",\"lease\":null,\"through\":1}", 400},
        {"/release", "{\"cluster\":\"alpha\",\"lease\":5}", 400},
        {"/release", "{\"cluster\":\"alpha\",\"keep_reserved\":\"no\"}", 400},
        {"/round/join", "{\"cluster\":\"alpha\",\"codecs\":[1]}", 400},
        {"/round/poll", "{\"cluster\":\"alpha\",\"state\":\"asleep\"}", 400},
        {"/round/contribute", "{\"cluster\":\"alpha\"}", 400},
        {"/round/contribute",
         "{\"cluster\":\"alpha\",\"id\":\"i\",\"base_generation\":0,\"tokens\":1,\"sha256\":\"zz\"}", 400},
        {"/round/decline", "{\"cluster\":\"alpha\",\"base_generation\":0,\"reason\":\"bored\"}", 400},
        {"/round/evaluation", "{\"cluster\":\"alpha\",\"generation\":0,\"loss_sum\":-1}", 400},
        {"/blobs", "{\"cluster\":\"alpha\",\"purpose\":\"x\"}", 400},
        {"/blobs", "nonsense", 400},
        {"/events?after=x", "", 405},
    };
    for (const row& r : rows) {
        SCOPED_TRACE(std::string(r.path) + " " + r.body);
        client::call call;
        call.method = "POST";
        call.path = r.path;
        call.body = r.body;
        const auto got = c.perform(call);
        ASSERT_TRUE(got);
        EXPECT_EQ(got->status, r.status) << got->body;
        const auto body = json::parse(got->body);
        ASSERT_TRUE(body && body->contains("code") && body->contains("error")) << got->body;
        EXPECT_EQ(got->body.find("bored"), std::string::npos) << "input is never echoed";
    }
    std::string deep(5000, '[');
    client::call call;
    call.method = "POST";
    call.path = "/acquire";
    call.body = deep;
    EXPECT_EQ(c.perform(call)->status, 400);
    const std::string large = "{\"cluster\":\"" + std::string(2'000'000, 'a') + "\"}";
    call.body = large;
    EXPECT_EQ(c.perform(call)->status, 413);
    EXPECT_EQ(get(c, "/status").body.at("leased").as_u64(), 0U) << "nothing refused may change anything";
}

TEST(darl_serve, the_page_is_html_without_script_and_escaped_and_the_text_is_plain) {
    temporary_folder folder;
    served server(folder / "state", small_run);
    ASSERT_TRUE(server.up()) << server.log();
    auto c = server.client();
    ASSERT_EQ(register_site(c, "alpha").status, 200);
    client::call page;
    page.path = "/";
    page.headers = {{"Accept", "text/html"}};
    const auto html = c.perform(page);
    ASSERT_TRUE(html);
    EXPECT_EQ(html->status, 200);
    EXPECT_NE(html->body.find("alpha"), std::string::npos);
    EXPECT_EQ(html->body.find("<script"), std::string::npos);
    EXPECT_EQ(html->body.find("href=\"/"), std::string::npos) << "links must work below a sub-path";
    EXPECT_EQ(html->body.find("src="), std::string::npos);
    EXPECT_NE(html->header("content-security-policy"), nullptr);
    page.headers = {{"Accept", "text/plain"}};
    EXPECT_NE(c.perform(page)->body.find("alpha"), std::string::npos);
    client::call full;
    full.path = "/status?full=1";
    const auto streamed = c.perform(full);
    ASSERT_TRUE(streamed);
    const auto parsed = json::parse(streamed->body, {std::size_t{64} << 20U, 32});
    ASSERT_TRUE(parsed) << streamed->body;
    EXPECT_TRUE(parsed->at("clusters").contains("alpha"));
    client::call metrics;
    metrics.path = "/metrics";
    EXPECT_NE(c.perform(metrics)->body.find("darl_blocks{state=\"unassigned\"} 100"), std::string::npos);
    const auto events = get(c, "/events");
    ASSERT_EQ(events.status, 200);
    EXPECT_GE(events.body.at("events").size(), 1U);
    EXPECT_EQ(get(c, "/events?after=0").status, 410) << "what happened before this start is in the journal only";
}

TEST(darl_serve, foreign_pages_and_unknown_hosts_are_turned_away) {
    temporary_folder folder;
    served server(folder / "state", small_run);
    ASSERT_TRUE(server.up()) << server.log();
    raw_client foreign(server.port());
    ASSERT_TRUE(foreign.say("GET /status HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n"));
    EXPECT_EQ(status_of(foreign.hear_reply()), 403);
    raw_client rebound(server.port());
    ASSERT_TRUE(rebound.say("GET /status HTTP/1.1\r\nHost: evil.example\r\n\r\n"));
    EXPECT_EQ(status_of(rebound.hear_reply()), 403);
    raw_client usual(server.port());
    ASSERT_TRUE(usual.say("GET /status HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n"));
    EXPECT_EQ(status_of(usual.hear_reply()), 200);
}

TEST(darl_serve, a_non_loopback_address_without_tokens_is_refused_with_3) {
    temporary_folder folder;
    darl::child_process::options o;
    o.argv = {DARL_PROGRAM, "serve",        "--state-dir", folder / "state", "--num-samples",
              "10",         "--block-size", "1",           "--listen",       "0.0.0.0:0"};
    o.stderr_file = folder / "log";
    auto child = darl::child_process::start(o);
    ASSERT_TRUE(child);
    EXPECT_EQ(child->wait(std::chrono::seconds(60)).value_or(-1), 3);
}

TEST(darl_serve, an_empty_token_variable_is_an_error_not_an_open_server) {
    temporary_folder folder;
    darl::child_process::options o;
    o.argv = {DARL_PROGRAM, "serve",        "--state-dir", folder / "state", "--num-samples",
              "10",         "--block-size", "1",           "--listen",       "127.0.0.1:0"};
    o.environment.emplace_back("DARL_TOKEN", "");
    o.stderr_file = folder / "log";
    auto child = darl::child_process::start(o);
    ASSERT_TRUE(child);
    EXPECT_EQ(child->wait(std::chrono::seconds(60)).value_or(-1), 2);
}

}  // namespace
