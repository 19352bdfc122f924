#pragma once
/* Runs ranks as threads of one process, each with a comm of its own. cmocka's asserts end in a
 * longjmp, which must not happen in these threads. Each thread records its first fault, and the
 * main thread reads the faults after the threads have ended. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/comm/comm.h"

struct rank {
    struct comm *comm;
    uint32_t rank, n_ranks;
    void (*body)(struct rank *r); /* runs in a joined group; may call `comm_leave` */
    void *ctx;
    uint64_t term_epoch;
    uint8_t id[COMM_ID_BYTES];
    struct str addresses[COMM_MAX_RANKS];
    uint32_t join_timeout_ms;
    bool left; /* set by a body that has called `comm_leave` */
    enum status joined;
    struct error err;
    char wrong[1024]; /* first fault; empty = none */
    pthread_t thread;
};

#define EXPECT(r, cond, ...)                                                                       \
    do {                                                                                           \
        if (!(cond))                                                                               \
            rank_note(r, #cond, __VA_ARGS__);                                                      \
    } while (0)

static void PRINTF_LIKE(3, 4) rank_note(struct rank *r, const char *what, const char *fmt, ...)
{
    va_list args;
    if (r->wrong[0])
        return;
    int n = snprintf(r->wrong, sizeof r->wrong, "rank %u: %.200s: ", r->rank, what);
    va_start(args, fmt);
    vsnprintf(r->wrong + n, sizeof r->wrong - (size_t)n, fmt, args);
    va_end(args);
}

static void ranks_open(struct rank *ranks, uint32_t n, const struct comm_options *o)
{
    struct comm_options own = *o;
    struct error err;
    if (!own.host)
        own.host = "127.0.0.1";
    for (uint32_t r = 0; r < n; r++) {
        ranks[r] = (struct rank){.rank = r, .n_ranks = n, .term_epoch = 1};
        if (comm_open(&own, &ranks[r].comm, &err) != STATUS_OK) {
            fprintf(stderr, "comm_open: %s\n", err.text);
            abort();
        }
    }
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t i = 0; i < n; i++)
            ranks[r].addresses[i] = str_from(comm_address(ranks[i].comm));
}

static void ranks_close(struct rank *ranks, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++)
        comm_close(ranks[r].comm);
}

static void ranks_form(struct rank *ranks, uint32_t n, uint64_t term_epoch)
{
    uint8_t id[COMM_ID_BYTES];
    comm_make_id(id);
    for (uint32_t r = 0; r < n; r++) {
        ranks[r].term_epoch = term_epoch;
        memcpy(ranks[r].id, id, sizeof id);
        ranks[r].left = false;
        ranks[r].wrong[0] = '\0';
    }
}

static void rank_join(struct rank *r)
{
    r->err.text[0] = '\0';
    r->joined = comm_join(r->comm,
                          &(struct comm_group){.term_epoch = r->term_epoch,
                                               .rank = r->rank,
                                               .n_ranks = r->n_ranks,
                                               .addresses = r->addresses,
                                               .id = {r->id, sizeof r->id},
                                               .timeout_ms = r->join_timeout_ms},
                          &r->err);
}

static void *rank_main(void *arg)
{
    struct rank *r = arg;
    rank_join(r);
    if (r->body) {
        EXPECT(r, r->joined == STATUS_OK, "join: %s", r->err.text);
        if (r->joined == STATUS_OK)
            r->body(r);
        if (!r->left)
            comm_leave(r->comm);
    }
    return NULL;
}

/* Starts the ranks. Without a body they join and stay in the group. */
static void ranks_start(struct rank *ranks, uint32_t n, void (*body)(struct rank *r), void *ctx)
{
    for (uint32_t r = 0; r < n; r++) {
        ranks[r].body = body;
        ranks[r].ctx = ctx;
        if (pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r]) != 0)
            abort();
    }
}

/* Waits for all ranks and prints their faults. Returns true when there was none. */
static bool ranks_wait(struct rank *ranks, uint32_t n)
{
    bool fine = true;
    for (uint32_t r = 0; r < n; r++)
        pthread_join(ranks[r].thread, NULL);
    for (uint32_t r = 0; r < n; r++)
        if (ranks[r].wrong[0]) {
            fprintf(stderr, "%s\n", ranks[r].wrong);
            fine = false;
        }
    return fine;
}

/* Forms one group of n ranks, runs the body on each and closes them. Returns false after a
 * fault. */
static inline bool ranks_run(uint32_t n, const struct comm_options *o, void (*body)(struct rank *r),
                             void *ctx)
{
    struct rank ranks[COMM_MAX_RANKS];
    ranks_open(ranks, n, o);
    ranks_form(ranks, n, 7);
    ranks_start(ranks, n, body, ctx);
    bool fine = ranks_wait(ranks, n);
    ranks_close(ranks, n);
    return fine;
}
