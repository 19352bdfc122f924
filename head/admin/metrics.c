/* Exports the head's Prometheus metrics.
 *
 * admin/api.c calls `head_metrics_update` before it answers /metrics. That function copies
 * values from the core's `head_stats` into a `struct metrics` registry. The core itself adds
 * values to the histograms as steps end.
 *
 * Invariants: everything runs on the loop thread. Counters never fall. A metric whose value is
 * unknown has no series until the value is known. */
#include "head/admin/metrics.h"

#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "head/admin/usage/usage_report.h"

/* A row describes one metric, whose value is read from `head_stats` at `offset`. */
enum value_type { VALUE_U32, VALUE_U64 };
static const struct row {
    const char *name, *help;
    size_t offset;
    enum value_type type;
    bool is_counter;
} rows[] = {
#define GAUGE32(f, n, h)                                                                           \
    {                                                                                              \
        n, h, offsetof(struct head_stats, f), VALUE_U32, false                                     \
    }
#define GAUGE64(f, n, h)                                                                           \
    {                                                                                              \
        n, h, offsetof(struct head_stats, f), VALUE_U64, false                                     \
    }
#define COUNTER64(f, n, h)                                                                         \
    {                                                                                              \
        n, h, offsetof(struct head_stats, f), VALUE_U64, true                                      \
    }
    GAUGE32(running, "vllm:num_requests_running", "Requests in a step's batch."),
    GAUGE32(waiting, "vllm:num_requests_waiting", "Requests that wait for a step."),
    COUNTER64(n_preemptions, "vllm:num_preemptions_total", "Sequences preempted."),
    COUNTER64(n_prompt_tokens, "vllm:prompt_tokens_total", "Prompt tokens computed."),
    COUNTER64(n_generated_tokens, "vllm:generation_tokens_total", "Tokens generated."),
    COUNTER64(prefix_query_tokens, "vllm:prefix_cache_queries_total",
              "Prompt tokens looked up in the prefix cache."),
    COUNTER64(prefix_hit_tokens, "vllm:prefix_cache_hits_total",
              "Prompt tokens found in the prefix cache."),
    COUNTER64(n_draft_steps, "vllm:spec_decode_num_drafts_total",
              "Sequences run with draft tokens, counted once a step."),
    COUNTER64(n_drafted, "vllm:spec_decode_num_draft_tokens_total", "Tokens drafted and run."),
    COUNTER64(n_accepted, "vllm:spec_decode_num_accepted_tokens_total", "Draft tokens kept."),
    COUNTER64(n_finished, "coxswain_requests_finished_total", "Requests that reached their end."),
    COUNTER64(n_failed, "coxswain_requests_failed_total", "Requests that failed or were refused."),
    COUNTER64(n_cancelled, "coxswain_requests_cancelled_total", "Requests that were cancelled."),
    GAUGE64(request_bytes, "coxswain_request_bytes",
            "Bytes of the requests that wait or run (--max-request-bytes)."),
    COUNTER64(n_steps, "coxswain_steps_total", "Steps planned."),
    GAUGE64(n_blocks, "coxswain_kv_blocks", "KV blocks of all ready replicas."),
    GAUGE64(n_blocks_used, "coxswain_kv_blocks_used", "KV blocks in use."),
    COUNTER64(n_evictions, "coxswain_kv_evictions_total", "Blocks evicted from the prefix cache."),
    COUNTER64(n_copied_blocks, "coxswain_kv_copied_blocks_total",
              "Blocks copied because a shared prompt ends inside one."),
    COUNTER64(n_moved, "coxswain_requests_moved_total",
              "Running requests that moved to another replica."),
    COUNTER64(n_recomputed_moves, "coxswain_requests_moved_recomputed_total",
              "Moved requests that were computed again."),
    COUNTER64(n_transfers, "coxswain_kv_transfers_total", "KV transfers between replicas."),
    COUNTER64(n_transfer_failures, "coxswain_kv_transfer_failures_total", "KV transfers failed."),
    COUNTER64(n_transfer_bytes, "coxswain_kv_transfer_bytes_total",
              "Bytes of KV blocks copied between replicas."),
    COUNTER64(n_promises_accepted, "coxswain_promises_accepted_total",
              "Requests accepted with a predicted first token within their x-slo-ttft-ms."),
    COUNTER64(n_promises_unknown, "coxswain_promises_unknown_total",
              "Requests with x-slo-ttft-ms that were accepted without a prediction."),
    COUNTER64(n_promises_refused, "coxswain_promises_refused_total",
              "Requests refused because the predicted first token came too late."),
    COUNTER64(n_promises_kept, "coxswain_promises_kept_total",
              "First tokens that came within x-slo-ttft-ms."),
    COUNTER64(n_promises_missed, "coxswain_promises_missed_total",
              "First tokens that came later than x-slo-ttft-ms."),
    GAUGE32(n_workers, "coxswain_workers", "Workers with a session."),
    GAUGE32(n_stragglers, "coxswain_stragglers", "Workers that make their replica slow."),
    GAUGE32(n_gateways, "coxswain_gateways", "Gateways known."),
    GAUGE32(n_replicas, "coxswain_groups", "Replicas, ready or not."),
    GAUGE32(n_replicas_ready, "coxswain_groups_ready", "Replicas that serve."),
    GAUGE32(n_replicas_shrunk, "coxswain_groups_shrunk",
            "Serving replicas with fewer ranks than TP (--elastic-tp)."),
    GAUGE64(term, "coxswain_term", "The head's term."),
    COUNTER64(n_formations, "coxswain_formations_total", "Formations begun."),
    COUNTER64(n_formation_failures, "coxswain_formation_failures_total", "Formations failed."),
    COUNTER64(n_adoptions, "coxswain_adoptions_total", "Replicas adopted after a head restart."),
    COUNTER64(n_worker_losses, "coxswain_worker_losses_total", "Workers lost."),
    COUNTER64(n_worker_departures, "coxswain_worker_departures_total",
              "Workers that ended as planned, with a Goodbye."),
#undef GAUGE32
#undef GAUGE64
#undef COUNTER64
};
#define N_ROWS (sizeof rows / sizeof rows[0])

struct head_metrics {
    struct metrics *registry;
    struct metric *values[N_ROWS], *kv_usage, *uptime, *sleep, *rank_wait, *step_tokens;
    struct metric *promise_ratio;
    struct metric *serves, *store; /* metrics of the lease; NULL = no lease store */
    /* number of workers that the cluster needs; NULL = not known yet, and no series exists */
    struct metric *desired;
    /* time of a cold start; NULL = not known yet, and no series exists */
    struct metric *cold_start;
    /* `accepted_at` has one metric per draft position; NULL = no ready replica has drafted that
     * far yet. */
    struct metric *accepted_at[SCHEDULER_MAX_DRAFT];
    char *labels; /* labels of every vllm: series; owned */
    struct usage_series *usage;
};

struct head_metrics *head_metrics_new(const char *model_name)
{
    struct head_metrics *m = mem_zalloc(sizeof *m);
    m->registry = metrics_new();
    struct strbuf l;
    strbuf_init(&l, 0);
    metrics_label(&l, "model_name", str_from(model_name));
    metrics_label(&l, "engine", STR("0"));
    const char *labels = m->labels = mem_strdup(strbuf_str(&l).ptr);
    strbuf_fini(&l);
    for (size_t i = 0; i < N_ROWS; i++) {
        m->values[i] = rows[i].is_counter
                           ? metrics_counter(m->registry, rows[i].name, labels, rows[i].help)
                           : metrics_gauge(m->registry, rows[i].name, labels, rows[i].help);
    }
    m->kv_usage = metrics_gauge(m->registry, "vllm:kv_cache_usage_perc", labels,
                                "KV blocks in use; 1 is all of them.");
    static const double bounds[] = {1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4,
                                    5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 1e-1, 1};
    m->rank_wait = metrics_histogram(m->registry, "coxswain_rank_wait_seconds", "",
                                     "Time that a rank waited for the next plan after a step.",
                                     bounds, sizeof bounds / sizeof *bounds);
    static const double n_tokens[] = {1,   8,    16,   32,   64,   128,  256,
                                      512, 1024, 2048, 4096, 8192, 16384};
    m->step_tokens = metrics_histogram(m->registry, "vllm:iteration_tokens_total", labels,
                                       "Prompt and generated tokens in a step.", n_tokens,
                                       sizeof n_tokens / sizeof *n_tokens);
    static const double ratios[] = {0.25, 0.5, 0.75, 0.9, 1, 1.1, 1.25, 1.5, 2, 4};
    m->promise_ratio = metrics_histogram(m->registry, "coxswain_promise_ratio", labels,
                                         "Real time to the first token divided by the predicted "
                                         "one, for requests with x-slo-ttft-ms.",
                                         ratios, sizeof ratios / sizeof *ratios);
    m->sleep = metrics_gauge(m->registry, "coxswain_head_sleep_level", "",
                             "Level at which the model sleeps, or 0.");
    m->uptime = metrics_gauge(m->registry, "coxswain_uptime_seconds", "",
                              "Seconds since the head started.");
    m->usage = usage_series_new(m->registry, m->labels);
    return m;
}

void head_metrics_attach(struct head_metrics *m, struct head_core *core)
{
    head_core_set_rank_wait(core, m->rank_wait);
    head_core_set_step_tokens(core, m->step_tokens);
    head_core_set_promise_ratio(core, m->promise_ratio);
}

static void count_to(struct metric *m, double v)
{
    if (v > metric_value(m))
        metric_add(m, v - metric_value(m));
}

/* Adds the series of a draft position when a ready replica may draft up to it. The series is
 * then kept. */
static void update_accepted(struct head_metrics *m, const struct head_stats *s)
{
    for (uint32_t i = 0; i < SCHEDULER_MAX_DRAFT; i++) {
        if (!m->accepted_at[i] && i < s->n_draft) {
            struct strbuf l;
            strbuf_init(&l, 0);
            strbuf_printf(&l, "%s,position=\"%u\"", m->labels, i);
            m->accepted_at[i] = metrics_counter(
                m->registry, "vllm:spec_decode_num_accepted_tokens_per_pos_total",
                strbuf_str(&l).ptr, "Draft tokens kept, by position in the step; 0 is the first.");
            strbuf_fini(&l);
        }
        if (m->accepted_at[i])
            count_to(m->accepted_at[i], (double)s->n_accepted_at[i]);
    }
}

void head_metrics_update(struct head_metrics *m, const struct head_core *core, bool waits)
{
    struct head_stats s;
    head_core_get_stats(core, &s);
    for (size_t i = 0; i < N_ROWS; i++) {
        const char *at = (const char *)&s + rows[i].offset;
        uint32_t u32 = 0;
        uint64_t u64 = 0;
        memcpy(rows[i].type == VALUE_U32 ? (void *)&u32 : (void *)&u64, at,
               rows[i].type == VALUE_U32 ? sizeof u32 : sizeof u64);
        double v = (double)(rows[i].type == VALUE_U32 ? u32 : u64);
        if (!rows[i].is_counter)
            metric_set(m->values[i], v);
        else
            count_to(m->values[i], v);
    }
    const struct scale_hint *scale = head_core_scale(core);
    if (scale->known && !waits && !m->desired)
        m->desired = metrics_gauge(m->registry, "coxswain_head_desired_workers", "",
                                   "Workers that the load needs; GET /scale gives the reason.");
    if (scale->known && !waits)
        metric_set(m->desired, head_core_desired_workers(core));
    if (scale->cold_start_ns > 0 && !m->cold_start)
        m->cold_start = metrics_gauge(m->registry, "coxswain_head_cold_start_seconds", "",
                                      "Duration of the last start from zero workers, from the "
                                      "first request to a serving replica.");
    if (scale->cold_start_ns > 0)
        metric_set(m->cold_start, (double)scale->cold_start_ns / 1e9);
    update_accepted(m, &s);
    usage_series_update(m->usage, core);
    metric_set(m->kv_usage, s.n_blocks ? (double)s.n_blocks_used / (double)s.n_blocks : 0);
    metric_set(m->sleep, head_core_sleep_state(core)->level);
    metric_set(m->uptime, (double)s.uptime_ns / 1e9);
}

void head_metrics_set_lease(struct head_metrics *m, bool serves, bool store_reached)
{
    if (!m->serves) {
        m->serves = metrics_gauge(m->registry, "coxswain_head_serves", "",
                                  "1 if this head has the lease, 0 if it is a standby.");
        m->store = metrics_gauge(m->registry, "coxswain_head_store_reached", "",
                                 "1 while Redis answers, 0 if no standby can take over.");
    }
    metric_set(m->serves, serves);
    metric_set(m->store, store_reached);
}

struct metrics *head_metrics_registry(struct head_metrics *m)
{
    return m->registry;
}

void head_metrics_free(struct head_metrics *m)
{
    if (!m)
        return;
    usage_series_free(m->usage);
    metrics_free(m->registry);
    mem_free(m->labels);
    mem_free(m);
}
