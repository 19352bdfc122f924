/* Answers the device queries in builds without the CUDA toolchain. */
#include "kernels/cuda/device/abi.h"

bool gpu_is_built(void)
{
    return false;
}

enum status gpu_info(uint32_t ordinal, struct gpu_info *out, struct error *err)
{
    return error_set(
        err, STATUS_UNSUPPORTED,
        "this build has no CUDA backend: make one that has it with scripts/build cuda");
}
