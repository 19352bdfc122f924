#pragma once
/* Measures the part of the machine that this process may use: all of it, or less inside a
 * container. */
#include <stdint.h>

#include "common/base/str.h"

/* Returns the lower of the machine's memory and the cgroup's limit. */
uint64_t host_memory_bytes(void);
/* Returns the bytes that could be allocated now without swapping. It is the least of three
 * numbers: MemAvailable, the free part of the cgroup's limit (idle file pages count as free),
 * and the rest of this process's address space (ulimit -v). */
uint64_t host_available_bytes(void);
/* Returns the CPUs in this process's affinity mask, at most as many as the cgroup's quota
 * allows; >= 1. */
uint32_t host_cpus(void);
/* Copies the CPU's name from /proc/cpuinfo ("AMD EPYC 9654"), or "CPU" when the file does not
 * have the name. */
void host_cpu_name(char *out, size_t out_size);
/* `host_usage` holds the CPU time that this process has used since its start, and its memory
 * now; 0 = unknown. */
struct host_usage {
    uint64_t cpu_ns, resident_bytes;
};
struct host_usage host_usage(void);
/* `host_machine` describes the machine itself, not this container. `id` identifies one boot of
 * the machine's kernel, so all containers of the machine have the same id; 0 = unknown. */
struct host_machine {
    uint64_t id, memory_bytes;
    uint32_t cpus;
};
struct host_machine host_machine(void);
/* Raises the soft limit of open files, usually 1024, to the hard limit, because each connection
 * is a file. Returns the new limit; UINT64_MAX = no limit. */
uint64_t host_raise_file_limit(void);

/* The functions whose names end in _at are variants for tests. They read a folder with the
 * layout of /. */
uint64_t host_available_bytes_at(const char *root);
/* Returns the rest of the address space below `limit`; UINT64_MAX = no limit. */
uint64_t host_address_space_left_at(const char *root, uint64_t limit);
uint32_t host_cpus_at(const char *root, uint32_t n_affinity);
