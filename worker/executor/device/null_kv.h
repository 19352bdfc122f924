#pragma once
/* What the null device has for a KV cache: for each block a hash of all ids up to its end, as a
 * real block follows from all ids up to its end. A run that begins behind positions which nobody
 * computed, or moved here, is found out. Compute thread, but for the view's memory (kv/view.h). */
#include "worker/kv/view.h"
#include "worker/sequences/sequences.h"

struct null_kv;
/* Of the group of all layers; NULL: no memory. */
struct null_kv *null_kv_new(uint32_t n_blocks, uint32_t block_tokens);
void null_kv_free(struct null_kv *k); /* NULL is fine */
void null_kv_view(const struct null_kv *k, struct kv_view *out);
/* A plan's copies, then its runs as they are going to be executed: checked in their order, and
 * filled as far as they have ids. STATUS_PROTOCOL: one builds on what is not there. */
MUST_USE enum status null_kv_run(struct null_kv *k, const struct msg_plan *p,
                                 struct sequence_runs runs, struct error *err);
/* After the tokens were sampled: draft tokens that were right are computed too. */
void null_kv_sampled(struct null_kv *k, struct sequence_runs runs);
