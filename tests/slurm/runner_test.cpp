// SPDX-License-Identifier: Apache-2.0
#include "backends/slurm/runner.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "tests/slurm/stub_command.hpp"

namespace {

using namespace darlcore::slurm;
using slurm_test::stub_folder;

run_answer run(const stub_folder& stubs, std::vector<std::string> argv, double limit_s = 20, double grace_s = 5) {
    run_request r;
    r.argv = std::move(argv);
    r.limit_s = limit_s;
    r.grace_s = grace_s;
    return run_command(r, scrubbed_environment(stubs.environment()));
}

TEST(runner, arguments_arrive_byte_for_byte_and_without_a_shell) {
    const stub_folder stubs;
    stubs.program("sbatch", "for a in \"$@\"; do printf '%s\\0' \"$a\"; done");
    const std::vector<std::string> args{"sbatch", "a;b", "$(touch x)", "new\nline", "quote'\"", "", "*"};
    const auto a = run(stubs, args);
    ASSERT_EQ(a.end, run_end::exited);
    std::string expected;
    for (std::size_t i = 1; i < args.size(); ++i) expected += args[i] + '\0';
    EXPECT_EQ(a.out, expected);
}

TEST(runner, the_environment_of_a_surrounding_job_does_not_leak) {
    const stub_folder stubs;
    stubs.program("sbatch", "env");
    const auto a = run(stubs, {"sbatch"});
    EXPECT_EQ(a.out.find("SLURM_JOB_ID"), std::string::npos);
    EXPECT_EQ(a.out.find("SBATCH_ACCOUNT"), std::string::npos);
    for (const char* kept : {"SLURM_CONF=/x/slurm.conf", "LC_ALL=C\n", "TZ=UTC\n", "SLURM_TIME_FORMAT=%s"})
        EXPECT_NE(a.out.find(kept), std::string::npos) << kept;
    EXPECT_EQ(a.out.find("Amsterdam"), std::string::npos);
    EXPECT_EQ(a.out.find("DARL_TOKEN"), std::string::npos) << "sbatch would hand it on to jobs";
}

TEST(runner, the_streams_stay_apart_and_stdin_is_empty) {
    const stub_folder stubs;
    stubs.program("sbatch", "cat; echo out; echo err >&2; exit 3");
    const auto a = run(stubs, {"sbatch"});
    EXPECT_EQ(a.rc, 3);
    EXPECT_EQ(a.out, "out\n");
    EXPECT_EQ(a.err, "err\n");
}

// Whoever is left holds the pipe's other end: it hangs up when the last of them is gone, however long the kernel takes.
TEST(runner, a_command_that_hangs_is_ended_with_its_children) {
    const stub_folder stubs;
    const std::string alive = stubs.file("alive");
    ASSERT_EQ(::mkfifo(alive.c_str(), 0600), 0);
    const int reader = ::open(alive.c_str(), O_RDONLY | O_NONBLOCK);
    ASSERT_GE(reader, 0);
    stubs.program("sbatch", "exec 3> " + alive + "; trap '' TERM; sleep 300 & echo begun; wait; sleep 300");
    const auto a = run(stubs, {"sbatch"}, 0.3, 0.3);
    EXPECT_EQ(a.end, run_end::timed_out);
    EXPECT_EQ(a.out, "begun\n");
    EXPECT_LT(a.call_ms, 5000);
    pollfd end{reader, 0, 0};
    EXPECT_EQ(::poll(&end, 1, 30'000), 1) << "a child is still there";
    EXPECT_NE(end.revents & POLLHUP, 0);
    ::close(reader);
}

TEST(runner, a_command_that_is_not_there_is_said_to_be_missing) {
    const stub_folder stubs;
    EXPECT_EQ(run(stubs, {"sbatch-that-is-not-there"}).end, run_end::not_found);
    EXPECT_EQ(run(stubs, {}).end, run_end::not_found);
}

TEST(runner, a_flood_is_cut_and_does_not_block_the_command) {
    const stub_folder stubs;
    stubs.program("sbatch", "head -c 3000000 /dev/zero | tr '\\0' 'x'; echo; echo done >&2");
    const auto a = run(stubs, {"sbatch"});
    EXPECT_EQ(a.end, run_end::exited);
    EXPECT_TRUE(a.truncated);
    EXPECT_LE(a.out.size(), 64U * 1024);
    EXPECT_LE(a.out.find('\n') == std::string::npos ? a.out.size() : a.out.find('\n'), 4096U);
    EXPECT_EQ(a.err, "done\n");
}

TEST(runner, a_grandchild_that_keeps_the_streams_open_does_not_hold_the_answer) {
    const stub_folder stubs;
    stubs.program("sbatch", "(trap '' HUP; sleep 300) & echo answer");
    const auto a = run(stubs, {"sbatch"});
    EXPECT_EQ(a.end, run_end::exited);
    EXPECT_EQ(a.out, "answer\n");
    EXPECT_LT(a.call_ms, 5000);
}

}  // namespace
