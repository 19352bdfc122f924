#pragma once
/* Reads a GPU's memory, load, temperature and power from NVIDIA's management library (NVML),
 * which comes with the driver and is loaded when it is present. A thread of its own asks every
 * two seconds, since a failing driver may answer late or never. */
#include <stdbool.h>

#include "common/base/status.h"
#include "proto/device_state.h"

struct gpu_monitor_options {
    const char *library; /* name for dlopen; NULL = libnvidia-ml.so.1 */
    const char *pci;     /* PCI address of the device: "00000000:3b:00.0" */
    uint32_t period_ms;  /* interval between two queries; 0 = 2000 */
};

struct gpu_monitor;
/* Starts the monitor. STATUS_UNSUPPORTED: there is no library, or the library does not know the
 * device; the text says which of the two. */
MUST_USE enum status gpu_monitor_start(const struct gpu_monitor_options *o,
                                       struct gpu_monitor **out, struct error *err);
/* Returns the last known state; all values are 0 before the first answer. Any thread may call
 * it. */
struct gpu_state gpu_monitor_read(struct gpu_monitor *m);
/* Stops the monitor. Waits at most one second for a driver that does not answer. Does nothing
 * when `m` is NULL. */
void gpu_monitor_stop(struct gpu_monitor *m);
