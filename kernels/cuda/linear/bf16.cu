/* Compiles the kernels of gemm.cuh for weights in BF16. */
#include "kernels/cuda/linear/gemm_launch.cuh"

cudaError_t gemm_launch_bf16(struct gemm_args a, const gemm_limits &limits,
                             const struct gpu_stream *stream)
{
    return gemm_launch<GPU_BF16>(a, limits, stream);
}
