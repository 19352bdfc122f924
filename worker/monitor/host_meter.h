#pragma once
/* What this process has of its host, for heartbeats: processors over the last second, memory. */
#include "proto/device_state.h"

struct host_meter {
    uint64_t since_ns, cpu_ns; /* where the second began that is being measured */
    struct host_state now;
};

/* threads: that it computes with; 0: the CPUs that this process may use. */
void host_meter_init(struct host_meter *m, uint32_t threads);
/* Asks the kernel once a second at most, however often it is called. */
struct host_state host_meter_look(struct host_meter *m, uint64_t now_ns);
