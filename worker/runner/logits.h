#pragma once
/* Questions about some of the last pass's rows, in the last stage: their hidden states behind
 * the final norm, their logits, and what the host wants to see of those. One thread, as runner.h.
 */
#include "worker/runner/setup.h"

struct runner;
/* The hidden states of n <= RUNNER_LOGITS_ROWS rows behind the final norm: [n][hidden], of the
 * host, valid until the next call. In the last stage; the ranks need not all call it.
 * STATUS_CLOSED, and what the device says, which may be of what was enqueued before. */
MUST_USE enum status runner_normed(struct runner *r, const uint32_t *rows, uint32_t n,
                                   const float **out, struct error *err);
/* Logits of n <= ops->logits_rows of those rows: [n][vocab_size] of the device, valid until the
 * next call. All ranks of the last stage call it; rank 0 gets them, the others NULL. Errors as
 * runner_forward. */
MUST_USE enum status runner_logits(struct runner *r, const uint32_t *rows, uint32_t n, float **out,
                                   struct error *err);
/* Of n <= RUNNER_BEST_ROWS rows the two best logits and no others, which then are nowhere in memory
 * as a whole, nor told by ranks of the host to each other. tops: of rank 0, the same as
 * runner_look's. All ranks of the last stage call it, where runner_finds_best says that they can.
 */
bool runner_finds_best(const struct runner *r);
MUST_USE enum status runner_best(struct runner *r, const uint32_t *rows, uint32_t n,
                                 struct logits_top *tops, struct error *err);
/* The same of rows whose numbers the device has, and what samples from them: recorded as one piece,
 * behind the pass's own. */
struct runner_sample {
    const uint32_t *at; /* [n] of the device */
    uint32_t n;         /* with a key: runner_sample_rows of them */
    /* Of what sample enqueues, and of the places of what it reads, `at` too; 0: they are others
     * each time. */
    uint64_t key;
    enum status (*sample)(void *ctx, float *logits, struct error *err); /* on rank 0 */
    void *ctx;
};
MUST_USE enum status runner_sample(struct runner *r, const struct runner_sample *d,
                                   struct error *err);
/* Of those on rank 0, [n][vocab_size] from row first on, n <= RUNNER_LOGITS_ROWS, for the host to
 * read and to write; valid until the next call. Waits for the device, and says what failed there.
 */
MUST_USE enum status runner_read_logits(struct runner *r, uint32_t first, uint32_t n, float **out,
                                        struct error *err);
/* The two best of each of the first n of those rows and, unless sums is NULL, the sum of exp(logit
 * - best): ops->math.logits_top and sum_exp, into the host's memory. Waits for the device. */
MUST_USE enum status runner_look(struct runner *r, uint32_t n, struct logits_top *tops,
                                 double *sums, struct error *err);
