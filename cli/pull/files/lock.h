#pragma once
/* Implements a lock that lets one process at a time fetch a model, on one machine or on many
 * machines that share a volume. The other processes wait.
 * The lock is a file made with O_EXCL, which works on every file system, also on NFS. The holder
 * writes a count into the file every two seconds from its own thread. When the count does not
 * change for half a minute, by the waiting process's clock, the holder counts as dead. Clocks of
 * different machines are not compared.
 * On one machine the end of a holder is detected at once. The holder has a flock on the file,
 * which the kernel drops when the process ends. On other machines the flock is not used, since
 * NFS may be mounted without it.
 *
 * A process that was stopped for half a minute also counts as dead, and it may continue later.
 * Before each write, a process therefore checks the age of its last beat. When the beat is old,
 * it checks whether the lock file is still its own (pull_lock_may_write). */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "common/base/status.h"

struct pull_lock_wait {
    double silence_s; /* seconds without a beat until the holder counts as dead; usually 30 */
    bool (*is_stopped)(void);
    void (*say)(const char *text);
    /* called before each attempt; returns true when another process has done the work */
    bool (*is_done)(void *ctx);
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
    bool is_ending;    /* the thread must end; guarded by `mutex` */
    uint64_t trust_ns; /* age of a beat, above which a write first checks the file */
    atomic_ullong beat_ns;
    atomic_bool is_lost;
};

/* Waits for the lock. STATUS_OK: the lock is held until pull_lock_release. STATUS_EXISTS:
 * is_done returned true. */
MUST_USE enum status pull_lock_acquire(struct pull_lock *l, const char *path,
                                       const struct pull_lock_wait *w, struct error *err);
/* Returns true when another process has taken the lock because this process was stopped for too
 * long. */
bool pull_lock_is_lost(struct pull_lock *l);
/* Returns true when the lock is still held. It is called before each write. The lock file is
 * read only when the last beat is older than half of silence_s. */
bool pull_lock_may_write(struct pull_lock *l);
void pull_lock_release(struct pull_lock *l);
