#pragma once
/* One process at a time fetches a model, on one machine or on many that share a volume; the others
 * wait. The lock is a file made with O_EXCL, which every file system decides alike, NFS too.
 * Whoever holds it writes a count into it every two seconds, from a thread of its own: a count that
 * stands still for half a minute, by the clock of who looks on, is a holder that is gone. No two
 * clocks are compared. On one machine that is known at once: the holder has a flock on the file,
 * which ends with its process; on other machines flock is asked for nothing, since NFS may be
 * mounted without.
 *
 * Who was stopped for so long is taken for gone and may wake up: before each write it looks whether
 * its last beat was long ago, and then whether the file is still its own (pull_lock_may_write). */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "common/base/status.h"

struct pull_lock_wait {
    double silence_s; /* 30 */
    bool (*is_stopped)(void);
    void (*say)(const char *text);
    bool (*is_done)(void *ctx); /* another one may have done it meanwhile; asked before each look */
    void *ctx;
};

struct pull_lock {
    char *path;
    int fd;
    char nonce[33], boot[40], host[65];
    uint64_t beat;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool is_ending;    /* under mutex */
    uint64_t trust_ns; /* how old a beat may be until the file is looked at before a write */
    atomic_ullong beat_ns;
    atomic_bool is_lost;
};

/* OK: held, until pull_lock_release. EXISTS: is_done says that there is nothing left to do. */
MUST_USE enum status pull_lock_acquire(struct pull_lock *l, const char *path,
                                       const struct pull_lock_wait *w, struct error *err);
/* Has another one taken it, because this process was stopped for too long? */
bool pull_lock_is_lost(struct pull_lock *l);
/* Before a write: the same, looked at only when the last beat is older than half of the silence. */
bool pull_lock_may_write(struct pull_lock *l);
void pull_lock_release(struct pull_lock *l);
