#pragma once
/* Keeps spare worker processes, which have no model yet (`cox-worker spare`). A worker that starts
 * takes one over instead of a new process, if the spare has the worker's device, CPUs and log. Only
 * the loop thread calls these functions. */
#include "common/loop/child.h"

struct spares;
struct spares_options {
    struct loop *loop;
    uint32_t n_each;  /* spares for each device or binding; above 0 */
    uint32_t calm_ms; /* time after the start of a worker until new spares are made */
    /* longest wait of the loop for a spare that takes a command line; healthy ones need less than
     * a millisecond */
    uint32_t answer_ms;
    /* Receives a line for the log: of a spare, or about the spares. */
    void (*on_line)(void *ctx, const char *line, size_t n);
    void *ctx;
};

struct spares *spares_new(const struct spares_options *o);
/* Keeps spares for workers such as this one from now on. `argv` is that of a worker. */
void spares_expect(struct spares *s, const char *const *argv);
/* Hands the command line `o->argv` over to a spare. Its later events go to `o`. Returns NULL when
 * no spare fits or takes it; the caller then starts a process. A spare that does not take it in
 * time is killed. `s` may be NULL. */
struct loop_child *spares_take(struct spares *s, const struct loop_child_options *o);
/* Ends all spares, and starts no more. `s` may be NULL. */
void spares_stop(struct spares *s);
void spares_free(struct spares *s); /* after spares_stop; `s` may be NULL */
