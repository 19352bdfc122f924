/* Compiles the kernels of gemm.cuh for weights in I8_MIN. */
#include "kernels/cuda/linear/gemm_launch.cuh"

cudaError_t gemm_launch_i8_min(struct gemm_args a, const gemm_limits &limits,
                               const struct gpu_stream *stream)
{
    return gemm_launch<GPU_I8_MIN>(a, limits, stream);
}
