#pragma once
/* How latencies are spread, drawn: bars of text for a terminal, and the same as one SVG file. Bins
 * are of equal width from the least to the 99th percentile; what is above is in a last bin of its
 * own, so that one late answer does not squeeze all others into the first. */
#include <stdio.h>

#include "cli/bench/report/metrics.h"

enum { BENCH_BINS = 20 };

struct bench_histogram {
    double from_ms, width_ms;        /* of the first n_bins bins */
    uint32_t counts[BENCH_BINS + 1]; /* the last: above them */
    uint32_t n_bins, most;           /* n_bins 0: an empty series, 1: all values are one */
};

/* s is ascending. */
void bench_histogram_make(struct bench_histogram *h, const struct bench_series *s);
/* Each metric of the mask; bars are columns wide at most. */
void bench_plot_text(const struct bench_metrics *m, unsigned shown, int columns, FILE *to);
/* title: of whoever's words, escaped here. */
void bench_plot_svg(const struct bench_metrics *m, unsigned shown, const char *title,
                    struct strbuf *out);
MUST_USE enum status bench_plot_write(const struct bench_metrics *m, unsigned shown,
                                      const char *title, const char *path, struct error *err);
