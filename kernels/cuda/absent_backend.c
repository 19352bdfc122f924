/* Builds without the CUDA backend: no device can be opened. */
#include "kernels/cuda/cuda.h"

enum status cuda_device_open(const struct cuda_device_options *o, struct device **out,
                             struct error *err)
{
    return error_set(err, STATUS_UNSUPPORTED,
                     "this build has no CUDA backend; scripts/build cuda makes one that has");
}
