// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/child_process.hpp"

#include <csignal>

#include <gtest/gtest.h>

namespace {

using darl::child_process;
using namespace std::chrono_literals;

child_process start(std::vector<std::string> argv) {
    child_process::options o;
    o.argv = std::move(argv);
    o.read_stdout = true;
    o.environment = {{"DARL_TEST_VALUE", "a b;$(c)"}};
    auto child = child_process::start(o);
    EXPECT_TRUE(child) << to_text(child.error());
    return *std::move(child);
}

TEST(child_process, arguments_and_environment_arrive_byte_for_byte) {
    auto child =
        start({"/bin/sh", "-c", "printf '%s|%s\\n' \"$1\" \"$DARL_TEST_VALUE\"; exit 3", "x", "q'\"\\ $HOME; `id`"});
    EXPECT_EQ(child.read_line(10s), "q'\"\\ $HOME; `id`|a b;$(c)");
    EXPECT_EQ(child.wait(10s), 3);
    EXPECT_EQ(child.read_line(1s), std::nullopt);
}

TEST(child_process, a_program_that_is_not_there_is_an_error_that_names_it) {
    child_process::options o;
    o.argv = {"/no/such/program"};
    const auto child = child_process::start(o);
    ASSERT_FALSE(child);
    EXPECT_NE(child.error().context.find("/no/such/program"), std::string::npos);
}

TEST(child_process, a_killed_child_reports_128_plus_the_signal_and_the_destructor_ends_a_running_one) {
    auto child = start({"/bin/cat", "/dev/zero"});
    child.signal(SIGTERM);
    EXPECT_EQ(child.wait(10s), 128 + SIGTERM);
    pid_t pid = 0;
    {
        auto other = start({"/bin/sh", "-c", "echo ready; exec tail -f /dev/null"});
        EXPECT_EQ(other.read_line(10s), "ready");
        pid = other.pid();
    }
    EXPECT_EQ(::kill(pid, 0), -1);
}

}  // namespace
