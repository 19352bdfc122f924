#pragma once
/* Programs that need a device and more of the host (cuBLAS, memory): what is missing on a host that
 * has a device is a failure, and only a host without one skips. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/device/abi.h"

/* Ends the process with exit status 77 where there is no device, and with 1 where one cannot be
 * asked. */
static inline void needs_device(void)
{
    struct gpu_info info;
    struct error err;
    const enum status s = gpu_info(0, &info, &err);
    if (s == STATUS_OK)
        return;
    printf("%s: %s\n", s == STATUS_UNSUPPORTED ? "SKIPPED" : "FAILED", err.text);
    exit(s == STATUS_UNSUPPORTED ? 77 : 1);
}
