// Preloaded into a server: its clock is ahead of the machine's by the microseconds that stand in a shared file, and it goes on by those of
// SEAT_TEST_HURRY each time that somebody looks. The clocks that never step are left as they are.
//
// Raw system calls, for an allocator may ask for the time before anything is set up; that is where libfaketime gives up.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead_us;
static int64_t hurry_us;
static _Atomic int64_t hurried_us;

__attribute__((constructor)) static void map(void) {
    const char *path = getenv("SEAT_TEST_AHEAD");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *at = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) abort();
    close(file);
    const char *hurry = getenv("SEAT_TEST_HURRY");
    hurry_us = hurry ? atoll(hurry) : 0;
    ahead_us = at;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    long failed = syscall(SYS_clock_gettime, clock, time);
    if (failed || !ahead_us || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return (int)failed;
    int64_t us = time->tv_sec * INT64_C(1000000) + time->tv_nsec / 1000 + *ahead_us;
    us += hurried_us += hurry_us;
    time->tv_sec = us / 1000000;
    time->tv_nsec = us % 1000000 * 1000;
    return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    (void)zone;
    struct timespec now;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into) *into = now.tv_sec;
    return now.tv_sec;
}
