/* Implements a lock file for one model, on one machine or on a volume that several machines
 * share (lock.h has the scheme).
 * `pull_lock_acquire` makes the file with O_EXCL, or watches the holder's record until the
 * holder counts as dead. `beat` runs on its own thread and writes the record every two seconds.
 * Writers call `pull_lock_may_write`.
 * Invariants: the record identifies the holder of the lock. The lock is lost when the file at
 * its path is not the file that this process made. `mutex` guards the record and `is_ending`. A
 * lock is only taken over after a rename whose result is checked. Clocks of different machines
 * are not compared. */
#include "cli/pull/files/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/random.h"

enum { RECORD_MAX = 256, BEAT_S = 2, LOOK_MS = 100 };

/* ---- the record: NONCE BOOT BEAT HOST PID ---- */

struct record {
    char text[RECORD_MAX];
};

static void fill_identity(struct pull_lock *l)
{
    unsigned char random[16];
    random_secure(random, sizeof random);
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(l->nonce + 2 * i, 3, "%02x", random[i]);
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!f || fscanf(f, "%39s", l->boot) != 1)
        /* "-" never equals the boot id of another machine */
        snprintf(l->boot, sizeof l->boot, "-");
    if (f)
        (void)fclose(f);
    if (gethostname(l->host, sizeof l->host - 1) != 0 || !l->host[0])
        snprintf(l->host, sizeof l->host, "-");
}

static bool write_record(struct pull_lock *l)
{
    char text[RECORD_MAX];
    int n = snprintf(text, sizeof text, "%s %s %012" PRIu64 " %s %ld\n", l->nonce, l->boot, l->beat,
                     l->host, (long)getpid());
    bool ok = n > 0 && (size_t)n < sizeof text && pwrite(l->fd, text, (size_t)n, 0) == n;
    if (ok)
        atomic_store(&l->beat_ns, clock_mono_ns());
    return ok;
}

static void read_record(int fd, struct record *r)
{
    ssize_t n = pread(fd, r->text, sizeof r->text - 1, 0);
    r->text[n > 0 ? n : 0] = '\0';
}

static bool is_of_this_boot(const struct pull_lock *l, const struct record *r)
{
    char boot[40];
    return sscanf(r->text, "%*32s %39s", boot) == 1 && strcmp(boot, l->boot) == 0 &&
           strcmp(boot, "-") != 0;
}

/* ---- the holder ---- */

static bool is_ours(const struct pull_lock *l)
{
    struct stat ours, there;
    return fstat(l->fd, &ours) == 0 && stat(l->path, &there) == 0 && ours.st_ino == there.st_ino &&
           ours.st_dev == there.st_dev;
}

static void *beat(void *ctx)
{
    struct pull_lock *l = ctx;
    pthread_mutex_lock(&l->mutex);
    while (!l->is_ending) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += BEAT_S;
        (void)pthread_cond_timedwait(&l->wake, &l->mutex, &until);
        l->beat++;
        if (!l->is_ending && (!is_ours(l) || !write_record(l)))
            atomic_store(&l->is_lost,
                         /* a full disk stops the beat, but this process still has the lock */
                         !is_ours(l));
    }
    pthread_mutex_unlock(&l->mutex);
    return NULL;
}

static enum status hold(struct pull_lock *l, struct error *err)
{
    pthread_condattr_t by_monotonic;
    sigset_t all, before;
    (void)flock(l->fd,
                /* the flock is taken before the record is written, because a reader of the
                 * record may test the flock */
                LOCK_EX | LOCK_NB);
    if (!write_record(l)) {
        int saved = errno;
        (void)unlink(l->path);
        (void)close(l->fd);
        return error_set(err, saved == ENOSPC ? STATUS_LIMIT : STATUS_IO,
                         "cannot write the lock file %s: %s", l->path, strerror(saved));
    }
    pthread_condattr_init(&by_monotonic);
    pthread_condattr_setclock(&by_monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&l->wake, &by_monotonic);
    pthread_condattr_destroy(&by_monotonic);
    pthread_mutex_init(&l->mutex, NULL);
    sigfillset(&all); /* all signals are blocked here, since the main thread handles them */
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int rc = pthread_create(&l->thread, NULL, beat, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0)
        return STATUS_OK;
    (void)unlink(l->path);
    (void)close(l->fd);
    return error_set(err, STATUS_LIMIT, "cannot start the thread that renews the lock: %s",
                     strerror(rc));
}

bool pull_lock_is_lost(struct pull_lock *l)
{
    return atomic_load(&l->is_lost) || !is_ours(l);
}

bool pull_lock_may_write(struct pull_lock *l)
{
    return clock_mono_ns() - atomic_load(&l->beat_ns) <= l->trust_ns ? !atomic_load(&l->is_lost)
                                                                     : !pull_lock_is_lost(l);
}

void pull_lock_release(struct pull_lock *l)
{
    pthread_mutex_lock(&l->mutex);
    l->is_ending = true;
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->mutex);
    pthread_join(l->thread, NULL);
    pthread_cond_destroy(&l->wake);
    pthread_mutex_destroy(&l->mutex);
    if (is_ours(l))
        (void)unlink(l->path);
    (void)close(l->fd);
    mem_free(l->path);
    *l = (struct pull_lock){.fd = -1};
}

/* ---- waiting for the lock ---- */

struct watch {
    struct record seen;
    uint64_t since_ns; /* time when this record was first seen */
    bool has_said;
};

/* Renames the lock file of a dead holder, and reads the moved file. When the file is a new lock
 * that another process has just made, the file is put back. */
static void take_away(const struct pull_lock *l, const struct record *gone)
{
    char aside[PATH_MAX];
    struct record moved = {""};
    int n = snprintf(aside, sizeof aside, "%s.%s", l->path, l->nonce);
    if (n < 0 || (size_t)n >= sizeof aside || rename(l->path, aside) != 0)
        return;
    int fd = open(aside, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        read_record(fd, &moved);
        (void)close(fd);
    }
    bool is_new = strcmp(moved.text, gone->text) != 0;
    /* EEXIST: a third process has the lock, so the owner of the moved file has lost it */
    if (!is_new || link(aside, l->path) == 0 || errno == EEXIST)
        (void)unlink(aside);
    else
        /* on a file system without hard links, rename is used instead of link */
        (void)rename(aside, l->path);
}

static void say_waiting(const struct pull_lock_wait *w, struct watch *watch)
{
    char host[65] = "?", text[160];
    if (watch->has_said)
        return;
    watch->has_said = true;
    (void)sscanf(watch->seen.text, "%*s %*s %*s %64s", host);
    for (char *c = host; *c; c++)
        if (*c < 0x20 || *c == 0x7F || *c & 0x80)
            *c = '?';
    snprintf(text, sizeof text,
             "another `cox pull` of this model is running (on %s): waiting for it", host);
    w->say(text);
}

/* Checks whether the holder of the lock still runs. Takes the lock file of a dead or silent
 * holder away. Otherwise the function reports that this process waits. */
static void look(struct pull_lock *l, const struct pull_lock_wait *w, struct watch *watch)
{
    struct record r;
    uint64_t now = clock_mono_ns();
    int fd = open(l->path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        fd = open(l->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    read_record(fd, &r);
    if (watch->since_ns == 0 || strcmp(r.text, watch->seen.text) != 0) {
        watch->seen = r;
        watch->since_ns = now;
    }
    bool is_gone = is_of_this_boot(l, &r) && flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (is_gone || (double)(now - watch->since_ns) / 1e9 > w->silence_s)
        take_away(l, &r);
    else
        say_waiting(w, watch);
    (void)close(fd);
}

/* Keeps the new lock, unless the work is already done. The previous holder may have finished
 * after this process last checked. NFS may also show its files only now, because making a file
 * reads the folder again. */
static enum status hold_unless_done(struct pull_lock *l, const struct pull_lock_wait *w,
                                    struct error *err)
{
    TRY(hold(l, err));
    if (!w->is_done(w->ctx))
        return STATUS_OK;
    pull_lock_release(l);
    return STATUS_EXISTS;
}

enum status pull_lock_acquire(struct pull_lock *l, const char *path, const struct pull_lock_wait *w,
                              struct error *err)
{
    struct watch watch = {.since_ns = 0};
    *l = (struct pull_lock){.path = mem_strdup(path), .fd = -1};
    l->trust_ns = (uint64_t)(w->silence_s / 2 * 1e9);
    fill_identity(l);
    enum status s = STATUS_AGAIN;
    while (s == STATUS_AGAIN) {
        if (w->is_done(w->ctx))
            s = STATUS_EXISTS;
        else if (w->is_stopped())
            s = error_set(err, STATUS_CLOSED, "the download was stopped by a signal");
        else if ((l->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) >= 0)
            s = hold_unless_done(l, w, err);
        else if (errno != EEXIST)
            s = error_set(err, STATUS_IO, "cannot create the lock file %s: %s", path,
                          strerror(errno));
        if (s != STATUS_AGAIN)
            break;
        look(l, w, &watch);
        (void)nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
    }
    if (s != STATUS_OK) {
        mem_free(l->path);
        *l = (struct pull_lock){.fd = -1};
    }
    return s;
}
