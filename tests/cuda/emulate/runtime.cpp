/* The runtime's calls over the heap. */
#include "runtime.h"

#include <map>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace
{
constexpr size_t DEFAULT_SHARED_BYTES = 48 << 10; /* without cudaFuncSetAttribute */

std::mutex shared_sizes_lock;
std::map<const void *, size_t> &shared_sizes()
{
    static std::map<const void *, size_t> *sizes = new std::map<const void *, size_t>;
    return *sizes;
}
} // namespace

namespace emulate
{
cudaError_t func_set_shared(const void *kernel, size_t n_bytes)
{
    if (n_bytes > MAX_SHARED_BYTES)
        return cudaErrorInvalidValue;
    std::lock_guard<std::mutex> lock(shared_sizes_lock);
    shared_sizes()[kernel] = n_bytes;
    return cudaSuccess;
}

cudaError_t launch_check(const cudaLaunchConfig_t *config, const void *kernel)
{
    const dim3 g = config->gridDim, b = config->blockDim;
    if (g.x == 0 || g.y == 0 || g.z == 0 || g.x > INT32_MAX || g.y > 65535 || g.z > 65535 ||
        b.x == 0 || b.y == 0 || b.z == 0 || b.z > 64 || (uint64_t)b.x * b.y * b.z > MAX_THREADS)
        return cudaErrorInvalidConfiguration;
    if (config->dynamicSmemBytes <= DEFAULT_SHARED_BYTES)
        return cudaSuccess;
    std::lock_guard<std::mutex> lock(shared_sizes_lock);
    const auto found = shared_sizes().find(kernel);
    if (found != shared_sizes().end() && config->dynamicSmemBytes <= found->second)
        return cudaSuccess;
    fprintf(stderr,
            "emulate: a launch with %zu bytes of shared memory, of which "
            "cudaFuncSetAttribute knows nothing\n",
            config->dynamicSmemBytes);
    return cudaErrorInvalidValue;
}
} // namespace emulate

const char *cudaGetErrorString(cudaError_t e)
{
    return e == cudaSuccess ? "no error" : "an error of the emulation";
}

const char *cudaGetErrorName(cudaError_t e)
{
    return e == cudaErrorInvalidValue       ? "cudaErrorInvalidValue"
           : e == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
                                            : "cudaError";
}

cudaError_t cudaGetLastError()
{
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int ordinal)
{
    return ordinal == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int ordinal)
{
    *p = {};
    snprintf(p->name, sizeof p->name, "emulation on the host");
    p->totalGlobalMem = (size_t)1 << 30;
    p->major = 8;
    p->multiProcessorCount = 1;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 0;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 0;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *n_free, size_t *n_total)
{
    *n_free = *n_total = (size_t)1 << 30;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **ptr, size_t n_bytes)
{
    if (n_bytes > (size_t)1 << 30)
        return cudaErrorMemoryAllocation;
    return posix_memalign(ptr, 256, n_bytes) == 0 ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *ptr)
{
    free(ptr);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *ptr, int value, size_t n_bytes)
{
    memset(ptr, value, n_bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n_bytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    memcpy(to, from, n_bytes);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize()
{
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    *stream = nullptr;
    return flags == cudaStreamNonBlocking ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t)
{
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t)
{
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t)
{
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t)
{
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    *event = nullptr;
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **ptr, size_t n_bytes)
{
    return cudaMalloc(ptr, n_bytes);
}

cudaError_t cudaFreeHost(void *ptr)
{
    return cudaFree(ptr);
}
