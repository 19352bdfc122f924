#pragma once
/* Opens the device on which tests of kernels run, and its stream. */
#include <stdio.h>

#include "kernels/cuda/device/abi.h"
#include "tests/cuda/rig/gpu_numbers.h"

/* Opens the machine's first device. Returns 0. If there is no device, it prints the reason and
 * returns 77. */
static inline int gpu_open(struct gpu_device **device, struct gpu_stream **stream,
                           struct gpu_info *info)
{
    struct error err = {0};
    enum status s = gpu_info(0, info, &err);
    if (s == STATUS_OK)
        s = gpu_device_open(0, device, &err);
    if (s == STATUS_UNSUPPORTED) {
        printf("SKIPPED: %s\n", err.text);
        return 77;
    }
    must(s, &err, "open");
    must(gpu_stream_new(*device, stream, &err), &err, "stream");
    return 0;
}

static inline void gpu_close(struct gpu_device *device, struct gpu_stream *stream)
{
    gpu_stream_free(stream);
    gpu_device_close(device);
}
