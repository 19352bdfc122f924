/* A process that packs holds the table's lock all the time, so its death lets the next process
 * begin. Everybody else holds the lock only for a moment.
 * Invariants: a process has a slot if and only if it offers its memory, and its descriptor stays
 * open as long as the slot. Every wait has an end: packing that stands still, or STALL_NS. */
#include "worker/share/share.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/host/share_file.h"
#include "common/host/share_folder.h"

#define STALL_NS (60 * NS_PER_S)
#define POLL_NS  (10 * NS_PER_MS)
#define LEAVE_NS (2 * NS_PER_S) /* longest wait for the table's lock at the end */

static void pause_ns(uint64_t ns)
{
    const struct timespec t = {.tv_nsec = (long)ns};
    (void)nanosleep(&t, NULL);
}

/* Waits until this process has locked the table. A table without a name is opened again. */
static enum status lock(struct share *s, const struct share_ask *ask, struct error *err)
{
    uint64_t stall_ns = ask->stall_ns ? ask->stall_ns : STALL_NS, since_ns = clock_mono_ns();
    uint64_t last = 0;
    for (;;) {
        uint64_t beat, done_bytes;
        enum status st = share_table_lock(&s->table, err);
        if (st == STATUS_CLOSED) {
            share_table_close(&s->table);
            TRY(share_table_open(&s->table, s->dir_fd, s->key, err));
        } else if (st != STATUS_AGAIN) {
            return st;
        }
        share_table_read_beat(&s->table, &beat, &done_bytes);
        if (beat != last) {
            last = beat;
            since_ns = clock_mono_ns();
        }
        if (clock_mono_ns() - since_ns > stall_ns)
            return error_set(err, STATUS_TIMEOUT,
                             "another process packs the same weights, but has made no progress for "
                             "%llu s. Look at the other workers of this model",
                             (unsigned long long)(stall_ns / NS_PER_S));
        if (st == STATUS_AGAIN) {
            if (ask->on_wait)
                ask->on_wait(ask->ctx, done_bytes);
            pause_ns(POLL_NS);
        }
    }
}

/* Maps the memory of a holder. STATUS_NOT_FOUND: nobody has the weights. */
static enum status attach(struct share *s, uint64_t n_bytes, struct error *err)
{
    struct share_holder holders[SHARE_MAX_HOLDERS];
    uint32_t n = share_table_holders(&s->table, holders);
    enum status st = STATUS_NOT_FOUND;
    for (uint32_t i = 0; i < n; i++) {
        struct error why;
        enum status one =
            share_memory_attach(&s->memory, holders[i].pid, holders[i].fd, s->key, n_bytes, &why);
        if (one == STATUS_OK)
            return share_table_enter(&s->table, s->memory.fd, err);
        if (one != STATUS_NOT_FOUND) /* the process has ended in this moment */
            st = error_set(err, one, "%s", why.text);
    }
    return st;
}

static enum status find_or_begin(struct share *s, const struct share_ask *ask, struct error *err)
{
    TRY(lock(s, ask, err));
    enum status st = attach(s, ask->n_bytes, err);
    s->is_packed = st == STATUS_OK;
    if (st == STATUS_NOT_FOUND) {
        TRY(share_memory_make(&s->memory, ask->n_bytes, err));
        return share_table_beat(&s->table, ++s->beat, 0, err); /* is there room for the table? */
    }
    share_table_unlock(&s->table);
    return st;
}

enum status share_open(const struct share_ask *ask, struct share **out, struct error *err)
{
    struct share *s = mem_zalloc(sizeof *s);
    *out = NULL;
    s->dir_fd = s->table.fd = s->memory.fd = -1;
    s->table.slot = -1;
    memcpy(s->key, ask->key, sizeof s->key);
    enum status st = share_probe(ask->option, ask->n_bytes, err);
    if (st == STATUS_OK)
        st = share_folder_open(ask->option, &s->dir_fd, err);
    if (st == STATUS_OK) {
        share_table_sweep(s->dir_fd);
        st = share_table_open(&s->table, s->dir_fd, s->key, err);
    }
    if (st == STATUS_OK)
        st = find_or_begin(s, ask, err);
    if (st != STATUS_OK) {
        share_close(s);
        return st;
    }
    *out = s;
    return STATUS_OK;
}

enum status share_reserve(struct share *s, struct device *d, struct error *err)
{
    while (!s->is_packed && s->memory.reserved < s->memory.n_bytes) {
        TRY(share_memory_reserve(&s->memory, d, err));
        share_beat(s, 0);
    }
    return STATUS_OK;
}

void share_beat(struct share *s, uint64_t done_bytes)
{
    struct error err;
    if (s->is_packed)
        return;
    if (share_table_beat(&s->table, ++s->beat, done_bytes, &err) != STATUS_OK)
        return; /* without signs of progress the others pack for themselves after a while */
}

enum status share_publish(struct share *s, struct error *err)
{
    enum status st = share_memory_seal(&s->memory, s->key, err);
    s->is_packed = true;
    if (st == STATUS_OK)
        st = share_table_enter(&s->table, s->memory.fd, err);
    if (st != STATUS_OK)
        share_table_leave(&s->table);
    share_table_unlock(&s->table);
    return st;
}

/* Leaves the table. If its lock cannot be had, the file stays until the next process sweeps. */
static void leave(struct share *s)
{
    uint64_t begin_ns = clock_mono_ns();
    struct error err;
    enum status st = s->table.is_locked ? STATUS_OK : STATUS_AGAIN;
    while (st == STATUS_AGAIN && clock_mono_ns() - begin_ns < LEAVE_NS) {
        st = share_table_lock(&s->table, &err);
        if (st == STATUS_AGAIN)
            pause_ns(POLL_NS);
    }
    if (st == STATUS_OK)
        share_table_leave(&s->table);
}

void share_close(struct share *s)
{
    if (!s)
        return;
    if (s->table.fd >= 0)
        leave(s);
    share_table_close(&s->table);
    share_memory_close(&s->memory);
    if (s->dir_fd >= 0)
        close(s->dir_fd);
    mem_free(s);
}
