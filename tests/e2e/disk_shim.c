/* Makes the disk fail for tests/e2e/test_disk.py, which loads this library with LD_PRELOAD.
 * $COX_DISK_BELOW is a folder. The content of the file $COX_DISK_SAYS decides about writes,
 * syncs and new files below that folder. An errno's number makes them fail, "hold" makes them
 * wait, and an empty file has no effect. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { NO_SUCH = -1, SAYS_MAX = 16, HOLD_NS = 5000000 };

#define REAL(name) ((__typeof__(&(name)))dlsym(RTLD_NEXT, #name))

static bool is_below(const char *path)
{
    const char *below = getenv("COX_DISK_BELOW");
    size_t n = below ? strlen(below) : 0;
    return n > 0 && strncmp(path, below, n) == 0;
}

static bool is_fd_below(int fd)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    return n > 0 && is_below(path);
}

/* Reads the current order from the file. Returns 0, an errno, or NO_SUCH for "hold". */
static int says(void)
{
    char text[SAYS_MAX] = "";
    const char *file = getenv("COX_DISK_SAYS");
    int fd = file ? REAL(open)(file, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        (void)!read(fd, text, sizeof text - 1);
        close(fd);
    }
    return strncmp(text, "hold", 4) == 0 ? NO_SUCH : atoi(text);
}

/* Returns false when the call must fail; errno is then set. */
static bool may_go_on(void)
{
    const struct timespec t = {.tv_nsec = HOLD_NS};
    int e;
    while ((e = says()) == NO_SUCH)
        nanosleep(&t, NULL);
    errno = e;
    return e == 0;
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    return is_fd_below(fd) && !may_go_on() ? -1 : REAL(write)(fd, bytes, n);
}

ssize_t writev(int fd, const struct iovec *v, int n)
{
    return is_fd_below(fd) && !may_go_on() ? -1 : REAL(writev)(fd, v, n);
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    return is_fd_below(fd) && !may_go_on() ? -1 : REAL(pwrite)(fd, bytes, n, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t n, off64_t at)
{
    return is_fd_below(fd) && !may_go_on() ? -1 : REAL(pwrite64)(fd, bytes, n, at);
}

int fsync(int fd)
{
    return is_fd_below(fd) && !may_go_on() ? -1 : REAL(fsync)(fd);
}

int fdatasync(int fd)
{
    return is_fd_below(fd) && !may_go_on() ? -1 : REAL(fdatasync)(fd);
}

static int open_as(int (*real)(const char *, int, ...), const char *path, int flags, mode_t mode)
{
    if ((flags & (O_CREAT | O_WRONLY | O_RDWR)) != 0 && is_below(path) && !may_go_on())
        return -1;
    return real(path, flags, mode);
}

static mode_t mode_of(int flags, va_list ap)
{
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(ap, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t mode = mode_of(flags, ap);
    va_end(ap);
    return open_as(REAL(open), path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t mode = mode_of(flags, ap);
    va_end(ap);
    return open_as(REAL(open64), path, flags, mode);
}
