#include "cli/pull/pull_progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"

enum { BAR_CELLS = 24 };
#define EVERY_BAR_NS  (100 * NS_PER_MS)
#define EVERY_LINE_NS (5000 * NS_PER_MS)

const char *pull_bytes_text(char *out, size_t size, uint64_t n)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)n;
    size_t i = 0;
    for (; v >= 1024 && i < 4; i++)
        v /= 1024;
    snprintf(out, size, i == 0 ? "%.0f %s" : "%.1f %s", v, units[i]);
    return out;
}

void pull_progress_start(struct pull_progress *p, bool quiet, uint64_t done, uint64_t total)
{
    uint64_t now = clock_mono_ns();
    *p = (struct pull_progress){.quiet = quiet,
                                .is_terminal = isatty(STDERR_FILENO) == 1,
                                .name = "",
                                .done = done,
                                .total = total,
                                .begin_ns = now,
                                .said_ns = now};
    (void)pthread_mutex_init(&p->mutex, NULL);
}

static void say(struct pull_progress *p, uint64_t now)
{
    char done[24], total[24], rate[24], cells[BAR_CELLS + 1];
    double seconds = (double)(now - p->begin_ns) / 1e9;
    double per_s = seconds > 0 ? (double)p->fetched / seconds : 0;
    uint64_t left = p->total > p->done ? p->total - p->done : 0;
    uint64_t left_s = per_s > 0 ? (uint64_t)((double)left / per_s) : 0;
    unsigned percent = p->total ? (unsigned)(p->done * 100 / p->total) : 100;
    pull_bytes_text(done, sizeof done, p->done);
    pull_bytes_text(total, sizeof total, p->total);
    pull_bytes_text(rate, sizeof rate, (uint64_t)per_s);
    if (!p->is_terminal) {
        fprintf(stderr, "cox pull: %s of %s (%u %%), %s/s, %llu s left: %s\n", done, total, percent,
                rate, (unsigned long long)left_s, p->name);
        return;
    }
    memset(cells, '.', BAR_CELLS);
    memset(cells, '#', (size_t)(percent > 100 ? 100 : percent) * BAR_CELLS / 100);
    cells[BAR_CELLS] = '\0';
    fprintf(stderr, "\r\033[K[%s] %3u %%  %s of %s  %s/s  %llu s left  %.40s", cells, percent, done,
            total, rate, (unsigned long long)left_s, p->name);
    p->is_drawn = true;
}

void pull_progress_name(struct pull_progress *p, const char *name)
{
    (void)pthread_mutex_lock(&p->mutex);
    p->name = name;
    (void)pthread_mutex_unlock(&p->mutex);
}

void pull_progress_add(struct pull_progress *p, uint64_t n_bytes)
{
    (void)pthread_mutex_lock(&p->mutex);
    p->done += n_bytes;
    p->fetched += n_bytes;
    uint64_t now = clock_mono_ns();
    if (!p->quiet && now - p->said_ns >= (p->is_terminal ? EVERY_BAR_NS : EVERY_LINE_NS)) {
        p->said_ns = now;
        say(p, now);
    }
    (void)pthread_mutex_unlock(&p->mutex);
}

void pull_progress_take_back(struct pull_progress *p, uint64_t n_bytes)
{
    (void)pthread_mutex_lock(&p->mutex);
    p->done -= n_bytes < p->done ? n_bytes : p->done;
    (void)pthread_mutex_unlock(&p->mutex);
}

void pull_progress_clear(struct pull_progress *p)
{
    if (p->is_drawn)
        fputs("\r\033[K", stderr);
    p->is_drawn = false;
}
