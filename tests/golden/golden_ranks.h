#pragma once
/* The engines of all ranks of a group in one process, a thread each, joined over 127.0.0.1: what
 * several workers do, without their messages. One rank: its engine alone, on the caller's thread.
 * Not for several callers at once. */
#include "worker/engine/engine.h"

struct golden_ranks;

/* setup as for one engine: rank, stage and comm are filled in for each. n_threads are of each rank.
 * sockets: no shared memory between the ranks. */
MUST_USE enum status golden_ranks_open(const struct engine_setup *setup, bool sockets,
                                       struct golden_ranks **out, struct error *err);
void golden_ranks_close(struct golden_ranks *g); /* NULL is fine */
/* Of the engine that was opened as rank i. */
struct engine *golden_ranks_engine(const struct golden_ranks *g, uint32_t i);
struct comm *golden_ranks_comm(const struct golden_ranks *g, uint32_t i); /* NULL at one rank */

/* The adapter in a folder, on every rank; *adapter: what its rows carry. setup has max_loras. */
MUST_USE enum status golden_ranks_load(struct golden_ranks *g, uint64_t id, const char *folder,
                                       uint32_t *adapter, struct error *err);
/* On every rank. STATUS_INTERNAL: a stage's ranks' hidden states are not the same to the bit. */
MUST_USE enum status golden_ranks_forward(struct golden_ranks *g, const struct row_batch *b,
                                          struct error *err);
/* On every rank of the last stage; *out is its rank 0's. STATUS_INTERNAL: another rank has logits
 * too. */
MUST_USE enum status golden_ranks_logits(struct golden_ranks *g, const uint32_t *rows, uint32_t n,
                                         float **out, struct error *err);
/* Engine i takes rank (i + by) % tp, and all join anew. KV caches stay as they are: between
 * sequences only. */
MUST_USE enum status golden_ranks_turn(struct golden_ranks *g, uint32_t by, struct error *err);
/* The same with stages: each takes the layers of the one behind it, by so many. */
MUST_USE enum status golden_ranks_turn_stages(struct golden_ranks *g, uint32_t by,
                                              struct error *err);
/* The first engines, as many as there are ranks at that TP, are the group from now on. */
MUST_USE enum status golden_ranks_reshape(struct golden_ranks *g, uint32_t tp, struct error *err);
