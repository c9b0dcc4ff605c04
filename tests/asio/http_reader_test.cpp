// SPDX-License-Identifier: Apache-2.0
#include "backends/asio/http_reader.hpp"

#include <gtest/gtest.h>

#include "tests/asio/read_all.hpp"

namespace {

using namespace darlcore::http;
using darlcore::http::testing::read_all;
using darlcore::http::testing::reading;

const std::string simple = "GET /status?full=1 HTTP/1.1\r\nHost: localhost:8760\r\nX-DARL-Token: t\r\n\r\n";
const std::string with_length =
    "POST /acquire HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\nConnection: close\r\n\r\n{\"blocks\":1";
const std::string chunked =
    "PATCH /blobs/uploads/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    "5;name=value\r\nhello\r\n1\r\n \r\n6\r\nworld!\r\n0\r\nTrailer: dropped\r\n\r\n";

TEST(http_reader, reads_a_request_without_body) {
    const reading got = read_all(simple);
    ASSERT_EQ(got.requests.size(), 1U);
    EXPECT_EQ(got.requests[0], "GET /status?full=1 1.1|host=localhost:8760|x-darl-token=t keep body=");
    EXPECT_EQ(got.status, 0);
}

TEST(http_reader, reads_a_body_of_known_length) {
    const reading got = read_all(with_length);
    ASSERT_EQ(got.requests.size(), 1U);
    EXPECT_EQ(got.requests[0], "POST /acquire? 1.1|host=a|content-length=11|connection=close close body={\"blocks\":1");
}

TEST(http_reader, reads_a_chunked_body_and_drops_trailers) {
    const reading got = read_all(chunked);
    ASSERT_EQ(got.requests.size(), 1U);
    EXPECT_EQ(got.requests[0], "PATCH /blobs/uploads/x? 1.1|host=a|transfer-encoding=chunked keep body=hello world!");
}

TEST(http_reader, pipelined_requests_come_one_after_the_other) {
    const reading got = read_all(simple + chunked + "\r\n" + simple + with_length + simple);
    ASSERT_EQ(got.requests.size(), 5U);
    EXPECT_EQ(got.requests[0], got.requests[2]);
    EXPECT_EQ(got.requests[0], got.requests[4]);
}

TEST(http_reader, a_cut_at_any_byte_changes_nothing) {
    for (const std::string& text : {simple, with_length, chunked, simple + chunked + with_length, "\r\n" + simple}) {
        const reading whole = read_all(text);
        for (std::size_t at = 1; at < text.size(); ++at)
            EXPECT_EQ(read_all(text, {at, text.size()}), whole) << "cut at " << at;
        EXPECT_EQ(read_all(text, {1}), whole);
        EXPECT_EQ(read_all(text, {2, 3, 5, 7}), whole);
    }
}

TEST(http_reader, an_incomplete_request_wants_more_at_every_length) {
    for (const std::string& text : {simple, with_length, chunked})
        for (std::size_t n = 0; n < text.size(); ++n) {
            const reading got = read_all(std::string_view(text).substr(0, n));
            EXPECT_TRUE(got.requests.empty()) << n;
            EXPECT_EQ(got.status, 0) << n << ": " << got.why;
        }
}

TEST(http_reader, nothing_behind_a_refused_request_is_read) {
    const reading got = read_all("GET / HTTP/1.1\r\n\r\n" + simple);
    EXPECT_TRUE(got.requests.empty());
    EXPECT_EQ(got.status, 400);
}

TEST(http_reader, http_1_0_closes_unless_it_asks_to_keep) {
    EXPECT_TRUE(read_all("GET / HTTP/1.0\r\nHost: a\r\n\r\n").requests.at(0).ends_with(" close body="));
    EXPECT_TRUE(read_all("GET / HTTP/1.0\r\nHost: a\r\nConnection: Keep-Alive\r\n\r\n")
                    .requests.at(0)
                    .ends_with(" keep body="));
}

TEST(http_reader, absolute_form_is_taken_as_its_path) {
    EXPECT_TRUE(read_all("GET http://h:1/status?a=b HTTP/1.1\r\nHost: h:1\r\n\r\n")
                    .requests.at(0)
                    .starts_with("GET /status?a=b"));
    EXPECT_TRUE(read_all("GET http://h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n").requests.at(0).starts_with("GET /?"));
}

TEST(http_reader, limits_hold_at_their_exact_value) {
    reader_limits limits;
    limits.request_line_bytes_max = 64;
    limits.head_bytes_max = 256;
    limits.fields_max = 4;
    const auto line = [](std::size_t bytes) {
        return "GET /" + std::string(bytes - 14, 'a') + " HTTP/1.1\r\nHost: h\r\n\r\n";
    };
    EXPECT_EQ(read_all(line(64), {}, limits).status, 0);
    EXPECT_EQ(read_all(line(65), {}, limits).status, 414);
    const auto fields = [](std::size_t n) {
        std::string text = "GET / HTTP/1.1\r\nHost: h\r\n";
        for (std::size_t i = 1; i < n; ++i) text += "a" + std::to_string(i) + ": b\r\n";
        return text + "\r\n";
    };
    EXPECT_EQ(read_all(fields(4), {}, limits).status, 0);
    EXPECT_EQ(read_all(fields(5), {}, limits).status, 431);
    const auto head = [](std::size_t bytes) {
        const std::string start = "GET / HTTP/1.1\r\nHost: h\r\nx: ";
        return start + std::string(bytes - start.size() - 4, 'a') + "\r\n\r\n";
    };
    EXPECT_EQ(read_all(head(256), {}, limits).status, 0);
    EXPECT_EQ(read_all(head(257), {}, limits).status, 431);
}

TEST(http_reader, over_long_heads_are_refused_while_they_arrive) {
    const reading line = read_all("GET /" + std::string(20000, 'a'));
    EXPECT_EQ(line.status, 414);
    const reading head = read_all("GET / HTTP/1.1\r\nHost: a\r\nx: " + std::string(20000, 'a'));
    EXPECT_EQ(head.status, 431);
    const reading chunk =
        read_all("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;" + std::string(9000, 'a'), {100});
    EXPECT_EQ(chunk.status, 400);
}

TEST(http_message, ranges_are_one_or_unsatisfiable) {
    byte_range r;
    EXPECT_EQ(parse_range("bytes=0-0", 10, r), range_answer::part);
    EXPECT_EQ(r.first, 0U);
    EXPECT_EQ(r.end, 1U);
    EXPECT_EQ(parse_range("bytes=5-", 10, r), range_answer::part);
    EXPECT_EQ(r.end, 10U);
    EXPECT_EQ(parse_range("bytes=-3", 10, r), range_answer::part);
    EXPECT_EQ(r.first, 7U);
    EXPECT_EQ(parse_range("bytes=2-100", 10, r), range_answer::part);
    EXPECT_EQ(r.end, 10U);
    for (const char* bad : {"bytes=10-", "bytes=3-2", "bytes=0-1,3-4", "bytes=", "bytes=-", "bytes=-0", "bytes=a-b",
                            "bytes=1", "bytes= 1-2", "bytes=1-2x", "bytes=99999999999999999999-"})
        EXPECT_EQ(parse_range(bad, 10, r), range_answer::unsatisfiable) << bad;
    EXPECT_EQ(parse_range("bytes=0-", 0, r), range_answer::unsatisfiable);
    EXPECT_EQ(parse_range("pages=1-2", 10, r), range_answer::whole);
}

TEST(http_message, queries_are_decoded_or_refused) {
    const auto q = parse_query("after=12&limit=&name=a%20b+c&flag");
    ASSERT_TRUE(q);
    ASSERT_EQ(q->size(), 4U);
    EXPECT_EQ((*q)[2].second, "a b c");
    EXPECT_EQ((*q)[3].first, "flag");
    EXPECT_FALSE(parse_query("a=%"));
    EXPECT_FALSE(parse_query("a=%0"));
    EXPECT_FALSE(parse_query("a=%00"));
    std::string many;
    for (int i = 0; i < 33; ++i) many += "a&";
    EXPECT_FALSE(parse_query(many));
}

}  // namespace
