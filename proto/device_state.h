#pragma once
/* Measurements of a worker's device and of its host, in every heartbeat. */
#include <stdint.h>

/* A GPU's own words; 0: it has not said, or there is none. */
struct gpu_state {
    uint64_t memory_used, memory_total;
    uint32_t busy_percent; /* of the last moment: some kernel ran */
    uint32_t celsius, milliwatts;
};

/* The part of its host that a worker's process has; 0: it has not said. */
struct host_state {
    uint32_t threads;        /* that it computes with */
    uint32_t millicores;     /* of processors, over the last second or so */
    uint64_t resident_bytes; /* pages of a mapped model that it has touched among them */
    /* The machine, whatever container the process is in: processes of one id share it. */
    uint64_t id;
    uint32_t cpus;
    uint64_t memory_bytes;
};
