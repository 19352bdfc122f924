#pragma once
/* The part of its machine that this process may use: all of it, or less inside a container. */
#include <stdint.h>

#include "common/base/str.h"

uint64_t host_memory_bytes(void); /* of the machine, or of the cgroup */
/* Bytes that could be allocated now without swapping: MemAvailable, and below the cgroup's limit,
 * whose usage is taken without idle pages of files; and this process's address space (ulimit -v).
 */
uint64_t host_available_bytes(void);
/* CPUs in this process's affinity mask, and not more than the cgroup's quota pays for; >= 1. */
uint32_t host_cpus(void);
/* "AMD EPYC 9654", from /proc/cpuinfo; "CPU" when it does not say. */
void host_cpu_name(char *out, size_t out_size);
/* Processor time that this process has used in its life, and its memory now; 0: not known. */
struct host_usage {
    uint64_t cpu_ns, resident_bytes;
};
struct host_usage host_usage(void);
/* The machine itself, not this container of it. id: of its kernel's life, which all its containers
 * share; 0: not known. */
struct host_machine {
    uint64_t id, memory_bytes;
    uint32_t cpus;
};
struct host_machine host_machine(void);
/* Raises the soft limit of open files, usually 1024, to the hard one: a connection is a file.
 * Returns what it is now; UINT64_MAX: none. */
uint64_t host_raise_file_limit(void);

/* The same over a folder that looks like / (tests). */
uint64_t host_available_bytes_at(const char *root);
uint64_t host_address_space_left_at(const char *root, uint64_t limit); /* UINT64_MAX: no limit */
uint32_t host_cpus_at(const char *root, uint32_t n_affinity);
