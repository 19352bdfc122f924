#pragma once
/* Makes draft tokens for speculative decoding with a second, smaller model that has the same
 * vocabulary (vLLM's method draft_model; Leviathan et al. 2023). They are sampled greedily, with
 * one row per draft token.
 *
 * The draft model runs as a whole on the sampling rank. It runs every row that the target runs,
 * so both KV caches cover the same positions. Each block of the target's full-attention group
 * has a twin in the draft model with the same number, and the same block tables are used. The
 * head's work on these blocks (prefix hits, copies, preemption) therefore applies to the twins
 * too. Windows of the draft model are masks over those tables. Wrong KV values in the twins
 * cause bad draft tokens, never other output tokens.
 *
 * draft_model_load allocates all memory. Later calls run on the compute thread only. */
#include "worker/engine/engine.h"
#include "worker/sequences/sequences.h"

struct draft_model;
/* Opens the draft model and measures its memory. `model` is a value of --model; `s` is the setup
 * with which the target was measured. The target owns the device and must outlive the draft
 * model. The text of STATUS_UNSUPPORTED names the mismatch with the target. */
MUST_USE enum status draft_model_open(const char *model, const struct engine_setup *s,
                                      const struct engine *target, struct draft_model **out,
                                      struct error *err);
void draft_model_close(struct draft_model *m); /* `m` may be NULL */
struct engine_beside draft_model_needs(const struct draft_model *m);
/* Loads the draft model, with as many blocks as the loaded target has. */
MUST_USE enum status draft_model_load(struct draft_model *m, const struct engine *target,
                                      struct error *err);
/* Adds the twins to the target's blocks in `out`. */
void draft_model_view(const struct draft_model *m, struct kv_view *out);
const struct engine *draft_model_engine(const struct draft_model *m);
/* Sleeps and wakes like the target (engine_sleep). The target wakes first. */
MUST_USE enum status draft_model_sleep(struct draft_model *m, enum sleep_level level,
                                       struct error *err);
MUST_USE enum status draft_model_wake(struct draft_model *m, struct error *err);

/* Writes the number of draft tokens of each run to n_drafted. The result is the same on every
 * rank. */
void draft_model_plan(const struct draft_model *m, struct sequence_runs runs, uint32_t n_tokens);
/* Copies the twins of the blocks that the plan copies. Call it before draft_model_run. */
void draft_model_copy(struct draft_model *m, const struct plan_copy *copies, uint32_t n);
/* Runs the rows of all runs and writes the planned draft tokens after the known ids of the
 * sequences. `last` holds the newest ids of all slots on the device, for sequences with a
 * pending id; NULL = no id is pending. Errors are those of runner_forward. */
MUST_USE enum status draft_model_run(struct draft_model *m, struct sequence_runs runs,
                                     const uint32_t *last, struct error *err);
