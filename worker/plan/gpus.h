#pragma once
/* What is known of GPUs and of the machines that clouds rent out with them: two tables, and how
 * people write the names in them. Memory is what nvidia-smi shows, as Modal has published it of
 * its machines (A10, L4, L40S, A100, H100, H200, T4). The rest are the makers' figures as they are
 * generally quoted, without sparsity, links in one direction: NVIDIA's sheets of the GPU's name,
 * "A10G for AWS G5" (2022), "DGX B200" (an eighth of it); SXM where the name does not say PCIE or
 * NVL. Everything here is static; any thread. */
#include "common/base/status.h"
#include "common/base/str.h"

struct gpu_model {
    const char *name;
    const char *others;      /* as others write it, comma separated, by gpus_plain; or NULL */
    uint32_t capability;     /* 80: compute capability 8.0 */
    uint64_t memory_bytes;   /* as nvidia-smi counts them */
    double bytes_per_s;      /* of its memory */
    double flops;            /* a second, of its tensor cores in BF16 (before 8.0 in FP16) */
    double link_bytes_per_s; /* to its neighbours, in one direction */
};

/* GPUs to plan for. */
struct gpu_target {
    char name[64]; /* as it was asked for */
    const struct gpu_model *gpu;
    uint32_t n_gpus;
    bool is_machine; /* it has so many, used or not; else they are bought one by one */
};

/* Below it there is no code of ours (cmake/Cuda.cmake). */
#define GPUS_LEAST_CAPABILITY 80u
/* Of a target that names a GPU and no number. */
#define GPUS_MOST 8u
/* And of one that names a number. */
#define GPUS_MOST_SAID 64u

size_t gpus_count(void);
const struct gpu_model *gpus_at(size_t i);
/* "A10G", "nvidia-a100-sxm4-80gb", "4xL40S". STATUS_NOT_FOUND names the nearest. */
MUST_USE enum status gpus_find(struct str name, struct gpu_target *out, struct error *err);
/* "ml.g5.12xlarge", "g5.12xl", "a3-highgpu-8g", "Standard_ND96isr_H100_v5". */
MUST_USE enum status gpus_find_machine(struct str name, struct gpu_target *out, struct error *err);
