// SPDX-License-Identifier: Apache-2.0
#include "backends/asio/token_file.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/stat.h>

namespace {

using namespace darlcore;
using namespace darlcore::http;

constexpr std::int64_t now_s = 1'800'000'000;

class token_files : public ::testing::Test {
protected:
    void SetUp() override {
        std::string pattern = (std::filesystem::temp_directory_path() / "darl_token_XXXXXX").string();
        folder_ = ::mkdtemp(pattern.data());
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }
    [[nodiscard]] std::string path(const char* name) const { return (std::filesystem::path(folder_) / name).string(); }
    std::string folder_;
};

std::string line(const std::string& site, const std::string& token, std::optional<std::int64_t> from = {},
                 std::optional<std::int64_t> to = {}) {
    return token_line(site, token, {"lease", "blob"}, from, to) + "\n";
}

TEST(token_table, a_line_of_token_new_is_accepted_and_names_its_site) {
    const auto table = parse_token_file("# our sites\n\n" + line("alpha", "one") + line("beta", "two"));
    ASSERT_TRUE(table) << to_text(table.error());
    const auto who = table->find("one", now_s);
    ASSERT_TRUE(who);
    EXPECT_EQ(who->site, "alpha");
    EXPECT_TRUE(who->scopes.has(scope::lease) && who->scopes.has(scope::read) && who->scopes.has(scope::probe) &&
                who->scopes.has(scope::blob));
    EXPECT_FALSE(who->scopes.has(scope::admin));
    EXPECT_FALSE(table->find("three", now_s));
    EXPECT_FALSE(table->find("", now_s));
    EXPECT_FALSE(table->find("on", now_s));
}

TEST(token_table, validity_dates_are_kept_and_two_tokens_overlap_in_a_rotation) {
    const auto table = parse_token_file(line("alpha", "old", {}, now_s + 10) + line("alpha", "new", now_s - 10, {}));
    ASSERT_TRUE(table);
    EXPECT_TRUE(table->find("old", now_s));
    EXPECT_TRUE(table->find("new", now_s));
    EXPECT_FALSE(table->find("old", now_s + 10));
    EXPECT_FALSE(table->find("new", now_s - 11));
    EXPECT_FALSE(parse_token_file(line("a", "1") + line("a", "2") + line("a", "3")));
}

TEST(token_table, a_token_speaks_for_its_site_and_for_replicas_without_an_entry_of_their_own) {
    const auto table = parse_token_file(line("site", "s") + line("site-b", "b"));
    ASSERT_TRUE(table);
    const auto s = table->find("s", now_s);
    const auto b = table->find("b", now_s);
    ASSERT_TRUE(s && b);
    EXPECT_TRUE(table->speaks_for(*s, "site"));
    EXPECT_TRUE(table->speaks_for(*s, "site-a"));
    EXPECT_TRUE(table->speaks_for(*s, "site-r0"));
    EXPECT_FALSE(table->speaks_for(*s, "site-b"));
    EXPECT_FALSE(table->speaks_for(*s, "sitex"));
    EXPECT_FALSE(table->speaks_for(*s, "site2-a"));
    EXPECT_FALSE(table->speaks_for(*s, "sit"));
    EXPECT_TRUE(table->speaks_for(*b, "site-b"));
    EXPECT_FALSE(table->speaks_for(*b, "site"));
}

TEST(token_table, a_bare_token_speaks_for_all_sites_without_admin) {
    const token_table table = token_table::bare("sesame");
    const auto who = table.find("sesame", now_s);
    ASSERT_TRUE(who);
    EXPECT_TRUE(table.speaks_for(*who, "anybody"));
    EXPECT_FALSE(who->scopes.has(scope::admin));
}

TEST(token_table, a_bad_line_is_named_by_its_number_and_never_repeated) {
    for (const char* bad :
         {"nonsense secret", "{\"site\":\"a\"}", "{\"site\":\"../a\",\"sha256\":\"00\",\"scopes\":[\"lease\"]}",
          "{\"site\":\"a\",\"sha256\":\"zz\",\"scopes\":[\"lease\"]}", "[1]"}) {
        const auto table = parse_token_file("# first\n" + std::string(bad) + "\n");
        ASSERT_FALSE(table) << bad;
        EXPECT_NE(table.error().context.find("line 2"), std::string::npos) << table.error().context;
        EXPECT_EQ(table.error().context.find("secret"), std::string::npos);
    }
    std::string unknown = line("a", "t");
    unknown.replace(unknown.find("\"lease\""), 7, "\"leese\"");
    EXPECT_FALSE(parse_token_file(unknown));
    EXPECT_FALSE(parse_token_file(""));
}

TEST_F(token_files, a_file_that_others_can_read_is_refused) {
    ASSERT_TRUE(write_secret_file(path("tokens"), line("alpha", "one")));
    EXPECT_TRUE(load_token_file(path("tokens")));
    ::chmod(path("tokens").c_str(), 0640);
    const auto wide = load_token_file(path("tokens"));
    ASSERT_FALSE(wide);
    EXPECT_EQ(wide.error().code, errc::refused);
    EXPECT_NE(wide.error().context.find("chmod 600"), std::string::npos);
}

TEST_F(token_files, a_secret_file_is_never_overwritten) {
    ASSERT_TRUE(write_secret_file(path("t"), "a\n"));
    EXPECT_EQ(write_secret_file(path("t"), "b\n").error().code, errc::already_exists);
    EXPECT_EQ(read_secret_file(path("t")).value(), "a");
    EXPECT_FALSE(read_secret_file(path("absent")));
}

TEST_F(token_files, an_empty_file_is_an_error_and_a_single_word_is_a_bare_token) {
    ASSERT_TRUE(write_secret_file(path("empty"), "\n"));
    EXPECT_EQ(load_token_file(path("empty")).error().code, errc::invalid_argument);
    ASSERT_TRUE(write_secret_file(path("bare"), "sesame\n"));
    const auto table = load_token_file(path("bare"));
    ASSERT_TRUE(table);
    EXPECT_TRUE(table->find("sesame", now_s));
}

TEST(new_tokens, are_long_and_differ) {
    const auto a = new_token();
    const auto b = new_token();
    ASSERT_TRUE(a && b);
    EXPECT_EQ(a->size(), 64U);
    EXPECT_NE(*a, *b);
}

}  // namespace
