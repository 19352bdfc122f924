#pragma once
/* Holds measurements of a worker's device and of its host. Every heartbeat carries them. */
#include <stdint.h>

/* Holds figures that the GPU itself reports. 0 = not reported yet, or no GPU. */
struct gpu_state {
    uint64_t memory_used, memory_total;
    uint32_t busy_percent; /* share of the last interval in which a kernel ran */
    uint32_t celsius, milliwatts;
};

/* Describes the resources of its host that a worker's process uses. 0 = not reported yet. */
struct host_state {
    uint32_t threads;    /* threads that compute */
    uint32_t millicores; /* CPU use of about the last second */
    /* memory of the process; includes the pages of a mapped model that were touched */
    uint64_t resident_bytes;
    /* `id` identifies the machine, whatever container the process is in. Processes with the same
     * id run on the same machine. */
    uint64_t id;
    uint32_t cpus;
    uint64_t memory_bytes;
};
