#pragma once
/* Measures this process's use of its host, for heartbeats: CPU time over the last second, and
 * memory. */
#include "proto/device_state.h"

struct host_meter {
    uint64_t since_ns, cpu_ns; /* start of the present second: time, CPU time */
    struct host_state now;
};

/* Starts the meter. `threads` is the number of computing threads; 0 = the CPUs that this process
 * may use. */
void host_meter_init(struct host_meter *m, uint32_t threads);
/* Returns the present figures. Reads them from the kernel at most once a second, even when it is
 * called more often. */
struct host_state host_meter_look(struct host_meter *m, uint64_t now_ns);
