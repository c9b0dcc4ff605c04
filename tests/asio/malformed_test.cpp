// SPDX-License-Identifier: Apache-2.0
#include <set>

#include <gtest/gtest.h>

#include "tests/asio/malformed_rows.hpp"
#include "tests/asio/read_all.hpp"

namespace {

using namespace darlcore::http;
using namespace darlcore::http::testing;

TEST(malformed_requests, more_than_300_rows_and_no_two_alike) {
    std::set<std::string> seen;
    for (const malformed_row& row : malformed_rows()) EXPECT_TRUE(seen.insert(row.bytes).second) << row.name;
    EXPECT_GE(seen.size(), 300U);
}

TEST(malformed_requests, each_is_answered_with_its_status) {
    for (const malformed_row& row : malformed_rows()) {
        const reading got = read_all(row.bytes);
        EXPECT_EQ(got.status, row.status) << row.name << ": " << got.why;
        EXPECT_TRUE(got.requests.empty()) << row.name;
    }
}

TEST(malformed_requests, the_cut_does_not_matter) {
    for (const malformed_row& row : malformed_rows()) {
        const reading whole = read_all(row.bytes);
        EXPECT_EQ(read_all(row.bytes, {1}).status, whole.status) << row.name;
        EXPECT_EQ(read_all(row.bytes, {7}).status, whole.status) << row.name;
    }
}

TEST(malformed_requests, a_following_request_is_never_read) {
    const std::string follower = "GET /health HTTP/1.1\r\nHost: a\r\n\r\n";
    for (const malformed_row& row : malformed_rows())
        EXPECT_TRUE(read_all(row.bytes + follower).requests.empty()) << row.name;
}

TEST(malformed_requests, sentences_never_echo_the_input) {
    for (const malformed_row& row : malformed_rows()) {
        const reading got = read_all(row.bytes);
        EXPECT_EQ(got.why.find("aaaa"), std::string::npos) << row.name;
        EXPECT_EQ(got.why.find('<'), std::string::npos) << row.name;
    }
}

}  // namespace
