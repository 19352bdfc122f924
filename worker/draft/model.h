#pragma once
/* Draft tokens for speculative decoding by a second, smaller model of the same vocabulary (vLLM's
 * method draft_model; Leviathan et al. 2023): greedily, one row of it for each draft token.
 *
 * It runs whole on rank 0, and every row that the target runs, so that its KV cache holds what the
 * target's does: a block of the target's full-attention group has its twin here, under the same
 * number and in the same tables. What the head does with that group's blocks (prefix hits, copies,
 * preemption) holds for the twins, and nobody has to know of them. The draft's own windows are
 * masks over those tables. Bad KV here makes bad draft tokens, never other tokens.
 *
 * All memory is allocated by draft_model_load; compute thread only from then on. */
#include "worker/engine/engine.h"
#include "worker/sequences/sequences.h"

struct draft_model;
/* Measures it. model: as --model takes it; s: what the target was measured with, which is the
 * device's owner and outlives this. STATUS_UNSUPPORTED names what does not fit together. */
MUST_USE enum status draft_model_open(const char *model, const struct engine_setup *s,
                                      const struct engine *target, struct draft_model **out,
                                      struct error *err);
void draft_model_close(struct draft_model *m); /* NULL is fine */
struct engine_beside draft_model_needs(const struct draft_model *m);
/* The target is loaded: as many blocks as it has. */
MUST_USE enum status draft_model_load(struct draft_model *m, const struct engine *target,
                                      struct error *err);
/* Adds its twins to the target's blocks. */
void draft_model_view(const struct draft_model *m, struct kv_view *out);
const struct engine *draft_model_engine(const struct draft_model *m);

/* How many draft tokens each run is going to have, into n_drafted: on every rank the same. */
void draft_model_plan(const struct draft_model *m, struct sequence_runs runs, uint32_t n_tokens);
/* The twins of the blocks that the plan copies; before draft_model_run. */
void draft_model_copy(struct draft_model *m, const struct plan_copy *copies, uint32_t n);
/* The rows of all runs, and the planned draft tokens into the sequences' ids. last: the device's
 * newest ids of all slots, which sequences that await theirs are run with; NULL: none awaits one.
 * Errors as runner_forward. */
MUST_USE enum status draft_model_run(struct draft_model *m, struct sequence_runs runs,
                                     const uint32_t *last, struct error *err);
