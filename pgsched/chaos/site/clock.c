// A wall clock that can be moved while a process runs; the process loads this library with LD_PRELOAD.
//
// The file that PGSCHED_CHAOS_CLOCK names holds the number of seconds by which the clock is ahead. Every process maps
// the file into its memory. Reading the number takes no lock and allocates nothing, so it is safe in signal handlers,
// where a server reads the clock too. Monotonic clocks do not change, because no machine moves them.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long *ahead_s;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("PGSCHED_CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(0, sizeof *ahead_s, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED)
        ahead_s = mapped;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
    int failed = syscall(SYS_clock_gettime, clock, at);
    if (!failed && ahead_s && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        at->tv_sec += *ahead_s;
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
    int failed = syscall(SYS_gettimeofday, at, zone);
    if (!failed && at && ahead_s)
        at->tv_sec += *ahead_s;
    return failed;
}

time_t time(time_t *at)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}
