#pragma once
/* Declares the options of a set of adapters. */
#include "kernels/ops.h"
#include "worker/model/program.h"

/* most adapters on a rank; also the limit of adapter numbers in a plan */
#define LORA_MAX_SLOTS 64u
#define LORA_MAX_RANK  512u

struct lora_setup {
    uint32_t max_loras, max_rank;
    const char *root;   /* folder that must contain the adapters; borrowed; NULL = any path */
    uint32_t pass_rows; /* most rows of a pass */
    struct device *device;
    const struct model_config *config; /* device and config are borrowed */
};
