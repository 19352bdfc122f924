#pragma once
/* Implements launches. Arguments are copied when a kernel is enqueued, as on a device. */
#include <tuple>

#include "engine.h"
#include "runtime.h"

enum cudaLaunchAttributeID {
    cudaLaunchAttributePriority = 8,
    cudaLaunchAttributeProgrammaticStreamSerialization = 6
};
union cudaLaunchAttributeValue {
    /* The emulation ignores this field, because kernels of a stream never overlap here. */
    int programmaticStreamSerializationAllowed;
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
/* `closure` is a kernel and its arguments. std::function would add a third to the cost of
 * including this header. */
struct closure {
    virtual ~closure() = default;
    virtual void call() const = 0; /* called by each thread of the grid */
};
/* Enqueues a grid of threads that call c. The function takes ownership of c, even after an
 * error. A launch is refused when a device would refuse it: an empty grid, too many threads, too
 * much shared memory, arguments that are too large. */
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

/* Returns the attributes of a kernel. Without a device compiler, the version is 9.0 unless a
 * test sets another (faults.h). The static shared memory is that of a kernel with dynamic
 * memory: the kernel's own 128 bytes and the system's 1 KiB, whether or not a device counts that
 * KiB. */
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
