#pragma once
/* Room for adapters, and whose. */
#include "kernels/ops.h"
#include "worker/model/program.h"

#define LORA_MAX_SLOTS 64u /* and ids in a plan */
#define LORA_MAX_RANK  512u

struct lora_setup {
    uint32_t max_loras, max_rank;
    const char *root;   /* adapters lie below it; borrowed; NULL: a path is taken as it is */
    uint32_t pass_rows; /* of the runner */
    struct device *device;
    const struct model_config *config; /* both borrowed */
};
