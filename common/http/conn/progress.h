#pragma once
/* Whether a transfer goes on: some byte within each stall time, and a least number of bytes in each
 * window, one behind the other. A transfer has no deadline as a whole: it may take hours as long as
 * it moves. Pure: the caller says what time it is and which bytes moved. */
#include <stdbool.h>
#include <stdint.h>

struct progress_rules {
    uint64_t stall_ns;     /* without a byte */
    uint64_t window_ns;    /* over which the rate is measured; the first one is the grace */
    uint64_t window_bytes; /* which each window must move; 0: there is no least rate */
};

struct progress {
    uint64_t moved_ns; /* when the last byte was seen to move */
    uint64_t window_begun_ns, window_bytes;
};

enum progress_verdict { PROGRESS_FINE, PROGRESS_STALLED, PROGRESS_CRAWLS };

void progress_begin(struct progress *p, uint64_t now_ns);
/* Bytes that moved since the last call; 0 changes nothing. */
void progress_moved(struct progress *p, const struct progress_rules *r, uint64_t now_ns,
                    uint64_t bytes);
/* To be asked at each window's end (progress_wait_ns). A window that is judged late owes no more
 * than its bytes: the time in which this process did not run is not the client's. */
enum progress_verdict progress_judge(struct progress *p, const struct progress_rules *r,
                                     uint64_t now_ns);
/* Nanoseconds from now_ns until the verdict may be another one; 0: it may be now. */
uint64_t progress_wait_ns(const struct progress *p, const struct progress_rules *r,
                          uint64_t now_ns);
