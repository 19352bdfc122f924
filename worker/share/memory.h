#pragma once
/* Makes, checks and maps the memory that holds packed weights: an anonymous file (memfd) that its
 * seals make immutable. The kernel frees it when the last process that has it open ends. */
#include <stdint.h>

#include "common/base/status.h"
#include "kernels/ops.h"

struct share_memory {
    int fd;            /* -1 = none; read-only once the memory is sealed */
    uint8_t *at;       /* address of the mapping; NULL = none */
    uint64_t n_bytes;  /* bytes of the weights */
    uint64_t reserved; /* bytes that have pages; share_memory_reserve counts them */
};

/* Makes memory of zeros that this process may write. No pages are taken yet. The caller has asked
 * share_probe (common/host/share_file.h). */
MUST_USE enum status share_memory_make(struct share_memory *m, uint64_t n_bytes, struct error *err);
/* Takes pages for the next part of the memory, on the threads of `d`, so that a later write finds
 * its page: a write without a page would end the process by SIGBUS. Call it until m->reserved is
 * m->n_bytes. */
MUST_USE enum status share_memory_reserve(struct share_memory *m, struct device *d,
                                          struct error *err);
/* Makes the memory immutable for every process, under `key`, and maps it anew at the same address
 * without the right to write. After an error the memory is still usable in this process. */
MUST_USE enum status share_memory_seal(struct share_memory *m, const uint8_t key[16],
                                       struct error *err);
/* Opens and maps the memory of another process (or of this one). It is checked first: owner,
 * seals, size and key. STATUS_NOT_FOUND: the process has ended. STATUS_DENIED: the kernel does not
 * let this process open it. STATUS_INVALID: the descriptor is something else. */
MUST_USE enum status share_memory_attach(struct share_memory *m, int32_t pid, int32_t fd,
                                         const uint8_t key[16], uint64_t n_bytes,
                                         struct error *err);
void share_memory_close(struct share_memory *m);
