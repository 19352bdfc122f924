/* Keeps metrics for Prometheus. Any thread updates a metric through the pointer that
 * metrics_counter, metrics_gauge or metrics_histogram returned. metrics_render writes all
 * metrics as text.
 * A registry is a list of families (one HELP and TYPE each), and a family is a list of series.
 * Families and series are added at start-up or on the loop; series leave by `metrics_drop`. Updates
 * are relaxed atomics, so that a compute thread may count while the loop renders. A double is
 * stored as its bits in an atomic word. */
#include "common/base/metrics.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "common/base/mem.h"

enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

struct metric {
    struct metric *next;
    enum metric_kind kind;
    char *labels;
    _Atomic uint64_t value_bits; /* value as the bits of a double; for a histogram, the sum */
    const double *bounds; /* upper bounds of a histogram, [n_bounds], owned; NULL for other kinds */
    uint32_t n_bounds;
    /* counts per bucket, [n_bounds + 1], not cumulative; the last bucket is +Inf */
    _Atomic uint64_t *buckets;
};

struct family {
    struct family *next;
    enum metric_kind kind;
    char *name, *help;
    struct metric *first, *last;
};

struct metrics {
    struct family *first, *last;
};

static uint64_t to_bits(double d)
{
    uint64_t b;
    memcpy(&b, &d, sizeof b);
    return b;
}

static double from_bits(uint64_t b)
{
    double d;
    memcpy(&d, &b, sizeof d);
    return d;
}

struct metrics *metrics_new(void)
{
    return mem_zalloc(sizeof(struct metrics));
}

static void metric_free(struct metric *m)
{
    mem_free(m->labels);
    mem_free((void *)m->bounds);
    mem_free(m->buckets);
    mem_free(m);
}

void metrics_free(struct metrics *m)
{
    if (!m)
        return;
    for (struct family *f = m->first, *next_family; f; f = next_family) {
        next_family = f->next;
        for (struct metric *s = f->first, *next; s; s = next) {
            next = s->next;
            metric_free(s);
        }
        mem_free(f->name);
        mem_free(f->help);
        mem_free(f);
    }
    mem_free(m);
}

static struct family *family_get(struct metrics *m, const char *name, enum metric_kind kind,
                                 const char *help)
{
    for (struct family *f = m->first; f; f = f->next) {
        if (strcmp(f->name, name) == 0) {
            assert(f->kind == kind);
            return f;
        }
    }
    struct family *f = mem_zalloc(sizeof *f);
    f->kind = kind;
    f->name = mem_strdup(name);
    f->help = mem_strdup(help ? help : "");
    if (m->last)
        m->last->next = f;
    else
        m->first = f;
    m->last = f;
    return f;
}

/* Returns the existing series when the name and the labels are the same, otherwise a new series. */
static struct metric *series_get(struct metrics *m, const char *name, const char *labels,
                                 enum metric_kind kind, const char *help)
{
    struct family *f = family_get(m, name, kind, help);
    labels = labels ? labels : "";
    for (struct metric *s = f->first; s; s = s->next) {
        if (strcmp(s->labels, labels) == 0)
            return s;
    }
    struct metric *s = mem_zalloc(sizeof *s);
    s->kind = kind;
    s->labels = mem_strdup(labels);
    if (f->last)
        f->last->next = s;
    else
        f->first = s;
    f->last = s;
    return s;
}

struct metric *metrics_counter(struct metrics *m, const char *name, const char *labels,
                               const char *help)
{
    return series_get(m, name, labels, METRIC_COUNTER, help);
}

struct metric *metrics_gauge(struct metrics *m, const char *name, const char *labels,
                             const char *help)
{
    return series_get(m, name, labels, METRIC_GAUGE, help);
}

struct metric *metrics_histogram(struct metrics *m, const char *name, const char *labels,
                                 const char *help, const double *bounds, uint32_t n_bounds)
{
    struct metric *s = series_get(m, name, labels, METRIC_HISTOGRAM, help);
    if (s->buckets)
        return s;
    double *own = mem_array(n_bounds, sizeof *own);
    for (uint32_t i = 0; i < n_bounds; i++) {
        assert(i == 0 || bounds[i] > bounds[i - 1]);
        own[i] = bounds[i];
    }
    s->bounds = own;
    s->n_bounds = n_bounds;
    s->buckets = mem_array(n_bounds + 1, sizeof *s->buckets);
    return s;
}

void metric_relabel(struct metric *m, const char *labels)
{
    if (strcmp(m->labels, labels) == 0)
        return;
    mem_free(m->labels);
    m->labels = mem_strdup(labels);
}

void metrics_label(struct strbuf *labels, const char *name, struct str value)
{
    if (value.len > METRICS_LABEL_MAX)
        value.len = METRICS_LABEL_MAX;
    value.len = str_utf8_valid(value);
    strbuf_printf(labels, "%s%s=\"", labels->len > 0 ? "," : "", name);
    for (size_t i = 0; i < value.len; i++) {
        if (value.ptr[i] == '\n')
            strbuf_append_c(labels, "\\n");
        else if (value.ptr[i] == '"' || value.ptr[i] == '\\')
            strbuf_printf(labels, "\\%c", value.ptr[i]);
        else
            strbuf_append(labels, value.ptr + i, 1);
    }
    strbuf_append_c(labels, "\"");
}

/* Returns true when the labels contain the pair. A value's quotes are escaped, so the text of a
 * pair appears only as a pair. */
static bool has_pair(const char *labels, const char *pair)
{
    for (const char *at = strstr(labels, pair); at; at = strstr(at + 1, pair))
        if (at == labels || at[-1] == ',')
            return true;
    return false;
}

static void drop_series(struct family *f, const char *pair)
{
    struct metric **link = &f->first;
    f->last = NULL;
    while (*link) {
        struct metric *s = *link;
        if (has_pair(s->labels, pair)) {
            *link = s->next;
            metric_free(s);
        } else {
            f->last = s;
            link = &s->next;
        }
    }
}

void metrics_drop(struct metrics *m, const char *name, struct str value)
{
    struct strbuf pair;
    strbuf_init(&pair, 0);
    metrics_label(&pair, name, value);
    strbuf_append(&pair, "", 1);
    for (struct family *f = m->first; f; f = f->next)
        drop_series(f, pair.ptr);
    strbuf_fini(&pair);
}

static void add_to_value(struct metric *m, double by)
{
    uint64_t old = atomic_load_explicit(&m->value_bits, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&m->value_bits, &old,
                                                  to_bits(from_bits(old) + by),
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
}

void metric_add(struct metric *c, double by)
{
    assert(c->kind != METRIC_HISTOGRAM && (c->kind == METRIC_GAUGE || by >= 0));
    add_to_value(c, by);
}

void metric_set(struct metric *g, double value)
{
    assert(g->kind == METRIC_GAUGE);
    atomic_store_explicit(&g->value_bits, to_bits(value), memory_order_relaxed);
}

void metric_observe(struct metric *h, double value)
{
    assert(h->kind == METRIC_HISTOGRAM);
    uint32_t lo = 0, hi = h->n_bounds;
    while (lo < hi) { /* the search finds the first bound >= value */
        uint32_t mid = (lo + hi) / 2;
        if (h->bounds[mid] >= value)
            hi = mid;
        else
            lo = mid + 1;
    }
    atomic_fetch_add_explicit(&h->buckets[lo], 1, memory_order_relaxed);
    add_to_value(h, value);
}

double metric_value(const struct metric *m)
{
    return from_bits(atomic_load_explicit(&m->value_bits, memory_order_relaxed));
}

static void render_number(struct strbuf *out, double v)
{
    if (isnan(v))
        strbuf_append_c(out, "NaN");
    else if (isinf(v))
        strbuf_append_c(out, v > 0 ? "+Inf" : "-Inf");
    else if (v == floor(v) && fabs(v) < 1e15)
        strbuf_printf(out, "%.0f", v);
    else
        strbuf_printf(out, "%.9g", v);
}

static void render_bucket(struct strbuf *out, const struct family *f, const struct metric *s,
                          double bound, uint64_t count)
{
    strbuf_printf(out, "%s_bucket{%s%sle=\"", f->name, s->labels, *s->labels ? "," : "");
    render_number(out, bound);
    strbuf_printf(out, "\"} %llu\n", (unsigned long long)count);
}

static void render_name(struct strbuf *out, const struct family *f, const struct metric *s,
                        const char *suffix)
{
    if (*s->labels)
        strbuf_printf(out, "%s%s{%s} ", f->name, suffix, s->labels);
    else
        strbuf_printf(out, "%s%s ", f->name, suffix);
}

static void render_histogram(struct strbuf *out, const struct family *f, const struct metric *s)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i <= s->n_bounds; i++) {
        total += atomic_load_explicit(&s->buckets[i], memory_order_relaxed);
        render_bucket(out, f, s, i < s->n_bounds ? s->bounds[i] : (double)INFINITY, total);
    }
    render_name(out, f, s, "_sum");
    render_number(out, metric_value(s));
    strbuf_append_c(out, "\n");
    render_name(out, f, s, "_count");
    strbuf_printf(out, "%llu\n", (unsigned long long)total);
}

void metrics_render(struct metrics *m, struct strbuf *out)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    for (const struct family *f = m->first; f; f = f->next) {
        if (!f->first) /* all series were dropped */
            continue;
        strbuf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", f->name, f->help, f->name,
                      kinds[f->kind]);
        for (const struct metric *s = f->first; s; s = s->next) {
            if (s->kind == METRIC_HISTOGRAM) {
                render_histogram(out, f, s);
                continue;
            }
            render_name(out, f, s, "");
            render_number(out, metric_value(s));
            strbuf_append_c(out, "\n");
        }
    }
}
