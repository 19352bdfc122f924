/* Draws histograms of the latencies, as text for a terminal and as an SVG picture.
 * `bench_histogram_make` counts a sorted series into bins. `bench_plot_text` prints the
 * histograms. `bench_plot_svg` and `bench_plot_write` make the picture with a chart per metric.
 * Invariants: there are at most BENCH_BINS bins, and one more for all values above the 99th
 * percentile. The title is escaped. There is no state, and the caller owns the buffer. */
#include "cli/bench/report/plot.h"

#include <errno.h>
#include <string.h>

enum { /* sizes in the picture, in pixels */
       CHART_WIDTH = 560,
       CHART_HEIGHT = 190,
       HEAD = 72,
       LEFT = 56,
       PLOT_WIDTH = 480,
       PLOT_HEIGHT = 100,
       PLOT_TOP = 34
};

void bench_histogram_make(struct bench_histogram *h, const struct bench_series *s)
{
    *h = (struct bench_histogram){0};
    if (s->n == 0)
        return;
    double to = bench_percentile(s, 99);
    h->from_ms = s->values[0];
    h->n_bins = to > h->from_ms ? BENCH_BINS : 1;
    h->width_ms = (to - h->from_ms) / h->n_bins;
    for (size_t i = 0; i < s->n; i++) {
        double v = s->values[i];
        uint32_t bin = h->n_bins; /* bin for the values above all other bins */
        if (v <= to)
            bin = h->width_ms > 0 ? (uint32_t)((v - h->from_ms) / h->width_ms) : 0;
        if (v <= to && bin >= h->n_bins)
            bin = h->n_bins - 1; /* a value equal to the upper bound belongs to the last bin */
        h->counts[bin]++;
    }
    for (uint32_t i = 0; i <= h->n_bins; i++)
        h->most = h->counts[i] > h->most ? h->counts[i] : h->most;
}

static double bin_from(const struct bench_histogram *h, uint32_t i)
{
    return h->from_ms + i * h->width_ms;
}

static bool is_shown(const struct bench_metrics *m, unsigned shown, int k)
{
    return (shown >> k & 1) && m->series[k].n > 0;
}

/* ---- text ---- */

/* Prints a bar in steps of an eighth of a column, with Unicode block characters. */
static void print_bar(FILE *to, uint32_t count, uint32_t most, int columns)
{
    static const char *const parts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    uint64_t eighths = ((uint64_t)count * (uint64_t)columns * 8 + most - 1) / most;
    for (uint64_t i = 0; i < eighths / 8; i++)
        fputs("█", to);
    fputs(parts[eighths % 8], to);
}

static void print_histogram(FILE *to, const struct bench_series *s, const char *name, int columns)
{
    struct bench_histogram h;
    bench_histogram_make(&h, s);
    fprintf(to, "%s (ms), %zu values\n", name, s->n);
    for (uint32_t i = 0; i < h.n_bins + (h.counts[h.n_bins] > 0); i++) {
        fprintf(to, "%s%10.2f %8u ", i == h.n_bins ? ">" : " ", bin_from(&h, i), h.counts[i]);
        print_bar(to, h.counts[i], h.most, columns);
        fputc('\n', to);
    }
}

void bench_plot_text(const struct bench_metrics *m, unsigned shown, int columns, FILE *to)
{
    const int left = 21; /* number of columns for the bound and the count of a bin */
    columns = columns > left + 10 ? columns - left : 10;
    for (int k = 0; k < BENCH_METRIC_COUNT; k++)
        if (is_shown(m, shown, k))
            print_histogram(to, &m->series[k], bench_metric_head((enum bench_metric)k), columns);
}

/* ---- SVG ---- */

static void append_escaped(struct strbuf *b, const char *text)
{
    size_t n = strlen(text);
    if (str_utf8_valid((struct str){text, n}) != n)
        text = "?";
    for (; *text; text++) {
        if (*text == '<')
            strbuf_append_c(b, "&lt;");
        else if (*text == '&')
            strbuf_append_c(b, "&amp;");
        else if ((unsigned char)*text >= 0x20)
            strbuf_append(b, text, 1);
    }
}

static void append_line(struct strbuf *b, double x, const char *class, const char *name, double ms)
{
    strbuf_printf(b,
                  "<line class=\"%s\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"><title>%s %.2f "
                  "ms</title></line>\n",
                  class, x, PLOT_TOP, x, PLOT_TOP + PLOT_HEIGHT, name, ms);
}

/* Returns the x coordinate of a value. A value above all bins is placed in the last bin. */
static double x_of(const struct bench_histogram *h, double ms)
{
    double bin = h->width_ms > 0 ? (ms - h->from_ms) / h->width_ms : 0.5;
    bin = bin > h->n_bins ? h->n_bins + 0.5 : bin;
    return LEFT + bin * PLOT_WIDTH / (h->n_bins + 1);
}

static void append_bars(struct strbuf *b, const struct bench_histogram *h)
{
    double width = (double)PLOT_WIDTH / (h->n_bins + 1);
    for (uint32_t i = 0; i <= h->n_bins; i++) {
        double height = (double)h->counts[i] * PLOT_HEIGHT / h->most;
        strbuf_printf(b,
                      "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\">"
                      "<title>%s%.2f ms: %u</title></rect>\n",
                      i == h->n_bins ? "above" : "bar", LEFT + i * width,
                      PLOT_TOP + PLOT_HEIGHT - height, width - 1, height,
                      i == h->n_bins ? "above " : "from ", bin_from(h, i), h->counts[i]);
    }
}

/* Writes three values below the axis: at its start, at its middle, and at the start of the last
 * bin. */
static void append_scale(struct strbuf *b, const struct bench_histogram *h)
{
    const uint32_t at[] = {0, h->n_bins / 2, h->n_bins};
    strbuf_printf(b, "<text class=\"small\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%u</text>\n",
                  LEFT - 6, PLOT_TOP + 8, h->most);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        if (i == 0 || at[i] > at[i - 1])
            strbuf_printf(
                b, "<text class=\"small\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.2f</text>\n",
                x_of(h, bin_from(h, at[i])), PLOT_TOP + PLOT_HEIGHT + 16, bin_from(h, at[i]));
}

static void append_chart(struct strbuf *b, const struct bench_series *s, enum bench_metric metric,
                         int y)
{
    struct bench_histogram h;
    const struct bench_spread spread = bench_spread(s);
    double p99 = bench_percentile(s, 99);
    bench_histogram_make(&h, s);
    strbuf_printf(b,
                  "<g transform=\"translate(0 %d)\">\n<text x=\"%d\" y=\"18\">%s</text>\n"
                  "<text class=\"small\" x=\"%d\" y=\"18\" text-anchor=\"end\">%zu values, median "
                  "%.2f ms, P99 %.2f ms</text>\n",
                  y, LEFT, bench_metric_name(metric), LEFT + PLOT_WIDTH, s->n, spread.median, p99);
    append_bars(b, &h);
    append_line(b, x_of(&h, spread.median), "median", "median", spread.median);
    append_line(b, x_of(&h, p99), "p99", "P99", p99);
    append_scale(b, &h);
    strbuf_append_c(b, "</g>\n");
}

void bench_plot_svg(const struct bench_metrics *m, unsigned shown, const char *title,
                    struct strbuf *b)
{
    int n = 0, at = 0;
    for (int k = 0; k < BENCH_METRIC_COUNT; k++)
        n += is_shown(m, shown, k);
    int height = HEAD + n * CHART_HEIGHT;
    strbuf_printf(
        b,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d "
        "%d\" role=\"img\">\n<style>\n"
        "svg { background: #fff; color: #222; font: 14px system-ui, sans-serif }\n"
        "text { fill: currentColor } .small { font-size: 11px }\n"
        ".bar { fill: #3b6fb6 } .above { fill: #b65b3b }\n"
        "line { stroke-width: 1.5 } .median { stroke: #222 } "
        ".p99 { stroke: #b65b3b; stroke-dasharray: 4 3 }\n"
        "@media (prefers-color-scheme: dark) { svg { background: #16181c; color: #ddd } "
        ".bar { fill: #7aa5e0 } .median { stroke: #ddd } }\n</style>\n<title>",
        CHART_WIDTH, height, CHART_WIDTH, height);
    append_escaped(b, title);
    strbuf_printf(b, "</title>\n<text x=\"%d\" y=\"24\">", LEFT);
    append_escaped(b, title);
    strbuf_printf(b,
                  "</text>\n<text class=\"small\" x=\"%d\" y=\"42\">%.2f requests/s, %.2f output "
                  "tokens/s, %u answered, %u failed</text>\n<text class=\"small\" x=\"%d\" "
                  "y=\"58\">counts by milliseconds; line: median, dashed: P99; the last bar is all "
                  "above it</text>\n",
                  LEFT, m->requests_per_s, m->output_per_s, m->n_completed, m->n_failed, LEFT);
    for (int k = 0; k < BENCH_METRIC_COUNT; k++)
        if (is_shown(m, shown, k))
            append_chart(b, &m->series[k], (enum bench_metric)k, HEAD + at++ * CHART_HEIGHT);
    strbuf_append_c(b, "</svg>\n");
}

enum status bench_plot_write(const struct bench_metrics *m, unsigned shown, const char *title,
                             const char *path, struct error *err)
{
    struct strbuf b;
    FILE *f = fopen(path, "we");
    if (!f)
        return error_set(err, STATUS_IO, "cannot write --plot %s: %s", path, strerror(errno));
    strbuf_init(&b, 0);
    bench_plot_svg(m, shown, title, &b);
    bool ok = fwrite(b.ptr, 1, b.len, f) == b.len;
    ok = fclose(f) == 0 && ok;
    strbuf_fini(&b);
    return ok ? STATUS_OK
              : error_set(err, STATUS_IO,
                          "--plot %s is incomplete: writing failed. Check the free disk space",
                          path);
}
