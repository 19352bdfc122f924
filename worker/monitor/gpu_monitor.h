#pragma once
/* What a GPU says of itself: memory, load, temperature, power, by NVIDIA's management library,
 * which is loaded when it is here (it comes with the driver) and done without when not. A thread of
 * its own asks every two seconds: a driver in trouble may take long to answer, or never do. */
#include <stdbool.h>

#include "common/base/status.h"
#include "proto/device_state.h"

struct gpu_monitor_options {
    const char *library; /* for dlopen; NULL: libnvidia-ml.so.1 */
    const char *pci;     /* "00000000:3b:00.0": which device */
    uint32_t period_ms;  /* 0: 2000 */
};

struct gpu_monitor;
/* STATUS_UNSUPPORTED: no library, or it does not know the device; the text says which. */
MUST_USE enum status gpu_monitor_start(const struct gpu_monitor_options *o,
                                       struct gpu_monitor **out, struct error *err);
/* As the device said last; all zero until it has said something. Any thread. */
struct gpu_state gpu_monitor_read(struct gpu_monitor *m);
/* Waits a second at most for a driver that does not answer. NULL is fine. */
void gpu_monitor_stop(struct gpu_monitor *m);
