#pragma once
/* Draws the distribution of latencies, as bars of text for a terminal and as one SVG file. Bins
 * have equal widths from the minimum to the 99th percentile. All larger values are in one last
 * bin, so that a single late answer does not squeeze the other values into the first bin. */
#include <stdio.h>

#include "cli/bench/report/metrics.h"

enum { BENCH_BINS = 20 };

struct bench_histogram {
    double from_ms, width_ms; /* begin and width of the first n_bins bins, in ms */
    /* counts per bin; counts[n_bins] counts the values above the other bins */
    uint32_t counts[BENCH_BINS + 1];
    /* n_bins: 0 = empty series, 1 = all values are equal; most: largest count */
    uint32_t n_bins, most;
};

/* Counts the values of a sorted series. */
void bench_histogram_make(struct bench_histogram *h, const struct bench_series *s);
/* Prints a histogram of each metric in the mask `shown`, at most `columns` wide. */
void bench_plot_text(const struct bench_metrics *m, unsigned shown, int columns, FILE *to);
/* Appends the SVG picture. `title` may hold any text; it is escaped here. */
void bench_plot_svg(const struct bench_metrics *m, unsigned shown, const char *title,
                    struct strbuf *out);
MUST_USE enum status bench_plot_write(const struct bench_metrics *m, unsigned shown,
                                      const char *title, const char *path, struct error *err);
