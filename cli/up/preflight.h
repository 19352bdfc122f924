#pragma once
/* Checks before a process is started: limits of this machine, ports that are taken. */
#include <stdint.h>

#include "common/base/str.h"

struct machine_limits {
    uint64_t open_files_hard, shm_bytes; /* UINT64_MAX: unlimited */
};
/* Reads them, after raising the soft limit of open files as far as it is useful. */
void preflight_read(struct machine_limits *out);
/* Appends a line per limit that is too small for this cluster, with what to do about it.
 * on_gpus: whose ranks share /dev/shm. Of locked memory nothing is said: what CUDA pins is not
 * bound by that limit (what NCCL registers with InfiniBand is: docs/develop/comm.md). */
void preflight_warnings(const struct machine_limits *l, uint32_t n_workers, bool on_gpus,
                        struct strbuf *out);
/* STATUS_EXISTS when somebody listens there: "port 8000 is in use ..., choose another with FLAG".
 */
MUST_USE enum status preflight_port(const char *host, uint16_t port, const char *what,
                                    const char *flag, struct error *err);
