#pragma once
/* The part of CUDA's runtime and language that kernels/cuda uses, on the host: its sources, as they
 * are, become C++ that any machine runs (tests/cuda/CMakeLists.txt). One block at a time; its
 * threads are fibers that take turns at every shuffle and barrier. It checks indexing, the order of
 * sums and rounding (all of it IEEE arithmetic, so the bits are those of a device); it knows
 * nothing of races, of memory spaces or of speed. Kernels must be uniform: every thread of a block
 * meets the same shuffles and barriers. */
#include <functional>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(n_threads)

struct dim3 {
    unsigned x, y = 1, z = 1;
    dim3(unsigned x_ = 1) : x(x_)
    {
    }
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

extern dim3 threadIdx, blockIdx, blockDim;

void emulate_grid(dim3 grid, dim3 block, const std::function<void()> &thread);
void __syncthreads();
float __shfl_xor_sync(uint32_t mask, float v, unsigned lane_mask);

inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return {x, y, z, w};
}

inline float __uint_as_float(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* The calls of device.cu: one device, whose memory is the heap and whose streams do not wait. */
enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorStubLibrary = 34,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum { cudaStreamNonBlocking = 1 };
typedef struct emulate_stream *cudaStream_t;
struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem;
    int major, minor, multiProcessorCount;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
};

const char *cudaGetErrorString(cudaError_t e);
const char *cudaGetErrorName(cudaError_t e);
cudaError_t cudaGetLastError();
cudaError_t cudaSetDevice(int ordinal);
cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int ordinal);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaMemGetInfo(size_t *n_free, size_t *n_total);
cudaError_t cudaMalloc(void **ptr, size_t n_bytes);
cudaError_t cudaFree(void *ptr);
cudaError_t cudaMemset(void *ptr, int value, size_t n_bytes);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n_bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...), A &&...args)
{
    if (config->gridDim.x == 0 || config->blockDim.x == 0 || config->blockDim.x > 1024)
        return cudaErrorInvalidValue;
    emulate_grid(config->gridDim, config->blockDim, [&] { kernel(args...); });
    return cudaSuccess;
}
