// SPDX-License-Identifier: Apache-2.0
#include "backends/asio/server.hpp"

#include <cstdlib>
#include <filesystem>
#include <future>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <asio.hpp>

#include "tests/asio/malformed_rows.hpp"
#include "tests/asio/raw_client.hpp"

namespace {

using namespace darlcore;
using namespace darlcore::http;
using darlcore::http::testing::body_of;
using darlcore::http::testing::raw_client;
using darlcore::http::testing::status_of;

server_limits quick_limits() {
    server_limits limits;
    limits.head_ms = 300;
    limits.idle_ms = 400;
    limits.rate_window_ms = 300;
    limits.stop_grace_ms = 500;
    return limits;
}

/// A server on port 0 in its own thread, with a handler that knows a few paths.
class running_server {
public:
    explicit running_server(const server_limits& limits = {})
        : files_(1), server_(loop_, files_, limits, [this](exchange& x) { return handle(x); }) {
        const auto got = server_.listen("127.0.0.1", 0);
        port = got.value();
        thread_ = std::thread([this] { loop_.run(); });
    }
    ~running_server() {
        asio::post(loop_, [this] { server_.stop(); });
        thread_.join();
    }
    [[nodiscard]] server_counters counters() {
        std::promise<server_counters> got;
        asio::post(loop_, [&] { got.set_value(server_.counters()); });
        return got.get_future().get();
    }
    void stop() {
        asio::post(loop_, [this] { server_.stop(); });
    }
    std::uint16_t port = 0;
    std::shared_ptr<const open_file> file;
    std::uint64_t file_bytes = 0;

private:
    asio::awaitable<reply> handle(exchange& x) {
        reply r;
        r.content_type = "text/plain";
        if (x.head().path == "/echo") {
            r.body = co_await read_body(x, 1 << 20);
        } else if (x.head().path == "/refuse") {
            r.status = 401;
            r.body = "no";
        } else if (x.head().path == "/stream") {
            r.pieces = [left = 3]() mutable { return left-- > 0 ? std::string("piece;") : std::string(); };
        } else if (x.head().path == "/endless") {
            r.pieces = [] { return std::string(std::size_t{1} << 20U, 'x'); };
        } else if (x.head().path == "/file") {
            r.file = file_region{file, 1, file_bytes - 2};
        } else if (x.head().path == "/slow") {
            asio::steady_timer timer(loop_, std::chrono::milliseconds(150));
            co_await timer.async_wait(asio::use_awaitable);
            r.body = "late";
        } else {
            r.body = "hello";
        }
        co_return r;
    }

    asio::io_context loop_{1};
    asio::thread_pool files_;
    server server_;
    std::thread thread_;
};

bool is_chunk_row(const darlcore::http::testing::malformed_row& row) {
    return row.name.starts_with("chunks ") || row.name.starts_with("chunk header") || row.name.starts_with("trailers");
}

std::string get(const std::string& path, const std::string& more = "") {
    return "GET " + path + " HTTP/1.1\r\nHost: a\r\n" + more + "\r\n";
}

TEST(http_server, answers_several_requests_on_one_connection) {
    running_server s;
    raw_client c(s.port);
    for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(c.say(get("/")));
        const std::string got = c.hear_reply();
        EXPECT_EQ(status_of(got), 200);
        EXPECT_EQ(body_of(got), "hello");
    }
    EXPECT_EQ(s.counters().accepted, 1U);
}

TEST(http_server, answers_pipelined_requests_in_their_order) {
    running_server s;
    raw_client c(s.port);
    ASSERT_TRUE(c.say("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\none" + get("/") +
                      "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ntwo\r\n0\r\n\r\n"));
    EXPECT_EQ(body_of(c.hear_reply()), "one");
    EXPECT_EQ(body_of(c.hear_reply()), "hello");
    EXPECT_EQ(body_of(c.hear_reply()), "two");
}

TEST(http_server, a_valid_request_cut_at_every_byte_is_answered) {
    running_server s;
    const std::string text = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    raw_client c(s.port);
    for (std::size_t at = 1; at < text.size(); ++at) {
        ASSERT_TRUE(c.say(text.substr(0, at)));
        ASSERT_TRUE(c.say(text.substr(at)));
        ASSERT_EQ(body_of(c.hear_reply()), "hello") << at;
    }
}

TEST(http_server, a_refusal_leaves_the_body_unread_and_ends_the_connection) {
    running_server s;
    raw_client c(s.port);
    ASSERT_TRUE(c.say("POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + std::string(1000, 'x')));
    const std::string got = c.hear_all();
    EXPECT_EQ(status_of(got), 401);
    EXPECT_NE(got.find("Connection: close"), std::string::npos);
    EXPECT_EQ(got.find("HTTP/1.1", 10), std::string::npos)
        << "what follows a refused body must not be read as a request";
}

TEST(http_server, a_body_over_the_limit_is_413_before_it_is_read) {
    running_server s;
    raw_client c(s.port);
    ASSERT_TRUE(c.say("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n"));
    EXPECT_EQ(status_of(c.hear_all()), 413);
    raw_client chunked(s.port);
    chunked.say("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n200000\r\n" +
                std::string(0x200000, 'x'));
    EXPECT_EQ(status_of(chunked.hear_all()), 413);
}

TEST(http_server, expect_continue_is_answered_only_when_the_body_is_wanted) {
    running_server s;
    raw_client c(s.port);
    ASSERT_TRUE(c.say("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"));
    EXPECT_EQ(c.hear_reply(), "HTTP/1.1 100 Continue\r\n\r\n");
    ASSERT_TRUE(c.say("hi"));
    EXPECT_EQ(body_of(c.hear_reply()), "hi");
    raw_client refused(s.port);
    ASSERT_TRUE(refused.say("POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"));
    EXPECT_EQ(status_of(refused.hear_all()), 401);
}

TEST(http_server, streamed_replies_are_chunked_or_end_with_the_connection) {
    running_server s;
    raw_client c(s.port);
    ASSERT_TRUE(c.say(get("/stream", "Connection: close\r\n")));
    EXPECT_EQ(body_of(c.hear_all()), "6\r\npiece;\r\n6\r\npiece;\r\n6\r\npiece;\r\n0\r\n\r\n");
    raw_client old(s.port);
    ASSERT_TRUE(old.say("GET /stream HTTP/1.0\r\nHost: a\r\n\r\n"));
    EXPECT_EQ(body_of(old.hear_all()), "piece;piece;piece;");
}

TEST(http_server, head_answers_without_a_body) {
    running_server s;
    raw_client c(s.port);
    ASSERT_TRUE(c.say("HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
    const std::string got = c.hear_all();
    EXPECT_NE(got.find("Content-Length: 5"), std::string::npos);
    EXPECT_EQ(body_of(got), "");
}

TEST(http_server, sends_a_region_of_a_file) {
    std::string path = (std::filesystem::temp_directory_path() / "darl_region_XXXXXX").string();
    const int fd = ::mkstemp(path.data());
    std::string content;
    for (int i = 0; i < 300'000; ++i) content += std::to_string(i) + ",";
    ASSERT_EQ(::write(fd, content.data(), content.size()), static_cast<ssize_t>(content.size()));
    std::filesystem::remove(path);
    running_server s;
    s.file = std::make_shared<open_file>(fd);
    s.file_bytes = content.size();
    raw_client c(s.port);
    ASSERT_TRUE(c.say(get("/file", "Connection: close\r\n")));
    const std::string got = c.hear_all();
    EXPECT_TRUE(body_of(got) == std::string_view(content).substr(1, content.size() - 2));
}

TEST(http_server, each_malformed_request_gets_its_status_over_a_socket) {
    running_server s;
    for (const auto& row : darlcore::http::testing::malformed_rows()) {
        if (is_chunk_row(row)) continue;  // their heads are fine; the next test
        raw_client c(s.port);
        c.say(row.bytes);
        c.end_sending();
        EXPECT_EQ(status_of(c.hear_all()), row.status) << row.name;
    }
}

TEST(http_server, each_malformed_chunk_gets_its_status_over_a_socket) {
    running_server s;
    for (auto row : darlcore::http::testing::malformed_rows()) {
        if (!is_chunk_row(row)) continue;
        row.bytes.replace(row.bytes.find("/acquire"), 8, "/echo");
        raw_client c(s.port);
        c.say(row.bytes);
        EXPECT_EQ(status_of(c.hear_all()), row.status) << row.name;
    }
}

TEST(http_server, a_head_that_does_not_end_is_408) {
    running_server s(quick_limits());
    raw_client c(s.port);
    ASSERT_TRUE(c.say("GET / HTTP/1.1\r\nHo"));
    EXPECT_EQ(status_of(c.hear_all()), 408);
}

TEST(http_server, a_body_that_drips_is_408) {
    running_server s(quick_limits());
    raw_client c(s.port);
    ASSERT_TRUE(c.say("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nabc"));
    EXPECT_EQ(status_of(c.hear_all()), 408);
}

TEST(http_server, an_idle_connection_is_closed_without_an_answer) {
    running_server s(quick_limits());
    raw_client c(s.port);
    EXPECT_EQ(c.hear_all(), "");
    raw_client used(s.port);
    ASSERT_TRUE(used.say(get("/")));
    EXPECT_EQ(status_of(used.hear_reply()), 200);
    EXPECT_EQ(used.hear_all(), "");
}

TEST(http_server, a_reader_that_never_reads_is_dropped) {
    server_limits limits = quick_limits();
    running_server s(limits);
    raw_client c(s.port);
    ASSERT_TRUE(c.say(get("/endless")));
    while (s.counters().accepted == 0) std::this_thread::yield();
    while (s.counters().open > 0) std::this_thread::yield();  // ctest's limit ends it when the mechanism is gone
}

TEST(http_server, connections_over_the_cap_of_an_address_get_503) {
    server_limits limits;
    limits.connections_per_address_max = 4;
    running_server s(limits);
    std::vector<std::unique_ptr<raw_client>> open;
    for (int i = 0; i < 4; ++i) {
        open.push_back(std::make_unique<raw_client>(s.port));
        ASSERT_TRUE(open.back()->say(get("/")));
        ASSERT_EQ(status_of(open.back()->hear_reply()), 200);
    }
    raw_client fifth(s.port);
    const std::string got = fifth.hear_all();
    EXPECT_EQ(status_of(got), 503);
    EXPECT_NE(got.find("Retry-After"), std::string::npos);
}

TEST(http_server, three_hundred_half_open_requests_do_not_keep_others_out) {
    server_limits limits;
    limits.connections_per_address_max = 400;
    running_server s(limits);
    std::vector<std::unique_ptr<raw_client>> half;
    for (int i = 0; i < 300; ++i) {
        half.push_back(std::make_unique<raw_client>(s.port));
        ASSERT_TRUE(half.back()->connected() && half.back()->say("POST / HTTP/1.1\r\nHos"));
    }
    raw_client c(s.port);
    ASSERT_TRUE(c.say(get("/")));
    EXPECT_EQ(status_of(c.hear_reply()), 200);
}

TEST(http_server, stop_lets_the_answer_in_progress_finish) {
    running_server s;
    raw_client busy(s.port);
    ASSERT_TRUE(busy.say(get("/slow")));
    raw_client idle(s.port);
    ASSERT_TRUE(idle.say(get("/")));
    EXPECT_EQ(status_of(idle.hear_reply()), 200);
    s.stop();
    EXPECT_EQ(body_of(busy.hear_all()), "late");
    EXPECT_EQ(idle.hear_all(), "");
}

TEST(http_server, a_port_in_use_is_an_error_that_names_it) {
    running_server s;
    asio::io_context loop;
    asio::thread_pool files(1);
    server second(loop, files, {}, [](exchange&) -> asio::awaitable<reply> { co_return reply{}; });
    const auto got = second.listen("127.0.0.1", s.port);
    ASSERT_FALSE(got);
    EXPECT_NE(got.error().context.find(std::to_string(s.port)), std::string::npos);
    EXPECT_EQ(second.listen("not an address", 0).error().code, errc::invalid_argument);
}

}  // namespace
