/* Writes the step log's file in a thread of its own.
 *
 * The loop calls `on_write` of the sink, which appends to the buffer `front`. The thread swaps
 * the buffers and writes `back`, ten times a second or when the buffer is large. Waking the
 * thread in each turn would cost more than the turn's events. `on_fatal` writes both buffers
 * when the process dies of a signal.
 *
 * Invariants: buffers are swapped under the mutex; the disk is never written under it. Each
 * write names its offset in the file. The signal handler does not know which bytes the thread
 * has written, so it may write the same bytes again. */
#include "head/record/file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/path.h"
#include "common/host/thread.h"

enum { KEEP_BYTES = 1 << 20, WRITE_MAX = 1 << 20, MUCH_BYTES = 256 << 10 };
#define NAP_NS (100 * NS_PER_MS)

static const int fatal_signals[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL};
enum { N_FATAL = sizeof fatal_signals / sizeof *fatal_signals };

struct step_log_file {
    char path[4096];
    uint64_t max_bytes, n_bytes; /* limit of the file, and bytes of the file and both buffers */
    struct step_log *log;        /* log from which the signal handler gets the last bytes */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    /* The fields below are protected by the mutex. The signal handler reads them without it. */
    int fd;
    struct strbuf front, back; /* back: buffer that the thread uses while it writes */
    uint64_t back_at;          /* file offset of back's first byte; front follows it */
    int write_errno;
    bool ended, stop; /* ended: the sink has refused bytes */
};

/* The log is global, since a signal handler has no argument. A process has one log. */
static struct step_log_file *guarded;
static struct sigaction old_actions[N_FATAL];

/* ---- files ---- */

static enum status open_anew(struct step_log_file *f, struct error *err)
{
    char old[sizeof f->path + 2];
    struct stat st;
    if (lstat(f->path, &st) == 0) {
        if (!S_ISREG(st.st_mode))
            return error_set(
                err, STATUS_INVALID,
                "--step-log %s: the path exists but is not a regular file: name another path",
                f->path);
        snprintf(old, sizeof old, "%s.1", f->path);
        if (st.st_size > 0 && rename(f->path, old) != 0) {
            f->write_errno = errno;
            return error_set(err, path_is_wrong(f->write_errno) ? STATUS_INVALID : STATUS_IO,
                             "--step-log %s: cannot rename the old log to %s: %s", f->path, old,
                             strerror(f->write_errno));
        }
    }
    f->fd = open(f->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (f->fd < 0) {
        f->write_errno = errno;
        /* a wrong path stays wrong, so a supervisor must not start the head again */
        bool is_wrong = path_is_wrong(errno);
        return error_set(err, is_wrong ? STATUS_INVALID : STATUS_IO,
                         "--step-log %s: cannot open the file: %s%s", f->path,
                         strerror(f->write_errno), is_wrong ? ". Give another path" : "");
    }
    f->n_bytes = f->back_at = 0;
    f->ended = false;
    f->write_errno = 0;
    return STATUS_OK;
}

/* Returns 0 or errno, and is async-signal-safe. */
static int write_at(int fd, const char *bytes, size_t n, uint64_t at)
{
    while (n > 0) {
        ssize_t done = pwrite(fd, bytes, n < WRITE_MAX ? n : WRITE_MAX, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? errno : EIO;
        bytes += done;
        n -= (size_t)done;
        at += (uint64_t)done;
    }
    return 0;
}

/* ---- the thread ---- */

/* Waits, since more bytes are likely to arrive soon. A signal ends the wait early when the
 * buffer is large, or when the log ends. */
static void nap(struct step_log_file *f)
{
    uint64_t until = clock_mono_ns() + NAP_NS;
    struct timespec t = {(time_t)(until / NS_PER_S), (long)(until % NS_PER_S)};
    while (!f->stop && f->front.len < MUCH_BYTES &&
           pthread_cond_timedwait(&f->wake, &f->mutex, &t) != ETIMEDOUT)
        ;
}

static void *writer_main(void *arg)
{
    struct step_log_file *f = arg;
    thread_begin("step-log", 0);
    pthread_mutex_lock(&f->mutex);
    for (;;) {
        while (!f->stop && f->front.len == 0)
            pthread_cond_wait(&f->wake, &f->mutex);
        if (f->front.len == 0)
            break;
        nap(f);
        struct strbuf swap = f->back;
        f->back = f->front;
        f->front = swap;
        pthread_mutex_unlock(&f->mutex);
        int e = write_at(f->fd, f->back.ptr, f->back.len, f->back_at);
        pthread_mutex_lock(&f->mutex);
        f->back_at += f->back.len;
        strbuf_trim(&f->back, KEEP_BYTES);
        if (e != 0 && f->write_errno == 0)
            f->write_errno = e;
    }
    pthread_mutex_unlock(&f->mutex);
    return NULL;
}

/* ---- the sink ---- */

static enum status on_write(void *ctx, struct str bytes, struct error *err)
{
    struct step_log_file *f = ctx;
    enum status s = STATUS_OK;
    pthread_mutex_lock(&f->mutex);
    size_t before = f->front.len;
    if (f->max_bytes > 0 && f->n_bytes + bytes.len > f->max_bytes)
        s = error_set(
            err, STATUS_LIMIT,
            "recording stops: the step log has reached --step-log-max-bytes. Raise the option");
    else if (f->write_errno != 0)
        s = error_set(err, STATUS_IO, "%s", strerror(f->write_errno));
    else if (f->front.len + bytes.len > STEP_LOG_BACKLOG_MAX ||
             !strbuf_append(&f->front, bytes.ptr, bytes.len))
        s = error_set(err, STATUS_LIMIT,
                      "recording stops: the disk is too slow, and %zu bytes of the step log wait "
                      "to be written",
                      f->front.len);
    else if (before == 0 || (before < MUCH_BYTES && f->front.len >= MUCH_BYTES))
        pthread_cond_signal(&f->wake);
    f->ended = s != STATUS_OK;
    f->n_bytes += s == STATUS_OK ? bytes.len : 0;
    pthread_mutex_unlock(&f->mutex);
    return s;
}

/* Begins a new file when half of max_bytes is used, or when the log had ended. The function does
 * not wait for a thread that still writes. A later call will begin the file. */
static bool on_restart(void *ctx)
{
    struct step_log_file *f = ctx;
    struct error ignored;
    bool done = false;
    pthread_mutex_lock(&f->mutex);
    bool wanted = f->ended || (f->max_bytes > 0 && f->n_bytes > f->max_bytes / 2);
    if (wanted && f->front.len == 0 && f->back.len == 0) {
        int old = f->fd;
        done = open_anew(f, &ignored) == STATUS_OK;
        if (done)
            (void)close(old); /* `old` is -1 if the file could not be opened at the start */
        else
            f->fd = old;
    }
    pthread_mutex_unlock(&f->mutex);
    return done;
}

struct step_log_sink step_log_file_sink(struct step_log_file *f)
{
    return (struct step_log_sink){.ctx = f, .write = on_write, .restart = on_restart};
}

/* ---- fatal signals, open and close ---- */

static void on_fatal(int signum)
{
    struct step_log_file *f = guarded;
    for (int i = 0; i < N_FATAL; i++)
        /* a fault in this handler then ends the process */
        sigaction(fatal_signals[i], &old_actions[i], NULL);
    if (f && f->write_errno == 0) {
        uint64_t at = f->back_at;
        (void)write_at(f->fd, f->back.ptr, f->back.len, at);
        at += f->back.len;
        (void)write_at(f->fd, f->front.ptr, f->front.len, at);
        at += f->front.len;
        struct str last = f->log ? step_log_last_words(f->log) : (struct str){"", 0};
        (void)write_at(f->fd, last.ptr, last.len, at);
    }
    raise(signum);
}

void step_log_file_guard(struct step_log_file *f, struct step_log *l)
{
    struct sigaction a = {.sa_handler = on_fatal};
    sigemptyset(&a.sa_mask);
    f->log = l;
    guarded = f;
    for (int i = 0; i < N_FATAL; i++)
        sigaction(fatal_signals[i], &a, &old_actions[i]);
}

enum status step_log_file_open(const char *path, uint64_t max_bytes, struct step_log_file **out,
                               struct error *err)
{
    *out = NULL;
    if (strlen(path) + 3 > sizeof((struct step_log_file *)0)->path)
        return error_set(err, STATUS_INVALID,
                         "--step-log: the path is too long: choose a shorter one");
    struct step_log_file *f = mem_zalloc(sizeof *f);
    snprintf(f->path, sizeof f->path, "%s", path);
    f->max_bytes = max_bytes;
    f->fd = -1;
    enum status s = open_anew(f, err);
    if (s == STATUS_IO)
        /* the first write reports the error; the log restarts later like any ended log */
        s = STATUS_OK;
    if (s != STATUS_OK) {
        mem_free(f);
        return s;
    }
    strbuf_init(&f->front, STEP_LOG_BACKLOG_MAX + 1);
    strbuf_init(&f->back, STEP_LOG_BACKLOG_MAX + 1);
    pthread_mutex_init(&f->mutex, NULL);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&f->wake, &clock);
    pthread_condattr_destroy(&clock);
    if (pthread_create(&f->thread, NULL, writer_main, f) != 0) {
        close(f->fd);
        mem_free(f);
        return error_set(err, STATUS_IO,
                         "--step-log: cannot start the thread that writes the log. Raise the "
                         "process limit (ulimit -u)");
    }
    *out = f;
    return STATUS_OK;
}

void step_log_file_close(struct step_log_file *f)
{
    if (!f)
        return;
    if (guarded == f) {
        for (int i = 0; i < N_FATAL; i++)
            sigaction(fatal_signals[i], &old_actions[i], NULL);
        guarded = NULL;
    }
    pthread_mutex_lock(&f->mutex);
    f->stop = true;
    pthread_cond_signal(&f->wake);
    pthread_mutex_unlock(&f->mutex);
    pthread_join(f->thread, NULL);
    pthread_mutex_destroy(&f->mutex);
    pthread_cond_destroy(&f->wake);
    strbuf_fini(&f->front);
    strbuf_fini(&f->back);
    close(f->fd);
    mem_free(f);
}
