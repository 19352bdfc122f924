/* bench/stalls preloads this library into a gateway. It measures each turn of the event loop in
 * the thread's CPU time and by the clock. A turn lasts from the end of one wait for events to
 * the beginning of the next. The file that COX_TURNS names holds the longest turn of each since
 * the script last wrote zeros there, and the sum of CPU times. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct longest {
    double own_ms, clock_ms, sum_ms;
};

typedef int wait_fn(int, struct epoll_event *, int, int, const sigset_t *);

static wait_fn *real;
static volatile struct longest *longest; /* NULL in programs other than the gateway */
static double own, wall; /* CPU time and clock at the beginning of the turn; 0 = no turn yet */

static double ms_of(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

__attribute__((constructor)) static void open_file(void)
{
    const char *path = getenv("COX_TURNS");
    real = (wait_fn *)dlsym(RTLD_NEXT, "epoll_pwait");
    if (!path || strcmp(program_invocation_short_name, "cox-gateway") != 0)
        return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *at = fd < 0 ? MAP_FAILED
                      : mmap(NULL, sizeof *longest, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    longest = at == MAP_FAILED ? NULL : at;
    if (fd >= 0)
        close(fd);
}

static void end_turn(void)
{
    const double a = ms_of(CLOCK_THREAD_CPUTIME_ID) - own, b = ms_of(CLOCK_MONOTONIC) - wall;
    longest->sum_ms += a;
    longest->own_ms = a > longest->own_ms ? a : longest->own_ms;
    longest->clock_ms = b > longest->clock_ms ? b : longest->clock_ms;
}

int epoll_pwait(int epfd, struct epoll_event *events, int n, int timeout, const sigset_t *mask)
{
    /* only the main thread is the gateway's loop, because ZeroMQ waits in other threads */
    const int is_loop = longest && syscall(SYS_gettid) == getpid();
    if (is_loop && own > 0)
        end_turn();
    int rc = real(epfd, events, n, timeout, mask);
    const int why = errno;
    if (is_loop) {
        own = ms_of(CLOCK_THREAD_CPUTIME_ID);
        wall = ms_of(CLOCK_MONOTONIC);
    }
    errno = why;
    return rc;
}

int epoll_wait(int epfd, struct epoll_event *events, int n, int timeout)
{
    return epoll_pwait(epfd, events, n, timeout, NULL);
}
