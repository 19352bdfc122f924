#include "head/admin/history.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "head/core/stats.h"
#include "head/state/head_core.h"

#define LATENCY_NS (10 * NS_PER_S) /* age up to which ended requests count for latencies */

void history_init(struct history *t)
{
    *t = (struct history){.ring = mem_array(HISTORY_SAMPLES, sizeof *t->ring)};
}

void history_fini(struct history *t)
{
    mem_free(t->ring);
    *t = (struct history){0};
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Sets the lower median, and the value at 95 % of the largest index of the sorted values,
 * rounded down. Both are -1 when there is no value. */
static void set_quantiles(double *values, uint32_t n, double out[2])
{
    out[0] = out[1] = -1;
    if (n == 0)
        return;
    qsort(values, n, sizeof *values, compare);
    out[0] = values[(n - 1) / 2];
    out[1] = values[(uint32_t)((uint64_t)(n - 1) * 95 / 100)];
}

static void set_latencies(const struct head_core *h, struct history_sample *out)
{
    double ttft[HISTORY_WINDOW], itl[HISTORY_WINDOW], e2e[HISTORY_WINDOW];
    uint32_t n_ttft = 0, n_itl = 0, n_e2e = 0;
    const struct request_row *row;
    for (uint32_t i = 0; i < HISTORY_WINDOW; i++) {
        row = ended_requests_at(&h->ended, i);
        if (!row || row->end_ns + LATENCY_NS < h->now_ns)
            break;
        if (row->state != REQUEST_FINISHED || !row->first_token_ns)
            continue;
        struct request_times t = request_row_times(row, h->now_ns);
        ttft[n_ttft++] = seconds_of_ns(row->first_token_ns - row->arrival_ns);
        e2e[n_e2e++] = seconds_of_ns(row->end_ns - row->arrival_ns);
        if (row->n_generated > 1)
            itl[n_itl++] = seconds_of_ns(t.decode_ns) / (row->n_generated - 1);
    }
    set_quantiles(ttft, n_ttft, out->ttft_s);
    set_quantiles(itl, n_itl, out->itl_s);
    set_quantiles(e2e, n_e2e, out->e2e_s);
}

static uint32_t risen(uint64_t *was, uint64_t is)
{
    uint64_t by = is > *was ? is - *was : 0; /* the count of cancelled requests can fall by one */
    *was = is;
    return by > UINT32_MAX ? UINT32_MAX : (uint32_t)by;
}

void history_take(struct history *t, const struct head_core *h)
{
    struct head_stats s;
    head_core_get_stats(h, &s);
    struct history_sample *x = &t->ring[t->n++ % HISTORY_SAMPLES];
    *x = (struct history_sample){
        .wall_ms = (h->now_ns + h->events.wall_offset_ns) / NS_PER_MS,
        .running = s.running,
        .waiting = s.waiting,
        .replicas_ready = s.n_replicas_ready,
        .workers = s.n_workers,
        .prompt_tokens_per_s = s.prompt_tokens_per_s,
        .generation_tokens_per_s = s.generation_tokens_per_s,
        .kv_usage = s.n_blocks ? (double)s.n_blocks_used / (double)s.n_blocks : 0,
        .prefix_hit_rate =
            s.prefix_query_tokens ? (double)s.prefix_hit_tokens / (double)s.prefix_query_tokens : 0,
        .n_finished = risen(&t->n_finished, s.n_finished),
        .n_failed = risen(&t->n_failed, s.n_failed),
        .n_cancelled = risen(&t->n_cancelled, s.n_cancelled),
        .n_preempted = risen(&t->n_preempted, s.n_preemptions),
    };
    set_latencies(h, x);
}

const struct history_sample *history_get(const struct history *t, uint64_t *since)
{
    uint64_t oldest = t->n > HISTORY_SAMPLES ? t->n - HISTORY_SAMPLES : 0;
    if (*since < oldest)
        *since = oldest;
    return *since < t->n ? &t->ring[*since % HISTORY_SAMPLES] : NULL;
}
