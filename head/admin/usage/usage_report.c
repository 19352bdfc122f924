/* Shows what tenants used, as JSON and as series.
 *
 * admin/api.c calls `usage_report_json` for GET /api/usage, and admin/metrics.c calls
 * `usage_series_update` before each scrape. Both read the rows of head/usage.
 *
 * Invariants: all numbers of an answer are of one moment, so the rows sum to the totals exactly.
 * A tenant has series from its first request or never, and its label does not change, so no
 * counter falls. Two tenants never have the same label. */
#include "head/admin/usage/usage_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "head/state/head_core.h"
#include "head/state/served_model.h"

/* ---- JSON ---- */

static void put_counts(struct strbuf *out, const struct usage_counts *c)
{
    strbuf_printf(out,
                  "\"requests\":%" PRIu64 ",\"prompt_tokens\":%" PRIu64
                  ",\"cached_tokens\":%" PRIu64 ",\"generated_tokens\":%" PRIu64
                  ",\"block_ms\":%" PRIu64 ",\"step_ns\":%" PRIu64 "}",
                  c->n_requests, c->n_prompt_tokens, c->n_cached_tokens, c->n_generated_tokens,
                  c->block_ms, c->step_ns);
}

static void put_tenant(const struct usage *u, const struct usage_row *row, struct strbuf *out)
{
    const struct usage_counts now = usage_row_now(u, row);
    strbuf_append_c(out, "{\"name\":");
    if (row->name[0])
        strbuf_append_json(out, str_from(row->name));
    else
        strbuf_append_c(out, "null");
    strbuf_printf(out, ",\"tenant\":\"%016" PRIx64 "\",", row->tenant);
    put_counts(out, &now);
}

static int by_step_time(const void *a, const void *b)
{
    const struct usage_row *x = *(const struct usage_row *const *)a,
                           *y = *(const struct usage_row *const *)b;
    if (x->counts.step_ns != y->counts.step_ns)
        return x->counts.step_ns > y->counts.step_ns ? -1 : 1;
    return x->tenant < y->tenant ? -1 : x->tenant > y->tenant;
}

void usage_report_json(const struct head_core *h, struct strbuf *out)
{
    static const struct usage_row *sorted[USAGE_ROWS];
    const struct usage *u = &h->usage;
    const struct usage_counts totals = usage_totals_now(u);
    const struct usage_row *other = &u->rows[0];
    for (uint32_t i = 0; i < u->n_rows; i++)
        sorted[i] = &u->rows[i + 1];
    qsort(sorted, u->n_rows, sizeof *sorted, by_step_time);
    strbuf_append_c(out, "{\"model\":");
    strbuf_append_json(out, str_from(served_model_now(h).name));
    strbuf_printf(out, ",\"since\":%.3f,\"totals\":{",
                  seconds_of_ns(h->start_ns + h->config.wall_offset_ns));
    put_counts(out, &totals);
    strbuf_append_c(out, ",\"tenants\":[");
    for (uint32_t i = 0; i < u->n_rows; i++) {
        strbuf_append_c(out, i ? "," : "");
        put_tenant(u, sorted[i], out);
    }
    if (u->n_folded > 0 || other->counts.n_requests > 0) {
        const struct usage_counts now = usage_row_now(u, other);
        strbuf_append_c(out, u->n_rows ? "," : "");
        strbuf_append_c(out, "{\"name\":\"other\",\"tenant\":null,");
        put_counts(out, &now);
    }
    strbuf_append_c(out, "]}");
}

/* ---- series ---- */

enum { N_METRICS = 6 };
#define OTHER_LABEL  "other"
#define NO_KEY_LABEL "no-key"

struct tenant_series {
    struct metric *metrics[N_METRICS];
    char label[USAGE_NAME_BYTES];
};

struct usage_series {
    struct metrics *registry;
    const char *labels; /* labels of every series; borrowed */
    struct tenant_series tenants[USAGE_SERIES], other;
    uint32_t i_row[USAGE_SERIES]; /* row of each tenant's series; the row never changes */
    uint32_t n;
    uint32_t n_rows_seen; /* rows up to here have series, or never get any */
};

static void add_metrics(struct usage_series *s, struct tenant_series *t)
{
    static const struct {
        const char *name, *help;
    } rows[N_METRICS] = {
        {"coxswain_tenant_requests_total", "Requests accepted, by tenant."},
        {"coxswain_tenant_prompt_tokens_total", "Prompt tokens computed, by tenant."},
        {"coxswain_tenant_cached_tokens_total", "Prompt tokens from the prefix cache, by tenant."},
        {"coxswain_tenant_generated_tokens_total", "Tokens generated, by tenant."},
        {"coxswain_tenant_block_seconds_total", "KV blocks held times seconds, by tenant."},
        {"coxswain_tenant_step_seconds_total", "Part of the time of steps, by tenant."},
    };
    struct strbuf l;
    strbuf_init(&l, 0);
    strbuf_append_c(&l, s->labels);
    metrics_label(&l, "tenant", str_from(t->label));
    for (size_t i = 0; i < N_METRICS; i++)
        t->metrics[i] =
            metrics_counter(s->registry, rows[i].name, strbuf_str(&l).ptr, rows[i].help);
    strbuf_fini(&l);
}

struct usage_series *usage_series_new(struct metrics *registry, const char *labels)
{
    struct usage_series *s = mem_zalloc(sizeof *s);
    s->registry = registry;
    s->labels = labels;
    snprintf(s->other.label, sizeof s->other.label, OTHER_LABEL);
    return s;
}

/* Returns true when another tenant's label, or a word with a meaning of its own, is this name. */
static bool is_taken(const struct usage_series *s, const char *name)
{
    bool taken = strcmp(name, OTHER_LABEL) == 0 || strcmp(name, NO_KEY_LABEL) == 0;
    for (uint32_t i = 0; i < s->n; i++)
        taken |= strcmp(name, s->tenants[i].label) == 0;
    return taken;
}

static void add_tenant(struct usage_series *s, uint32_t i_row, const struct usage_row *row)
{
    struct tenant_series *t = &s->tenants[s->n];
    if (row->tenant == 0)
        snprintf(t->label, sizeof t->label, NO_KEY_LABEL);
    else if (row->name[0] && !is_taken(s, row->name))
        snprintf(t->label, sizeof t->label, "%s", row->name);
    else
        snprintf(t->label, sizeof t->label, "%016" PRIx64, row->tenant);
    s->i_row[s->n++] = i_row;
    add_metrics(s, t);
}

static void set(struct tenant_series *t, const struct usage_counts *c)
{
    const double values[N_METRICS] = {(double)c->n_requests,      (double)c->n_prompt_tokens,
                                      (double)c->n_cached_tokens, (double)c->n_generated_tokens,
                                      (double)c->block_ms / 1e3,  (double)c->step_ns / 1e9};
    for (size_t i = 0; i < N_METRICS; i++)
        if (values[i] > metric_value(t->metrics[i]))
            metric_add(t->metrics[i], values[i] - metric_value(t->metrics[i]));
}

void usage_series_update(struct usage_series *s, const struct head_core *h)
{
    const struct usage *u = &h->usage;
    /* rows are made in order, and those with series are the first ones */
    for (; s->n < USAGE_SERIES && s->n_rows_seen < u->n_rows; s->n_rows_seen++)
        if (u->rows[s->n_rows_seen + 1].has_series)
            add_tenant(s, s->n_rows_seen + 1, &u->rows[s->n_rows_seen + 1]);
    for (uint32_t i = 0; i < s->n; i++) {
        const struct usage_counts now = usage_row_now(u, &u->rows[s->i_row[i]]);
        set(&s->tenants[i], &now);
    }
    if (u->n_rows <= USAGE_SERIES)
        return;
    const struct usage_counts rest = usage_rest_now(u);
    if (!s->other.metrics[0])
        add_metrics(s, &s->other);
    set(&s->other, &rest);
}

void usage_series_free(struct usage_series *s)
{
    mem_free(s);
}
