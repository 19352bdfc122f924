/* Implements a wall clock that jumps, for one host of a chaos run. The library is preloaded
 * (LD_PRELOAD) into the host's processes. It adds the content of the file CHAOS_CLOCK
 * (nanoseconds, 8 bytes) to the time of day that they read. The monotonic clock is unchanged,
 * since NTP or an operator would not change it either. The file is mapped, so a jump affects all
 * processes at once, between two readings. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static _Atomic int64_t none, *offset_ns = &none;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void)
{
    *(void **)&real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("CHAOS_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *at = mmap(NULL, sizeof *offset_ns, PROT_READ, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED)
        offset_ns = at;
    close(fd);
}

int clock_gettime(clockid_t id, struct timespec *t)
{
    /* another library's constructor may call this function before our constructor */
    if (!real_clock_gettime)
        *(void **)&real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    int r = real_clock_gettime(id, t);
    if (r != 0 || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE))
        return r;
    int64_t ns = t->tv_sec * INT64_C(1000000000) + t->tv_nsec + atomic_load(offset_ns);
    t->tv_sec = ns / 1000000000;
    t->tv_nsec = ns % 1000000000;
    return 0;
}

/* glibc's declaration differs only in the attribute nonnull. The time zone has not been used
 * since 1980. */
int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
    (void)zone;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    tv->tv_sec = t.tv_sec;
    tv->tv_usec = t.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (out)
        *out = t.tv_sec;
    return t.tv_sec;
}
