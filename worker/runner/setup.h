#pragma once
/* Declares the objects that a runner uses, and its limits. */
#include <stdatomic.h>

#include "worker/collectives/collectives.h"
#include "worker/kv/store.h"
#include "worker/lora/lora.h"
#include "worker/model/program.h"

#define RUNNER_LOGITS_ROWS     16u  /* rows that the host reads at once */
#define RUNNER_BEST_ROWS       64u  /* most rows of one call of runner_best */
#define RUNNER_MAX_LOGITS_ROWS 256u /* upper bound of ops->logits_rows */

struct runner_setup {
    struct program *program;
    struct device *device;
    struct kv_store *kv;
    struct lora_set *loras; /* adapters of the program; NULL = rows have no adapters */
    /* collectives of the replica; borrowed; NULL = one rank. All ranks of a stage run the same
     * passes, and stages run one after the other. */
    struct collectives *collectives;
    uint32_t pass_rows;
    bool is_eager;                 /* no pass is recorded */
    _Atomic uint64_t *progress;    /* incremented per operator */
    const _Atomic bool *interrupt; /* true = the runner stops before the next operator */
};
