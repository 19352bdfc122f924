#pragma once
/* Draws histograms of the latencies, as text for a terminal and as one SVG file. Bins have equal
 * widths from the minimum to the 99th percentile. All larger values are counted in one last bin,
 * so that a single late answer does not widen the other bins. */
#include <stdio.h>

#include "cli/bench/report/metrics.h"

enum { BENCH_BINS = 20 };

struct bench_histogram {
    /* lower end of the first bin, and width of the first n_bins bins, in ms */
    double from_ms, width_ms;
    /* counts per bin; counts[n_bins] is the count of the larger values */
    uint32_t counts[BENCH_BINS + 1];
    /* n_bins: 0 = empty series, 1 = all values are equal; most: largest count */
    uint32_t n_bins, most;
};

/* Counts the values of a sorted series in the bins of `h`. */
void bench_histogram_make(struct bench_histogram *h, const struct bench_series *s);
/* Prints a histogram of each metric in the mask `shown`, at most `columns` wide. */
void bench_plot_text(const struct bench_metrics *m, unsigned shown, int columns, FILE *to);
/* Appends the SVG picture. `title` may hold any text. The function escapes it. */
void bench_plot_svg(const struct bench_metrics *m, unsigned shown, const char *title,
                    struct strbuf *out);
MUST_USE enum status bench_plot_write(const struct bench_metrics *m, unsigned shown,
                                      const char *title, const char *path, struct error *err);
