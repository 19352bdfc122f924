#pragma once
/* Shows a worker's GPU as metrics: the state from gpu_monitor, read with each heartbeat. The
 * worker also runs without a GPU or without a way to monitor the GPU. */
#include "common/base/metrics.h"
#include "worker/monitor/gpu_monitor.h"

struct gpu_metrics {
    struct gpu_monitor *monitor; /* NULL = there is no GPU, or it cannot be monitored */
    struct metric *used, *total, *busy, *celsius, *watts;
};
/* Starts the monitor of the GPU at PCI address `pci` (executor_info); "" = no GPU. When the GPU
 * cannot be monitored, the log says so and no metrics are made. */
void gpu_metrics_start(struct gpu_metrics *g, const char *pci, struct metrics *r);
/* Returns the last known state and updates the metrics. All values are 0 without a monitor. */
struct gpu_state gpu_metrics_look(const struct gpu_metrics *g);
/* Stops the monitor. The metrics stay in their registry. */
void gpu_metrics_stop(struct gpu_metrics *g);
