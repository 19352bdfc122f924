#pragma once
/* Executes a program on a device for rows of tokens. Knows nothing of plans, sequences or sampling.
 * All memory is allocated at runner_new; one thread. */
#include <stdatomic.h>

#include "worker/collectives/collectives.h"
#include "worker/kv/store.h"
#include "worker/lora/lora.h"
#include "worker/model/program.h"

#define RUNNER_LOGITS_ROWS     16u  /* that the host looks at at a time */
#define RUNNER_BEST_ROWS       64u  /* of runner_best */
#define RUNNER_MAX_LOGITS_ROWS 256u /* ops->logits_rows at most */

/* The rows of one pass. A row attends to the KV of earlier positions of its sequence, written by
 * earlier passes or by rows of this one. */
struct row_batch {
    uint32_t n_rows;                                     /* <= pass_rows */
    const uint32_t *ids, *positions;                     /* [n_rows] */
    const struct kv_row *kv_rows[PROGRAM_MAX_KV_GROUPS]; /* each [n_rows] */
    /* Rows whose ids only the device knows: [n_rows] slots of last, which is the device's;
     * UINT32_MAX: the id is in ids. NULL: all are. */
    const uint32_t *late, *last;
    const uint32_t *adapters; /* [n_rows] as lora_set_find says, 0: none; NULL: no row has one */
    /* The rows whose hidden states are asked for, [n_kept] in ascending order, valid until the next
     * forward; NULL: all. What is only there to be attended to may be left out of the last layer.
     * The same on all ranks. */
    const uint32_t *kept;
    uint32_t n_kept;
};

struct runner_setup {
    struct program *program;
    struct device *device;
    struct kv_store *kv;
    struct lora_set *loras;          /* of the program; NULL: rows have no adapters */
    struct collectives *collectives; /* borrowed; all ranks of a stage run the same passes, and the
                                        stages one after the other. NULL: one rank */
    uint32_t pass_rows;
    bool is_eager;                 /* nothing is recorded */
    _Atomic uint64_t *progress;    /* bumped per operator */
    const _Atomic bool *interrupt; /* true: give up between two operators */
};

/* STATUS_UNSUPPORTED: the device's operators would refuse such shapes in every pass. */
MUST_USE enum status runner_check(const struct program *p, const struct device *d,
                                  uint32_t pass_rows, struct error *err);
/* Bytes that runner_new will allocate: from the shapes alone. */
uint64_t runner_measure(const struct program *p, const struct device *d, uint32_t pass_rows);

struct runner;
MUST_USE enum status runner_new(const struct runner_setup *s, struct runner **out,
                                struct error *err);
void runner_free(struct runner *r); /* NULL is fine */
/* The rows' hidden states, kept until the next call: the same bits on every rank of a stage. On a
 * GPU this only enqueues, and what fails there is told by what waits (runner_read_logits). They
 * come from the stage before and go to the one behind, which may not have taken all of them when
 * this returns. STATUS_CLOSED: interrupted. With several ranks also what the collectives say, and
 * STATUS_INVALID when they are not joined as the program's rank. */
MUST_USE enum status runner_forward(struct runner *r, const struct row_batch *b, struct error *err);
/* Has the device refused to record or to replay a pass? Of several ranks the step fails then: NCCL
 * wants a collective to be of a graph on all of its ranks or on none. NULL: no. */
bool runner_refused_record(const struct runner *r);
/* Whether passes are neither padded nor recorded from now on: for all ranks of a group alike. */
void runner_set_eager(struct runner *r, bool is_eager);
/* What was recorded of passes is not to be replayed any more: the communicator is another one. NULL
 * is fine. */
void runner_drop_records(struct runner *r);
/* They themselves, before the final norm: [n_rows][hidden] of the device; of a pass that says which
 * ones are kept, nobody's. */
struct view runner_hidden(const struct runner *r);
/* n <= RUNNER_LOGITS_ROWS of them behind the final norm: [n][hidden], of the host, valid until the
 * next call. In the last stage; the ranks need not all call it. STATUS_CLOSED, and what the device
 * says, which may be of what was enqueued before. */
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
/* The same of rows whose numbers the device has, and what draws from them: recorded as one piece,
 * behind the pass's own. */
struct runner_draw {
    const uint32_t *at; /* [n] of the device */
    uint32_t n;         /* with a key: runner_draw_rows of them */
    /* Of what draw enqueues, and of the places of what it reads, `at` too; 0: they are others each
     * time. */
    uint64_t key;
    enum status (*draw)(void *ctx, float *logits, struct error *err); /* on rank 0 */
    void *ctx;
};
MUST_USE enum status runner_draw(struct runner *r, const struct runner_draw *d, struct error *err);
/* How many n rows are to be, with any rows of the pass behind them; 0: n rows are not recorded. */
uint32_t runner_draw_rows(const struct runner *r, uint32_t n);
/* Of those on rank 0, [n][vocab_size] from row first on, n <= RUNNER_LOGITS_ROWS, for the host to
 * read and to write; valid until the next call. Waits for the device, and says what failed there.
 */
MUST_USE enum status runner_read_logits(struct runner *r, uint32_t first, uint32_t n, float **out,
                                        struct error *err);
/* The two best of each of the first n of those rows and, unless sums is NULL, the sum of exp(logit
 * - best): ops->logits_top and sum_exp, into the host's memory. Waits for the device. */
MUST_USE enum status runner_look(struct runner *r, uint32_t n, struct logits_top *tops,
                                 double *sums, struct error *err);
