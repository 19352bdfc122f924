#pragma once
/* Declares tables of GPUs and of the clouds' machines with GPUs, and the forms in which users
 * write their names. The memory is the amount that nvidia-smi shows, as Modal published it for
 * its machines (A10, L4, L40S, A100, H100, H200, T4). The other figures are the manufacturers',
 * without sparsity and with links in one direction. Their sources are NVIDIA's sheets of the
 * GPU's name, "A10G for AWS G5" (2022), and an eighth of "DGX B200". They are for SXM where the
 * name does not say PCIE or NVL. All data is static, and any thread may use it. */
#include "common/base/status.h"
#include "common/base/str.h"

struct gpu_model {
    const char *name;
    const char *others;    /* other names, comma separated, in the form of gpu_plain; may be NULL */
    uint32_t capability;   /* compute capability; 80 = 8.0 */
    uint64_t memory_bytes; /* total memory, as nvidia-smi reports it */
    double bytes_per_s;    /* memory bandwidth */
    double flops;          /* peak of the tensor cores per second in BF16 (before 8.0: FP16) */
    double link_bytes_per_s; /* bandwidth to other GPUs, in one direction */
};

/* `gpu_target` describes the GPUs to plan for. */
struct gpu_target {
    char name[64]; /* name as the user wrote it */
    const struct gpu_model *gpu;
    uint32_t n_gpus;
    /* true: a machine with a fixed number of GPUs; false: any number up to n_gpus is possible */
    bool is_machine;
};

/* GPUS_LEAST_CAPABILITY is the lowest compute capability that the build has code for
 * (cmake/Cuda.cmake). */
#define GPUS_LEAST_CAPABILITY 80u
/* GPUS_MOST is the most GPUs that are planned for a target without a number of GPUs. */
#define GPUS_MOST 8u
/* GPUS_MOST_SAID is the largest number of GPUs that a target may name. */
#define GPUS_MOST_SAID 64u

size_t gpus_count(void);
const struct gpu_model *gpus_at(size_t i);
/* Finds a GPU by a name such as "A10G", "nvidia-a100-sxm4-80gb" or "4xL40S". The text of
 * STATUS_NOT_FOUND names the nearest GPUs. */
MUST_USE enum status gpus_find(struct str name, struct gpu_target *out, struct error *err);
/* Finds a machine by a name such as "ml.g5.12xlarge", "g5.12xl", "a3-highgpu-8g" or
 * "Standard_ND96isr_H100_v5". */
MUST_USE enum status gpus_find_machine(struct str name, struct gpu_target *out, struct error *err);
