/* Fibers for the threads of a block, and the runtime's calls over the heap. */
#include "cuda_runtime.h"

#include <stdio.h>
#include <ucontext.h>
#include <vector>

dim3 threadIdx, blockIdx, blockDim;

namespace
{
constexpr size_t STACK_BYTES = 32 << 10;
constexpr unsigned MAX_THREADS = 1024, WARP = 32;

struct fiber {
    ucontext_t context;
    std::vector<char> stack = std::vector<char>(STACK_BYTES);
    float value; /* of the shuffle under way */
    bool done;
};

std::vector<fiber> fibers(MAX_THREADS);
ucontext_t scheduler;
const std::function<void()> *body;
unsigned current;

void yield()
{
    swapcontext(&fibers[current].context, &scheduler);
}

void fiber_main()
{
    (*body)();
    fibers[current].done = true;
}

void start(fiber &f)
{
    f.done = false;
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack.data();
    f.context.uc_stack.ss_size = f.stack.size();
    f.context.uc_link = &scheduler;
    makecontext(&f.context, fiber_main, 0);
}

void run_block()
{
    for (unsigned i = 0; i < blockDim.x; i++)
        start(fibers[i]);
    for (bool running = true; running;) { /* one turn: every thread up to its next meeting */
        unsigned n_done = 0;
        for (current = 0; current < blockDim.x; current++) {
            threadIdx.x = current;
            swapcontext(&scheduler, &fibers[current].context);
            n_done += fibers[current].done;
        }
        running = n_done == 0;
        if (n_done != 0 && n_done != blockDim.x) {
            fprintf(stderr, "emulate: %u of %u threads left a block whose others wait\n", n_done,
                    blockDim.x);
            abort();
        }
    }
}
} // namespace

void emulate_grid(dim3 grid, dim3 block, const std::function<void()> &thread)
{
    body = &thread;
    blockDim = block;
    for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x++)
        run_block();
}

void __syncthreads()
{
    yield();
}

float __shfl_xor_sync(uint32_t mask, float v, unsigned lane_mask)
{
    const unsigned me = current, other = me ^ lane_mask;
    if (mask != 0xffffffffu || lane_mask >= WARP || other >= blockDim.x) {
        fprintf(stderr, "emulate: shuffle of thread %u with %u of %u\n", me, other, blockDim.x);
        abort();
    }
    fibers[me].value = v;
    yield(); /* all have written */
    v = fibers[other].value;
    yield(); /* all have read */
    return v;
}

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
