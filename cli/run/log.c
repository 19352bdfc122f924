/* Writes the log of a run to a file of bounded size, and optionally to an echo, which is a
 * terminal or pipe. step.c passes the output of processes to `run_log_write`. keeper.c adds
 * lines with `run_log_say`. `put` rotates the file and holds bytes that the echo cannot accept
 * yet. Invariants: only the keeper writes the log. No function blocks on the echo. `held` has at
 * most RUN_LOG_HELD_BYTES. A full disk or a closed echo loses lines but never ends the run. Only
 * one thread calls these functions. */
#include "cli/run/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/mem.h"

/* PIECE_MAX limits the bytes per write to the file, and ECHO_PIECE the bytes per write to the
 * echo. A pipe accepts ECHO_PIECE bytes completely or not at all. */
enum { PIECE_MAX = 16384, ECHO_PIECE = 4096 };

static enum status open_file(struct run_log *l, struct error *err)
{
    l->fd = open(l->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    l->n_bytes = 0;
    return l->fd >= 0
               ? STATUS_OK
               : error_set(err, STATUS_IO, "cannot open the log %s: %s", l->path, strerror(errno));
}

/* Opens the echo so that writes do not block. O_NONBLOCK on a shared file description would
 * affect other processes, so a pipe or terminal is opened again. When that fails (another user's
 * terminal), writes are made in small pieces. */
static int open_echo(int fd)
{
    struct stat st;
    char path[64];
    if (fd < 0 || fstat(fd, &st) != 0)
        return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int own = S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode)
                  ? open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
                  : -1;
    return own >= 0 ? own : fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

enum status run_log_open(struct run_log *l, const char *folder, int echo_fd, struct error *err)
{
    *l = (struct run_log){.fd = -1, .echo_fd = open_echo(echo_fd), .max_bytes = RUN_LOG_MAX_BYTES};
    int n = snprintf(l->path, sizeof l->path, "%s/log", folder);
    if (n < 0 || (size_t)n + 2 >= sizeof l->path)
        return error_set(err, STATUS_INVALID,
                         "the path of the log in %s is too long. Give a shorter --runs-dir",
                         folder);
    return open_file(l, err);
}

/* Rotates the log; the older log.1 is lost. On a full disk lines are lost, but the run
 * continues. */
static void turn_over(struct run_log *l)
{
    char before[sizeof l->path + 2];
    struct error err;
    snprintf(before, sizeof before, "%s.1", l->path);
    close(l->fd);
    (void)rename(l->path, before);
    (void)open_file(l, &err);
}

static void write_all(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t w = write(fd, bytes, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return;
        bytes += w;
        n -= (size_t)w;
    }
}

static ssize_t write_now(int fd, const char *bytes, size_t n)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    if (poll(&p, 1, 0) <= 0)
        return 0;
    n = n < ECHO_PIECE ? n : ECHO_PIECE;
    ssize_t w = send(fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (w < 0 && errno == ENOTSOCK)
        w = write(fd, bytes, n);
    return w < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : w;
}

bool run_log_is_held(const struct run_log *l)
{
    return l->n_held > 0;
}

/* Writes held bytes to the echo. A closed echo does not end the run. */
void run_log_echo(struct run_log *l)
{
    size_t at = 0;
    ssize_t w = 0;
    while (at < l->n_held && (w = write_now(l->echo_fd, l->held + at, l->n_held - at)) > 0)
        at += (size_t)w;
    if (w < 0) {
        close(l->echo_fd);
        l->echo_fd = -1;
        at = l->n_held;
    }
    l->n_held -= at;
    if (l->n_held > 0)
        memmove(l->held, l->held + at, l->n_held);
}

static void put_on_echo(struct run_log *l, const char *bytes, size_t n)
{
    if (l->echo_fd < 0)
        return;
    if (!l->held)
        l->held = mem_alloc(RUN_LOG_HELD_BYTES);
    if (n <= RUN_LOG_HELD_BYTES - l->n_held) {
        memcpy(l->held + l->n_held, bytes, n);
        l->n_held += n;
    }
    run_log_echo(l);
}

static void keep_last(struct run_log *l, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '\n') {
            l->last_is_whole = true;
            continue;
        }
        if (l->last_is_whole)
            l->n_last = 0;
        l->last_is_whole = false;
        if (l->n_last < sizeof l->last - 1)
            l->last[l->n_last++] = bytes[i];
    }
    l->last[l->n_last] = '\0';
}

/* Returns true when the file is open. When the file could not be made, for example on a full
 * disk, the function retries at most once a second. */
static bool is_open(struct run_log *l)
{
    struct error err;
    const uint64_t now = clock_mono_ns();
    if (l->fd < 0 && l->path[0] && now >= l->retry_ns) {
        l->retry_ns = now + NS_PER_S;
        (void)open_file(l, &err);
    }
    return l->fd >= 0;
}

static void put_in_file(struct run_log *l, const char *bytes, size_t n)
{
    if (is_open(l))
        write_all(l->fd, bytes, n);
    l->n_bytes += (long long)n;
    l->in_line = bytes[n - 1] != '\n';
}

/* Writes bytes to echo and file. The file is rotated at the end of a line, so that no line is in
 * two files. A line without an end is split. */
static void put(struct run_log *l, const char *bytes, size_t n)
{
    if (n == 0)
        return;
    put_on_echo(l, bytes, n);
    if (l->n_bytes > 0 && l->n_bytes + (long long)n > l->max_bytes - PIECE_MAX) {
        const char *end = l->in_line ? memchr(bytes, '\n', n) : NULL;
        size_t first = end ? (size_t)(end - bytes) + 1 : 0;
        if (first > 0)
            put_in_file(l, bytes, first);
        if (l->fd >= 0)
            turn_over(l);
        bytes += first;
        n -= first;
    }
    if (n > 0)
        put_in_file(l, bytes, n);
}

void run_log_write(struct run_log *l, const char *bytes, size_t n)
{
    put(l, bytes, n);
    keep_last(l, bytes, n);
}

void run_log_say(struct run_log *l, const char *fmt, ...)
{
    char line[1200];
    va_list ap;
    int head = snprintf(line, sizeof line, "%srun        | ", l->in_line ? "\n" : "");
    va_start(ap, fmt);
    int n = vsnprintf(line + head, sizeof line - (size_t)head - 1, fmt, ap);
    va_end(ap);
    size_t len = (size_t)head + (size_t)(n < 0 ? 0 : n);
    if (len > sizeof line - 2)
        len = sizeof line - 2;
    line[len++] = '\n';
    put(l, line, len);
}

void run_log_close(struct run_log *l)
{
    if (l->fd >= 0)
        close(l->fd);
    if (l->echo_fd >= 0)
        close(l->echo_fd);
    mem_free(l->held);
    l->held = NULL;
    l->n_held = 0;
    l->fd = l->echo_fd = -1;
    l->path[0] = '\0'; /* an empty path: is_open() does not open the file again */
}
