#pragma once
/* Reads the limits of this process's cgroup and of its parent groups, for version 2 and version
 * 1. Without cgroups there is no limit. `root` is a folder with the layout of /. "" is the real
 * machine. */
#include <stdint.h>

struct cgroup_memory {
    uint64_t limit_bytes; /* lowest limit of any level; UINT64_MAX = no limit */
    uint64_t left_bytes;  /* the least free bytes of any level; UINT64_MAX = no limit */
};
void cgroup_memory(const char *root, struct cgroup_memory *out);
/* Returns the whole CPUs that the lowest quota allows, at least 1. Returns UINT32_MAX without a
 * quota. */
uint32_t cgroup_cpus(const char *root);
