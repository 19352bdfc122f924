/* Replaces the collectives between GPUs in builds without the CUDA backend: there are none. */
#include "kernels/cuda/comm/abi.h"

enum status cuda_comm_open(struct device *d, const struct gpu_comm_options *o,
                           struct gpu_comm **out, struct error *err)
{
    return error_set(
        err, STATUS_UNSUPPORTED,
        "this build has no CUDA backend: make one that has it with scripts/build cuda");
}
