#pragma once
/* The parts that a runner is made of, and its limits. */
#include <stdatomic.h>

#include "worker/collectives/collectives.h"
#include "worker/kv/store.h"
#include "worker/lora/lora.h"
#include "worker/model/program.h"

#define RUNNER_LOGITS_ROWS     16u  /* that the host looks at at a time */
#define RUNNER_BEST_ROWS       64u  /* of runner_best */
#define RUNNER_MAX_LOGITS_ROWS 256u /* ops->logits_rows at most */

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
