#pragma once
/* Launches: arguments are copied when a kernel is enqueued, as a device's are. */
#include <functional>
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

namespace emulate
{
/* What a library that is emulated too does in a stream: runs in its turn, or is captured. */
cudaError_t enqueue_work(cudaStream_t stream, std::function<void()> work);
cudaError_t func_set_shared(const void *kernel, int n_bytes);
cudaError_t occupancy(int *n_blocks, const void *kernel, int n_threads, size_t n_shared_bytes);
/* Enqueues body, which runs the grid. What a device refuses is refused: an empty grid, too many
 * threads, shared memory that was not asked for, too large arguments. */
cudaError_t launch(const cudaLaunchConfig_t *config, const void *kernel, size_t n_argument_bytes,
                   std::function<void()> body);
} // namespace emulate

template <class... P>
cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute attribute, int value)
{
    return attribute == cudaFuncAttributeMaxDynamicSharedMemorySize
               ? emulate::func_set_shared((const void *)kernel, value)
               : cudaSuccess;
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
    struct closure {
        void (*kernel)(P...);
        std::tuple<P...> args;
    };
    emulate::grid g = {};
    g.n_blocks = config->gridDim, g.n_threads = config->blockDim;
    g.n_shared_bytes = config->dynamicSmemBytes;
    g.thread = [](const void *ptr) {
        const closure *c = static_cast<const closure *>(ptr);
        std::apply(c->kernel, c->args);
    };
    g.name = __PRETTY_FUNCTION__;
    return emulate::launch(config, (const void *)kernel, sizeof(std::tuple<P...>),
                           [g, c = closure{kernel, std::tuple<P...>(args...)}]() mutable {
                               g.closure = &c;
                               emulate::run_grid(g);
                           });
}
