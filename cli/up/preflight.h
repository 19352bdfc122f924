#pragma once
/* Checks before processes start: limits of this machine, and ports that are in use. */
#include <stdint.h>

#include "common/base/str.h"

struct machine_limits {
    uint64_t open_files_hard, shm_bytes; /* UINT64_MAX = unlimited */
};
/* Reads the limits, after it has raised the soft limit of open files as far as useful. */
void preflight_read(struct machine_limits *out);
/* Appends a line for each limit that is too small for this cluster, with advice. `on_gpus`: the
 * ranks run on GPUs and share /dev/shm. Locked memory is not checked: memory that CUDA pins is
 * not under that limit (memory that NCCL registers with InfiniBand is: docs/develop/comm.md). */
void preflight_warnings(const struct machine_limits *l, uint32_t n_workers, bool on_gpus,
                        struct strbuf *out);
/* STATUS_EXISTS: the port is in use; the text is "port 8000 is in use ..., choose another with
 * FLAG". */
MUST_USE enum status preflight_port(const char *host, uint16_t port, const char *what,
                                    const char *flag, struct error *err);
