// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/progress_line.hpp"

#include <gtest/gtest.h>
#include <pty.h>

namespace {

// What comes out of `body` when stderr is the end of `pair`.
template <class Body>
std::string stderr_of(int (&pair)[2], const Body& body) {
    const int before = ::dup(2);
    ::dup2(pair[1], 2);
    body();
    ::dup2(before, 2);
    ::close(before);
    ::close(pair[1]);
    std::string out;
    char piece[1024];
    for (ssize_t n = 0; (n = ::read(pair[0], piece, sizeof piece)) > 0;) out.append(piece, static_cast<std::size_t>(n));
    ::close(pair[0]);
    return out;
}

void work() {
    darl::progress_line line(true);
    line.event("begins");
    line.show(darl::progress_bar(25, 100));
    line.event("a site joins");
    line.show(darl::progress_bar(100, 100));
}

TEST(progress_line, is_written_over_on_a_terminal_with_events_on_lines_of_their_own) {
    int pair[2];
    ASSERT_EQ(::openpty(&pair[0], &pair[1], nullptr, nullptr, nullptr), 0);
    EXPECT_EQ(stderr_of(pair, work),
              "begins\r\n\r[#######.......................] 25 of 100\x1b[K\r\na site joins\r\n"
              "\r[##############################] 100 of 100\x1b[K\r\n");
}

TEST(progress_line, is_not_there_in_a_log_and_events_are_one_line_each) {
    int pair[2];
    ASSERT_EQ(::pipe(pair), 0);
    EXPECT_EQ(stderr_of(pair, work), "begins\na site joins\n");
}

TEST(progress_bar, fills_with_what_is_done_and_takes_odd_numbers) {
    EXPECT_EQ(darl::progress_bar(0, 0), "[..............................] 0 of 0");
    EXPECT_EQ(darl::progress_bar(7, 3), "[##############################] 7 of 3");
}

}  // namespace
