#pragma once
/* Runs the engines of all ranks of a replica in one process, one thread each, joined over
 * 127.0.0.1. They work like several workers, without messages. A single rank runs its engine on
 * the caller's thread. Only one thread may call it at a time. */
#include "worker/engine/engine.h"

struct golden_ranks;

/* Opens the ranks. `setup` is that of one engine; rank, stage and comm are filled in for each
 * rank. n_threads apply to each rank. With `sockets` the ranks share no memory. */
MUST_USE enum status golden_ranks_open(const struct engine_setup *setup, bool sockets,
                                       struct golden_ranks **out, struct error *err);
void golden_ranks_close(struct golden_ranks *g); /* g may be NULL */
/* Returns the engine that was opened as rank i. */
struct engine *golden_ranks_engine(const struct golden_ranks *g, uint32_t i);
/* Returns the communicator of rank i, or NULL when there is only one rank. */
struct comm *golden_ranks_comm(const struct golden_ranks *g, uint32_t i);

/* Loads the adapter in a folder on every rank. *adapter becomes the number for the adapter's
 * rows. `setup` must have max_loras. */
MUST_USE enum status golden_ranks_load(struct golden_ranks *g, uint64_t id, const char *folder,
                                       uint32_t *adapter, struct error *err);
/* Runs a pass on every rank. Returns STATUS_INTERNAL when the hidden states of a stage's ranks
 * are not bitwise equal. */
MUST_USE enum status golden_ranks_forward(struct golden_ranks *g, const struct row_batch *b,
                                          struct error *err);
/* Computes logits on every rank of the last stage; *out has those of its rank 0. Returns
 * STATUS_INTERNAL when another rank has logits too. */
MUST_USE enum status golden_ranks_logits(struct golden_ranks *g, const uint32_t *rows, uint32_t n,
                                         float **out, struct error *err);
/* Gives engine i the rank (i + by) % tp; all engines join again. KV caches stay unchanged, so
 * call this function only between sequences. */
MUST_USE enum status golden_ranks_turn(struct golden_ranks *g, uint32_t by, struct error *err);
/* Gives each engine the layers of another stage, `by` places after its own. golden_ranks_turn
 * describes the rest. */
MUST_USE enum status golden_ranks_turn_stages(struct golden_ranks *g, uint32_t by,
                                              struct error *err);
/* Continues with only the first engines, as many as there are ranks at this TP. */
MUST_USE enum status golden_ranks_reshape(struct golden_ranks *g, uint32_t tp, struct error *err);
