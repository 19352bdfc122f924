#pragma once
/* Draws the progress of a load on stderr when stderr is a terminal. It shows a bar, the requests
 * per second, and the number of failures. */
#include <stdbool.h>
#include <stdint.h>

struct bench_progress {
    bool is_shown, is_drawn;
    const char *what; /* noun of the counted things: "requests" */
    uint32_t done, failed, total;
    uint64_t begin_ns, said_ns;
};

void bench_progress_start(struct bench_progress *p, bool quiet, const char *what, uint32_t total);
void bench_progress_add(struct bench_progress *p, bool failed);
/* Draws the progress, ten times a second at most. */
void bench_progress_tick(struct bench_progress *p);
/* Draws the progress once more and ends the line. */
void bench_progress_end(struct bench_progress *p);
