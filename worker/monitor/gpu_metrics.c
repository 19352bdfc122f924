#include "worker/monitor/gpu_metrics.h"

#include "common/base/log.h"

static void make(struct gpu_metrics *g, struct metrics *r)
{
    g->used = metrics_gauge(r, "coxswain_worker_gpu_memory_used_bytes", "",
                            "used memory of the GPU, by all processes");
    g->total = metrics_gauge(r, "coxswain_worker_gpu_memory_bytes", "", "memory of the GPU");
    g->busy = metrics_gauge(r, "coxswain_worker_gpu_utilization", "",
                            "fraction of time in which a kernel ran, 0 to 1");
    g->celsius =
        metrics_gauge(r, "coxswain_worker_gpu_temperature_celsius", "", "temperature of the GPU");
    g->watts = metrics_gauge(r, "coxswain_worker_gpu_power_watts", "", "power draw of the GPU");
}

void gpu_metrics_start(struct gpu_metrics *g, const char *pci, struct metrics *r)
{
    struct error err;
    *g = (struct gpu_metrics){0};
    if (!pci[0])
        return;
    if (gpu_monitor_start(&(struct gpu_monitor_options){.pci = pci}, &g->monitor, &err) ==
        STATUS_OK)
        make(g, r);
    else
        log_info("gpu_not_watched", "pci=%s reason=%s", pci, log_quote(err.text));
}

struct gpu_state gpu_metrics_look(const struct gpu_metrics *g)
{
    if (!g->monitor)
        return (struct gpu_state){0};
    struct gpu_state now = gpu_monitor_read(g->monitor);
    metric_set(g->used, (double)now.memory_used);
    metric_set(g->total, (double)now.memory_total);
    metric_set(g->busy, now.busy_percent / 100.0);
    metric_set(g->celsius, now.celsius);
    metric_set(g->watts, now.milliwatts / 1000.0);
    return now;
}

void gpu_metrics_stop(struct gpu_metrics *g)
{
    gpu_monitor_stop(g->monitor);
    g->monitor = NULL;
}
