#pragma once
/* Selects the rows of a pass that are still computed after the last operator that writes keys
 * and values. */
#include "worker/model/row_batch.h"
#include "worker/runner/setup.h"

struct runner;
void runner_make_kept(struct runner *r);
void runner_free_kept(struct runner *r);
void runner_begin_kept(struct runner *r, const struct row_batch *b);
/* runner_cuts_here returns true when rows are left out before operator i_op. runner_cut_rows
 * returns the pass without these rows. */
bool runner_cuts_here(const struct runner *r, uint32_t i_op);
struct row_batch runner_cut_rows(struct runner *r, const struct row_batch *b);
/* Returns the positions of rows in the output of the last forward, as `rows` itself or in `out`.
 * n <= RUNNER_MAX_LOGITS_ROWS. */
const uint32_t *runner_places(const struct runner *r, const uint32_t *rows, uint32_t n,
                              uint32_t out[RUNNER_MAX_LOGITS_ROWS]);
