#pragma once
/* A worker's GPU as metrics: what gpu_monitor says of it, asked for with each heartbeat. A worker
 * runs as well without a GPU, or without a way to ask it. */
#include "common/base/metrics.h"
#include "worker/monitor/gpu_monitor.h"

struct gpu_metrics {
    struct gpu_monitor *monitor; /* NULL: nothing to watch, or nothing to do it with */
    struct metric *used, *total, *busy, *celsius, *watts;
};
/* pci: where the GPU sits (executor_info); "": there is none. What cannot be watched is said in the
 * log, and its metrics are not made. */
void gpu_metrics_start(struct gpu_metrics *g, const char *pci, struct metrics *r);
/* As the device said last, into its metrics too; all zero where nothing is watched. */
struct gpu_state gpu_metrics_look(const struct gpu_metrics *g);
/* The monitor; metrics are their registry's. */
void gpu_metrics_stop(struct gpu_metrics *g);
