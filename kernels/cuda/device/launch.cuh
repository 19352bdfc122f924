#pragma once
/* How kernels are launched: with the attribute that lets one begin before the one in front of it
 * has ended, where the device knows it (9.0 and later). Such a kernel calls dependency_wait before
 * it touches what others write, and dependency_launch when the next may begin; one that calls
 * neither is not to be launched so. Its launch costs the device next to nothing then. */
#include "kernels/cuda/device/common.cuh"
#include "kernels/cuda/device/ptx.cuh"

/* Raises the kernel's limit of dynamic shared memory to the most that a block may have beside what
 * it has of its own: once for each device, and never down again, since what was recorded with more
 * is instantiated and launched later. (device.cu) */
cudaError_t launch_allow_shared(struct gpu_device *d, const void *kernel);

template <class... P, class... A>
static inline cudaError_t launch_kernel(const struct gpu_stream *s, void (*kernel)(P...), dim3 grid,
                                        dim3 block, size_t shared_bytes, const A &...args)
{
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = s->native;
    config.attrs = &early;
    config.numAttrs = s->device->launches_early ? 1 : 0;
    return cudaLaunchKernelEx(&config, kernel, args...);
}
