#pragma once
/* The limits of the cgroup this process is in, and of those around it: version 2, version 1, or
 * none (then nothing is limited). root: a folder that looks like /; "" is the machine. */
#include <stdint.h>

struct cgroup_memory {
    uint64_t limit_bytes; /* the tightest; UINT64_MAX: none */
    uint64_t left_bytes;  /* what may still be taken, of the level with the least; UINT64_MAX */
};
void cgroup_memory(const char *root, struct cgroup_memory *out);
/* Whole CPUs that the tightest quota pays for, at least 1; UINT32_MAX: no quota. */
uint32_t cgroup_cpus(const char *root);
