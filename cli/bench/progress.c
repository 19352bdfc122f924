#include "cli/bench/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"

enum { BAR_CELLS = 32 };
#define EVERY_NS (100 * NS_PER_MS)

void bench_progress_start(struct bench_progress *p, bool quiet, const char *what, uint32_t total)
{
    uint64_t now = clock_mono_ns();
    *p = (struct bench_progress){.is_shown = !quiet && isatty(STDERR_FILENO) == 1,
                                 .what = what,
                                 .total = total,
                                 .begin_ns = now,
                                 .said_ns = now};
}

static void draw(struct bench_progress *p, uint64_t now)
{
    char cells[BAR_CELLS + 1], failed[32] = "";
    double seconds = (double)(now - p->begin_ns) / 1e9;
    double per_s = seconds > 0 ? p->done / seconds : 0;
    uint32_t n_full = p->total ? (uint32_t)((uint64_t)p->done * BAR_CELLS / p->total) : BAR_CELLS;
    memset(cells, '.', BAR_CELLS);
    memset(cells, '#', n_full < BAR_CELLS ? n_full : BAR_CELLS);
    cells[BAR_CELLS] = '\0';
    if (p->failed)
        snprintf(failed, sizeof failed, ", %u failed", p->failed);
    fprintf(stderr, "\r\033[K[%s] %u/%u %s, %.0f s, %.2f/s%s", cells, p->done, p->total, p->what,
            seconds, per_s, failed);
    p->is_drawn = true;
    p->said_ns = now;
}

void bench_progress_add(struct bench_progress *p, bool failed)
{
    p->done++;
    p->failed += failed;
}

void bench_progress_tick(struct bench_progress *p)
{
    uint64_t now = clock_mono_ns();
    if (p->is_shown && now - p->said_ns >= EVERY_NS)
        draw(p, now);
}

void bench_progress_end(struct bench_progress *p)
{
    if (!p->is_shown || p->done == 0)
        return;
    draw(p, clock_mono_ns());
    fputc('\n', stderr);
}
