#pragma once
/* Decides whether a transfer may continue. It needs at least one byte within each stall time,
 * and a least number of bytes in each window. A transfer has no deadline as a whole: it may take
 * hours as long as bytes keep moving. The functions are pure: the caller gives the time and the
 * bytes that moved. */
#include <stdbool.h>
#include <stdint.h>

struct progress_rules {
    uint64_t stall_ns;     /* longest time without a byte */
    uint64_t window_ns;    /* length of a window; the first window is a grace period */
    uint64_t window_bytes; /* least number of bytes in a window; 0 = no least rate */
};

struct progress {
    uint64_t moved_ns; /* time of the last byte seen */
    uint64_t window_begun_ns, window_bytes;
};

enum progress_verdict { PROGRESS_FINE, PROGRESS_STALLED, PROGRESS_CRAWLS };

void progress_begin(struct progress *p, uint64_t now_ns);
/* Records the bytes that moved since the last call. 0 changes nothing. */
void progress_moved(struct progress *p, const struct progress_rules *r, uint64_t now_ns,
                    uint64_t bytes);
/* Judges the transfer. Call it at the end of each window (progress_wait_ns). A window that is
 * judged late needs no more bytes than its minimum. The client is not at fault for time in which
 * this process did not run. */
enum progress_verdict progress_judge(struct progress *p, const struct progress_rules *r,
                                     uint64_t now_ns);
/* Returns the ns from now_ns until the verdict may change; 0 = it may have changed now. */
uint64_t progress_wait_ns(const struct progress *p, const struct progress_rules *r,
                          uint64_t now_ns);
