/* Builds without the CUDA toolchain: the one question that every build answers. */
#include "kernels/cuda/cuda_ops.h"

enum status gpu_info(uint32_t ordinal, struct gpu_info *out, struct error *err)
{
    return error_set(err, STATUS_UNSUPPORTED,
                     "this build has no CUDA backend; scripts/build cuda makes one that has");
}
