/* Compiles the kernels of gemm.cuh for weights in U4_MIN. */
#include "kernels/cuda/linear/gemm_launch.cuh"

cudaError_t gemm_launch_u4_min(struct gemm_args a, const gemm_limits &limits,
                               const struct gpu_stream *stream)
{
    return gemm_launch<GPU_U4_MIN>(a, limits, stream);
}
