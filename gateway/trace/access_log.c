/* Writes the access log. The loop appends lines to one buffer. A thread writes the other buffer,
 * ten times a second or when there is much to write.
 * No function waits for a reader. A pipe is opened again with O_NONBLOCK, so that the file
 * description shared with other processes keeps its flags.
 * Before each write the file is checked. When the file was moved or removed (by logrotate for
 * instance), it is created again at its path.
 * `mutex` guards the fields marked so. All other fields belong to the thread. WAITING_BYTES
 * bounds the waiting lines. Lines beyond this limit are lost and counted. */
#include "gateway/trace/access_log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/metrics.h"
#include "common/base/path.h"
#include "common/host/thread.h"

enum {
    WAITING_BYTES = 4 << 20,
    MUCH_BYTES = 64 << 10,
    PIPE_BYTES = 4096,    /* most bytes that a ready pipe accepts without blocking */
    FILE_BYTES = 1 << 20, /* most bytes of one write to a file */
    READY_MS = 100,
    KEEP_BYTES = 256 << 10,
};
#define NAP_NS   (100 * NS_PER_MS)
#define RETRY_NS NS_PER_S
#define TELL_NS  (60 * NS_PER_S) /* shortest time between two messages about one reason */
#define LAST_NS  (2 * NS_PER_S)

struct access_log {
    const char *path;
    struct metric *lost, *up;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake, over;
    struct strbuf front; /* lines that wait; guarded by the mutex, like the next three fields */
    bool stop, done;     /* `done`: the thread has ended */
    bool left;           /* close stopped waiting for the thread, and the metrics are gone */
    /* the following fields are used by the thread only */
    struct strbuf back;
    int fd;                  /* descriptor of the log; -1 = closed */
    size_t piece;            /* most bytes of one write */
    bool is_stdout, in_line; /* `in_line`: the last line was cut off */
    bool is_lost, told;      /* `is_lost`: the last write failed; `told`: the failure was logged */
    int why;                 /* errno of the last message */
    uint64_t told_ns, open_ns; /* times of the last message, and of the next attempt to open */
};

/* ---- the file ---- */

static int open_stdout(void)
{
    struct stat st;
    int fd = -1;
    if (fstat(STDOUT_FILENO, &st) == 0 && S_ISFIFO(st.st_mode))
        fd = open("/proc/self/fd/1", O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    return fd >= 0 ? fd : fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
}

/* Opens the log's file. Returns 0 or errno. */
static int open_file(struct access_log *l)
{
    struct stat st;
    const int flags = O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    l->open_ns = clock_mono_ns() + RETRY_NS;
    l->fd = l->is_stdout ? open_stdout() : open(l->path, flags, 0666);
    if (l->fd < 0)
        return errno;
    l->piece = fstat(l->fd, &st) == 0 && S_ISREG(st.st_mode) ? FILE_BYTES : PIPE_BYTES;
    return 0;
}

static void close_file(struct access_log *l)
{
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
    l->in_line = false;
}

/* Returns true when the path points to another file or to no file. */
static bool has_moved(const struct access_log *l)
{
    struct stat ours, there;
    return !l->is_stdout && fstat(l->fd, &ours) == 0 && S_ISREG(ours.st_mode) &&
           (stat(l->path, &there) != 0 || there.st_dev != ours.st_dev ||
            there.st_ino != ours.st_ino);
}

/* Opens or reopens the file if needed. Returns 0 or errno. */
static int make_ready(struct access_log *l)
{
    if (l->fd >= 0 && has_moved(l)) {
        close_file(l);
        l->open_ns = 0;
    }
    if (l->fd >= 0)
        return 0;
    return clock_mono_ns() >= l->open_ns ? open_file(l) : l->why ? l->why : EAGAIN;
}

/* ---- the thread ---- */

static bool is_set(struct access_log *l, const bool *flag)
{
    pthread_mutex_lock(&l->mutex);
    const bool set = *flag;
    pthread_mutex_unlock(&l->mutex);
    return set;
}

/* Writes up to the end of a line, because other processes write to the same pipe. */
static ssize_t write_piece(const struct access_log *l, const char *bytes, size_t n)
{
    if (n > l->piece) {
        const char *end = memrchr(bytes, '\n', l->piece);
        n = end ? (size_t)(end - bytes) + 1 : l->piece;
    }
    ssize_t w = send(l->fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    return w < 0 && errno == ENOTSOCK ? write(l->fd, bytes, n) : w;
}

/* Writes all bytes of a buffer. Returns 0 or errno; *done is the number of bytes written. The
 * function waits for a slow reader until the other buffer is full. */
static int write_all(struct access_log *l, struct str bytes, size_t *done)
{
    while (*done < bytes.len) {
        struct pollfd p = {.fd = l->fd, .events = POLLOUT};
        if (poll(&p, 1, READY_MS) == 0) {
            if (is_set(l, &l->stop))
                return EAGAIN;
            continue;
        }
        ssize_t w = write_piece(l, bytes.ptr + *done, bytes.len - *done);
        if (w < 0 && errno != EINTR && errno != EAGAIN)
            return errno;
        *done += w > 0 ? (size_t)w : 0;
    }
    return 0;
}

static double lines_in(struct str s)
{
    double n = 0;
    for (const char *at = s.ptr, *end = s.ptr + s.len;
         at < end && (at = memchr(at, '\n', (size_t)(end - at))) != NULL; at++)
        n++;
    return n;
}

/* Logs a failure once per reason, and again when the reason returns after a minute. */
static void tell(struct access_log *l, int e)
{
    const uint64_t now = clock_mono_ns();
    if (e == 0 && l->is_lost && l->told)
        log_info("access_log_found", "file=%s", log_quote(l->path));
    const bool tells =
        e != 0 && (l->told_ns == 0 || e != l->why || (!l->is_lost && now - l->told_ns >= TELL_NS));
    if (tells) {
        log_error("access_log_lost", "file=%s why=%s", log_quote(l->path), log_quote(strerror(e)));
        l->told_ns = now;
        l->why = e;
    }
    l->told = e != 0 && (l->told || tells);
    l->is_lost = e != 0;
    metric_set(l->up, e == 0);
}

static void write_back(struct access_log *l)
{
    size_t done = 0, end = 0;
    int e = make_ready(l);
    if (e == 0 && l->in_line)
        e = write_all(l, STR("\n"), &end);
    l->in_line = l->in_line && end == 0;
    const struct str text = strbuf_str(&l->back);
    if (e == 0)
        e = write_all(l, text, &done);
    if (is_set(l, &l->left))
        return;
    if (done > 0)
        l->in_line = text.ptr[done - 1] != '\n';
    metric_add(l->lost, lines_in((struct str){text.ptr + done, text.len - done}));
    strbuf_trim(&l->back, KEEP_BYTES);
    tell(l, e);
    if (e != 0 && e != ENOSPC && e != EDQUOT && e != EFBIG && l->fd >= 0 && !l->is_stdout)
        close_file(l);
}

/* Waits a moment, because more lines are likely to arrive. */
static void nap(struct access_log *l)
{
    const uint64_t until = clock_mono_ns() + NAP_NS;
    const struct timespec t = {(time_t)(until / NS_PER_S), (long)(until % NS_PER_S)};
    while (!l->stop && l->front.len < MUCH_BYTES &&
           pthread_cond_timedwait(&l->wake, &l->mutex, &t) != ETIMEDOUT)
        ;
}

static void *thread_main(void *ctx)
{
    struct access_log *l = ctx;
    thread_begin("access-log", 0);
    pthread_mutex_lock(&l->mutex);
    for (;;) {
        while (!l->stop && l->front.len == 0)
            pthread_cond_wait(&l->wake, &l->mutex);
        if (l->front.len == 0)
            break;
        nap(l);
        struct strbuf swap = l->back;
        l->back = l->front;
        l->front = swap;
        pthread_mutex_unlock(&l->mutex);
        write_back(l);
        pthread_mutex_lock(&l->mutex);
    }
    l->done = true;
    pthread_cond_signal(&l->over);
    pthread_mutex_unlock(&l->mutex);
    return NULL;
}

/* ---- the loop ---- */

void access_log_add(struct access_log *l, struct str line)
{
    pthread_mutex_lock(&l->mutex);
    const size_t before = l->front.len;
    const bool fits = before + line.len <= WAITING_BYTES;
    if (fits)
        strbuf_append_str(&l->front, line);
    if (before == 0 || (before < MUCH_BYTES && l->front.len >= MUCH_BYTES))
        pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->mutex);
    if (!fits)
        metric_add(l->lost, 1);
}

static void init_locks(struct access_log *l)
{
    pthread_condattr_t mono;
    pthread_mutex_init(&l->mutex, NULL);
    pthread_condattr_init(&mono);
    pthread_condattr_setclock(&mono, CLOCK_MONOTONIC);
    pthread_cond_init(&l->wake, &mono);
    pthread_cond_init(&l->over, &mono);
    pthread_condattr_destroy(&mono);
}

static void free_log(struct access_log *l)
{
    close_file(l);
    strbuf_fini(&l->front);
    strbuf_fini(&l->back);
    pthread_cond_destroy(&l->wake);
    pthread_cond_destroy(&l->over);
    pthread_mutex_destroy(&l->mutex);
    mem_free(l);
}

enum status access_log_open(const char *path, struct metrics *registry, struct access_log **out,
                            struct error *err)
{
    struct access_log *l = mem_zalloc(sizeof *l);
    *l = (struct access_log){.path = path, .is_stdout = strcmp(path, "-") == 0, .fd = -1};
    init_locks(l);
    strbuf_init(&l->front, WAITING_BYTES + 1);
    strbuf_init(&l->back, WAITING_BYTES + 1);
    int e = open_file(l);
    if (path_is_wrong(e)) {
        free_log(l);
        return error_set(
            err, STATUS_INVALID,
            "--access-log %s: %s. Name a file that this user may write, in a folder that exists",
            path, strerror(e));
    }
    l->lost = metrics_counter(registry, "coxswain_gateway_access_log_lines_lost_total", "",
                              "Lines of the access log that found no room: its disk was full or "
                              "away, its reader slow. With --access-log.");
    l->up = metrics_gauge(registry, "coxswain_gateway_access_log_up", "",
                          "1 while the access log can be written. With --access-log.");
    tell(l, e);
    if (pthread_create(&l->thread, NULL, thread_main, l) != 0) {
        free_log(l);
        return error_set(
            err, STATUS_LIMIT,
            "cannot start a thread for --access-log: raise the process limit (ulimit -u)");
    }
    *out = l;
    return STATUS_OK;
}

/* Closes the log. A write that hangs in the kernel is abandoned with its memory, because the
 * process ends. */
void access_log_close(struct access_log *l)
{
    if (!l)
        return;
    const uint64_t until = clock_mono_ns() + LAST_NS;
    const struct timespec t = {(time_t)(until / NS_PER_S), (long)(until % NS_PER_S)};
    pthread_mutex_lock(&l->mutex);
    l->stop = true;
    pthread_cond_signal(&l->wake);
    while (!l->done && pthread_cond_timedwait(&l->over, &l->mutex, &t) != ETIMEDOUT)
        ;
    const bool done = l->done;
    l->left = !done;
    pthread_mutex_unlock(&l->mutex);
    if (!done) {
        pthread_detach(l->thread);
        return;
    }
    pthread_join(l->thread, NULL);
    free_log(l);
}
