#pragma once
/* Checks limits of this machine, and whether ports are in use, before processes start. */
#include <stdint.h>

#include "common/base/str.h"

struct machine_limits {
    /* hard limit of open files, and size of /dev/shm in bytes; UINT64_MAX = unlimited */
    uint64_t open_files_hard, shm_bytes;
};
/* Raises the soft limit of open files as far as useful, then reads the limits. */
void preflight_read(struct machine_limits *out);
/* Appends a line for each limit that is too small for this cluster, with advice. `on_gpus`: the
 * ranks run on GPUs and share /dev/shm. Locked memory is not checked, because memory that CUDA
 * pins is not under that limit. (Memory that NCCL registers with InfiniBand is under that limit:
 * docs/develop/comm.md.) */
void preflight_warnings(const struct machine_limits *l, uint32_t n_workers, bool on_gpus,
                        struct strbuf *out);
/* Checks a port. STATUS_EXISTS: the port is in use. The text is "port 8000 is in use ..., choose
 * another with FLAG". */
MUST_USE enum status preflight_port(const char *host, uint16_t port, const char *what,
                                    const char *flag, struct error *err);
