/* Implements collectives on the stream of a CUDA device. */
#include "kernels/cuda/backend/state.h"
#include "kernels/cuda/comm/abi.h"

enum status cuda_comm_open(struct device *d, const struct gpu_comm_options *o,
                           struct gpu_comm **out, struct error *err)
{
    struct gpu_comm_options own = *o;
    own.stream = cuda_of(d)->stream;
    return gpu_comm_open(&own, out, err);
}
