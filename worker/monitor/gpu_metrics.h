#pragma once
/* Exports the state of a worker's GPU as metrics. gpu_monitor reads the state with each
 * heartbeat. The worker also runs without a GPU or without a way to monitor the GPU. */
#include "common/base/metrics.h"
#include "worker/monitor/gpu_monitor.h"

struct gpu_metrics {
    struct gpu_monitor *monitor; /* NULL = there is no GPU, or it cannot be monitored */
    struct metric *used, *total, *busy, *celsius, *watts;
};
/* Starts the monitor of the GPU at PCI address `pci` (executor_info); "" = no GPU. A GPU that
 * cannot be monitored is logged and has no metrics. */
void gpu_metrics_start(struct gpu_metrics *g, const char *pci, struct metrics *r);
/* Returns the last known state and updates the metrics. All values are 0 without a monitor. */
struct gpu_state gpu_metrics_look(const struct gpu_metrics *g);
/* Stops the monitor. The metrics stay in their registry. */
void gpu_metrics_stop(struct gpu_metrics *g);
