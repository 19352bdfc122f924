#pragma once
/* Makes and maps the anonymous files (memfd) in which processes of one host share packed weights
 * (worker/share), and finds out whether this system can share them. The worker asks share_probe
 * before it shares, and the plan of several models before it counts shared weights once, so both
 * always agree. */
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/* advice of newer kernels (5.14 and 6.1); an older kernel answers EINVAL */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define SHARE_PAGE_BYTES (64ull << 10) /* the largest page of a kernel; smaller pages divide it */
#define SHARE_HUGE_PAGE  (2ull << 20)
/* seals of a file that can neither change nor become shorter */
#define SHARE_SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

/* Returns the bytes rounded up to whole pages. */
uint64_t share_whole_pages(uint64_t n_bytes);
/* Returns the size of the file of `n_bytes` of weights: whole pages, then one page for a label. */
uint64_t share_file_bytes(uint64_t n_bytes);
/* Makes a file of zeros for `n_bytes` of weights. The caller closes *fd, which is -1 after an
 * error. A file above the limit of file sizes would end the process by SIGXFSZ: share_probe
 * first. */
MUST_USE enum status share_file_make(uint64_t n_bytes, int *fd, struct error *err);
/* Maps the file for `n_bytes` of weights at a multiple of a large page. */
MUST_USE enum status share_file_map(int fd, uint64_t n_bytes, int protection, uint8_t **at,
                                    struct error *err);

/* `share_system` lets a test stand for an older kernel. `root` is in front of /sys; "" = the
 * machine. `advise` is madvise. */
struct share_system {
    const char *root;
    int (*advise)(void *at, size_t n_bytes, int advice);
};
/* Checks that processes can share `n_bytes` of weights with the value `option` of
 * --weights-share, which is not "off". Makes and frees a file of at most one large page.
 * STATUS_LIMIT: ulimit -f is below the size. STATUS_DENIED: other processes may not open files of
 * this one. STATUS_UNSUPPORTED: shared memory has no large pages, and `option` is "auto".
 * STATUS_IO, STATUS_NO_MEMORY: the file cannot be made. */
MUST_USE enum status share_probe(const char *option, uint64_t n_bytes, struct error *err);
MUST_USE enum status share_probe_on(const struct share_system *system, const char *option,
                                    uint64_t n_bytes, struct error *err);
