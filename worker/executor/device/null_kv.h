#pragma once
/* Keeps the KV cache of the null device. For each block it holds a hash of all ids up to the
 * block's end, since the content of a real block also depends on all of them. The code detects a
 * run whose earlier positions were neither computed here nor moved here. All functions run on
 * the compute thread. The memory of the view is the exception (kv/view.h). */
#include "worker/kv/view.h"
#include "worker/sequences/sequences.h"

struct null_kv;
/* Makes a cache for one KV group that has all layers. Returns NULL when there is no memory. */
struct null_kv *null_kv_new(uint32_t n_blocks, uint32_t block_tokens);
void null_kv_free(struct null_kv *k); /* `k` may be NULL */
void null_kv_view(const struct null_kv *k, struct kv_view *out);
/* Executes the plan's copies, then checks the runs in order and fills their blocks as far as
 * they have ids. STATUS_PROTOCOL: a run builds on a block that was not filled. */
MUST_USE enum status null_kv_run(struct null_kv *k, const struct msg_plan *p,
                                 struct sequence_runs runs, struct error *err);
/* Adds accepted draft tokens to the computed positions. Call it after sampling. */
void null_kv_sampled(struct null_kv *k, struct sequence_runs runs);
