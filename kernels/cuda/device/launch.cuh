#pragma once
/* Launches kernels with the attribute that lets a kernel begin before the kernel before it has
 * ended, on devices that support this (9.0 and later). Such a kernel calls dependency_wait
 * before it accesses data that other kernels write, and dependency_launch when the next kernel
 * may begin. A kernel that calls neither must not be launched this way. The launch then costs
 * the device almost nothing. */
#include "kernels/cuda/device/common.cuh"
#include "kernels/cuda/device/ptx.cuh"

/* Raises the kernel's limit of dynamic shared memory to the block's maximum, minus the kernel's
 * static memory. The limit is raised once for each device and never lowered, since a recording
 * may be launched later. The function is in device.cu. */
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
