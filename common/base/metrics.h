#pragma once
/* Keeps metrics and writes them in Prometheus text format 0.0.4. A registry owns its metrics,
 * and a metric pointer is valid until `metrics_drop` or the end of the registry. Values are relaxed
 * atomics: any thread may update them, one thread renders. Names follow vLLM's where an equivalent
 * exists (vllm:num_requests_running), otherwise they begin with coxswain_. Units are suffixes
 * (_total, _seconds, _bytes). `labels` is the text between the braces: `model_name="demo"`. */
#include <stdint.h>

#include "common/base/str.h"

struct metrics;
struct metric;

struct metrics *metrics_new(void);
void metrics_free(struct metrics *m);

struct metric *metrics_counter(struct metrics *m, const char *name, const char *labels,
                               const char *help);
struct metric *metrics_gauge(struct metrics *m, const char *name, const char *labels,
                             const char *help);
/* Creates a histogram. `bounds` are ascending upper bounds. The function adds +Inf. */
struct metric *metrics_histogram(struct metrics *m, const char *name, const char *labels,
                                 const char *help, const double *bounds, uint32_t n_bounds);
/* Replaces the labels of an info metric and keeps its one series. Call it only on the thread
 * that renders. */
void metric_relabel(struct metric *m, const char *labels);
void metric_add(struct metric *c, double by);        /* `c` is a counter or a gauge */
void metric_set(struct metric *g, double value);     /* `g` is a gauge */
void metric_observe(struct metric *h, double value); /* `h` is a histogram */
/* Returns the value of a counter or gauge, or the sum of a histogram. */
double metric_value(const struct metric *m);
/* Appends name="value" to `labels`, escaped as the format requires. A comma precedes the pair
 * unless `labels` is empty. The value is cut at the first byte that is not valid UTF-8, and
 * after METRICS_LABEL_MAX bytes. */
enum { METRICS_LABEL_MAX = 2048 };
void metrics_label(struct strbuf *labels, const char *name, struct str value);
/* Removes every series whose labels contain the pair name="value", and frees its metrics. Call it
 * when nothing counts for that value any more, on the thread that renders. */
void metrics_drop(struct metrics *m, const char *name, struct str value);
/* Writes HELP and TYPE once per name, then every series. */
void metrics_render(struct metrics *m, struct strbuf *out);
