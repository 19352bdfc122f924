#pragma once
/* Ends programs that need a device and other parts of the host (cuBLAS, memory). A missing part
 * is a failure on a host with a device, and a skip on a host without one. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/device/abi.h"

/* Ends the process with exit status 77 when there is no device, and with 1 when the query fails. */
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
