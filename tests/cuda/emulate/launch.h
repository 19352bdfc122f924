#pragma once
/* Launches: arguments are copied when a kernel is enqueued, as a device's are. */
#include <tuple>

#include "engine.h"
#include "runtime.h"

enum cudaLaunchAttributeID {
    cudaLaunchAttributePriority = 8,
    cudaLaunchAttributeProgrammaticStreamSerialization = 6
};
union cudaLaunchAttributeValue {
    int programmaticStreamSerializationAllowed; /* kernels of a stream never overlap here */
    int priority;
};
struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
};
enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9
};

struct cudaFuncAttributes {
    size_t sharedSizeBytes;
    int maxThreadsPerBlock, ptxVersion, binaryVersion;
};

namespace emulate
{
cudaError_t func_set_shared(const void *kernel, int n_bytes);
cudaError_t func_attributes(cudaFuncAttributes *out);
cudaError_t occupancy(int *n_blocks, const void *kernel, int n_threads, size_t n_shared_bytes);
/* A kernel and its arguments. std::function would be a third of what including this costs. */
struct closure {
    virtual ~closure() = default;
    virtual void call() const = 0; /* by each thread */
};
/* Enqueues a grid of threads that call c, which it owns from then on, whatever it returns. What a
 * device refuses is refused: an empty grid, too many threads, shared memory that was not asked for,
 * too large arguments. */
cudaError_t launch(const cudaLaunchConfig_t *config, const void *kernel, const char *name,
                   size_t n_argument_bytes, const closure *c);
} // namespace emulate

template <class... P>
cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute attribute, int value)
{
    return attribute == cudaFuncAttributeMaxDynamicSharedMemorySize
               ? emulate::func_set_shared((const void *)kernel, value)
               : cudaSuccess;
}

inline cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value)
{
    return attribute == cudaFuncAttributeMaxDynamicSharedMemorySize
               ? emulate::func_set_shared(kernel, value)
               : cudaSuccess;
}

/* A device's compiler is not there to ask: 9.0 but for faults.h, and as much static shared memory
 * as a kernel with dynamic memory has of both kinds, its own (128 bytes) and the system's (1 KiB),
 * whether a device counts that or not. */
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *out, const void *kernel)
{
    return emulate::func_attributes(out);
}

template <class... P>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n_blocks, void (*kernel)(P...),
                                                          int n_threads, size_t n_shared_bytes)
{
    return emulate::occupancy(n_blocks, (const void *)kernel, n_threads, n_shared_bytes);
}

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...), A &&...args)
{
    struct call_of_kernel final : emulate::closure {
        void (*kernel)(P...);
        std::tuple<P...> args;
        call_of_kernel(void (*kernel_)(P...), A &&...args_) : kernel(kernel_), args(args_...)
        {
        }
        void call() const override
        {
            std::apply(kernel, args);
        }
    };
    return emulate::launch(config, (const void *)kernel, __PRETTY_FUNCTION__,
                           sizeof(std::tuple<P...>),
                           new call_of_kernel(kernel, static_cast<A &&>(args)...));
}
