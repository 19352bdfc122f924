#pragma once
/* Computes, for rows of the last pass on the last stage, hidden states after the final norm,
 * logits, and the figures that the host needs from them. One thread calls these functions, as in
 * runner.h. */
#include "worker/runner/setup.h"

struct runner;
/* Returns the hidden states of n <= RUNNER_LOGITS_ROWS rows after the final norm: [n][hidden] in
 * host memory, valid until the next call. Only the last stage calls it; one rank may call it
 * alone. Errors: STATUS_CLOSED, and device errors, which may come from earlier work. */
MUST_USE enum status runner_normed(struct runner *r, const uint32_t *rows, uint32_t n,
                                   const float **out, struct error *err);
/* Computes the logits of n <= ops->logits_rows rows: [n][vocab_size] in device memory, valid
 * until the next call. All ranks of the last stage call it; rank 0 gets the logits, the others
 * NULL. Errors are those of runner_forward. */
MUST_USE enum status runner_logits(struct runner *r, const uint32_t *rows, uint32_t n, float **out,
                                   struct error *err);
/* runner_best finds only the two best logits of n <= RUNNER_BEST_ROWS rows, without storing all
 * logits or sending them between ranks. Rank 0 gets the same `tops` as from runner_look. All
 * ranks of the last stage call it, and only when runner_finds_best returns true. */
bool runner_finds_best(const struct runner *r);
MUST_USE enum status runner_best(struct runner *r, const uint32_t *rows, uint32_t n,
                                 struct logits_top *tops, struct error *err);
/* `runner_sample` describes a call that computes logits of rows whose numbers are in device
 * memory, and samples from these logits. The work is recorded as one recording, after that of
 * the pass. */
struct runner_sample {
    const uint32_t *at; /* [n] row numbers in device memory */
    uint32_t n;         /* number of rows; with a key: a result of runner_sample_rows */
    /* `key` identifies the work that `sample` enqueues and all addresses that this work reads,
     * `at` included. 0 = do not record. */
    uint64_t key;
    /* samples from the logits; called on rank 0 */
    enum status (*sample)(void *ctx, float *logits, struct error *err);
    void *ctx;
};
MUST_USE enum status runner_sample(struct runner *r, const struct runner_sample *d,
                                   struct error *err);
/* Copies n <= RUNNER_LOGITS_ROWS rows of the logits of runner_logits, from row `first` on, to
 * the host of rank 0: [n][vocab_size]. The caller may overwrite the copy; it is valid until the
 * next call. Waits for the device and reports its errors. */
MUST_USE enum status runner_read_logits(struct runner *r, uint32_t first, uint32_t n, float **out,
                                        struct error *err);
/* Writes the two best logits of each of the first n rows to host memory and, unless sums is
 * NULL, the sum of exp(logit - best). Uses ops->math.logits_top and sum_exp. Waits for the
 * device. */
MUST_USE enum status runner_look(struct runner *r, uint32_t n, struct logits_top *tops,
                                 double *sums, struct error *err);
