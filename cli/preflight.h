#pragma once
/* What can be known before a process is started: limits of this machine, ports that are taken. */
#include <stdint.h>

#include "common/base/str.h"

struct machine_limits {
    uint64_t open_files_hard, memlock_soft, shm_bytes; /* UINT64_MAX: unlimited */
};
/* Reads them, after raising the soft limit of open files as far as it is useful. */
void preflight_read(struct machine_limits *out);
/* Cores that this process may use: its affinity, within the container's CPU quota. At least 1. */
uint32_t preflight_cores(void);
/* Cores that a cgroup's cpu.max ("200000 100000", "max 100000") allows, at most n, at least 1; n
 * for a text that is none. */
uint32_t preflight_quota_cores(const char *cpu_max, uint32_t n);
/* Appends a line per limit that is too small for this cluster, with what to do about it. */
void preflight_warnings(const struct machine_limits *l, uint32_t n_workers, bool has_tensors,
                        struct strbuf *out);
/* STATUS_EXISTS when somebody listens there: "port 8000 is in use ..., choose another with FLAG".
 */
MUST_USE enum status preflight_port(const char *host, uint16_t port, const char *what,
                                    const char *flag, struct error *err);
