/* Compiles the kernels of gemm.cuh for weights in F8. */
#include "kernels/cuda/linear/gemm_launch.cuh"

cudaError_t gemm_launch_f8(struct gemm_args a, const gemm_limits &limits,
                           const struct gpu_stream *stream)
{
    return gemm_launch<GPU_F8>(a, limits, stream);
}
