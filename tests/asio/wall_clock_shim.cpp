// SPDX-License-Identifier: Apache-2.0
// For LD_PRELOAD: moves a program's wall clock by the seconds that the file WALL_CLOCK_OFFSET_FILE holds; the monotonic
// clock stays as it is.
#include <cstdlib>
#include <ctime>

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

namespace {

long offset_s() noexcept {
    const char* path = std::getenv("WALL_CLOCK_OFFSET_FILE");
    const int fd = path != nullptr ? ::open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return 0;
    char text[32] = {};
    const ssize_t got = ::read(fd, text, sizeof text - 1);
    ::close(fd);
    return got > 0 ? std::strtol(text, nullptr, 10) : 0;
}

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
    const auto code = static_cast<int>(::syscall(SYS_clock_gettime, clock, now));
    if (code == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += offset_s();
    return code;
}

extern "C" int gettimeofday(timeval* now, void*) noexcept {
    timespec precise{};
    clock_gettime(CLOCK_REALTIME, &precise);
    *now = {precise.tv_sec, precise.tv_nsec / 1000};
    return 0;
}

extern "C" time_t time(time_t* out) noexcept {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    if (out != nullptr) *out = now.tv_sec;
    return now.tv_sec;
}
