/* Keeps the gateway's metrics of requests and of the cluster, under vLLM's names.
 * serving reports choices to this module as they start and end; cluster.c forwards the numbers
 * of the head. `/metrics` renders the registry.
 * The registry owns all metrics. `struct serving_metrics` borrows them and owns `labels`.
 * Counters of the head may restart with another head, so only their growth is added. Only the
 * loop thread calls these functions. */
#include "gateway/request/metrics.h"

#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/mem.h"

#define N(a) (uint32_t)(sizeof(a) / sizeof *(a))

/* these are vLLM's buckets (v1/metrics/buckets.py), so that its dashboards work here */
static const double ttft_bounds[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                     1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
static const double latency_bounds[] = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                        30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
static const double inter_token_bounds[] = {.001, .0025, .005, .01, .025, .05, .075, .1,
                                            .15,  .2,    .3,   .4,  .5,   .75, 1,    2.5,
                                            5,    7.5,   10,   20,  40,   80};
static const double token_bounds[] = {1,   2,    5,    10,   20,    50,    100,   200,
                                      500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
static const double n_bounds[] = {1, 2, 5, 10, 20};

#define BOUNDS(a) (a), N(a)
static const struct histogram_row {
    const char *name, *help;
    const double *bounds;
    uint32_t n_bounds;
} histogram_rows[HISTOGRAM_COUNT] = {
    [HISTOGRAM_TTFT] = {"vllm:time_to_first_token_seconds",
                        "Histogram of time to first token in seconds.", BOUNDS(ttft_bounds)},
    [HISTOGRAM_INTER_TOKEN] = {"vllm:inter_token_latency_seconds",
                               "Histogram of inter-token latency in seconds.",
                               BOUNDS(inter_token_bounds)},
    [HISTOGRAM_PER_OUTPUT_TOKEN] = {"vllm:request_time_per_output_token_seconds",
                                    "Mean time of a choice's tokens after the first, in seconds.",
                                    BOUNDS(inter_token_bounds)},
    [HISTOGRAM_E2E] = {"vllm:e2e_request_latency_seconds",
                       "Histogram of e2e request latency in seconds.", BOUNDS(latency_bounds)},
    [HISTOGRAM_QUEUE] = {"vllm:request_queue_time_seconds",
                         "Time until a choice's first step began, in seconds.",
                         BOUNDS(latency_bounds)},
    [HISTOGRAM_PREFILL] = {"vllm:request_prefill_time_seconds",
                           "Time from the first step to the first token, in seconds.",
                           BOUNDS(latency_bounds)},
    [HISTOGRAM_DECODE] = {"vllm:request_decode_time_seconds",
                          "Time from the first token to the last, in seconds.",
                          BOUNDS(latency_bounds)},
    [HISTOGRAM_INFERENCE] = {"vllm:request_inference_time_seconds",
                             "Time from the first step to the last token, in seconds.",
                             BOUNDS(latency_bounds)},
    [HISTOGRAM_PROMPT_TOKENS] = {"vllm:request_prompt_tokens",
                                 "Number of prefill tokens of a choice.", BOUNDS(token_bounds)},
    [HISTOGRAM_COMPUTED_TOKENS] = {"vllm:request_prefill_kv_computed_tokens",
                                   "Prompt tokens that were not found in the prefix cache.",
                                   BOUNDS(token_bounds)},
    [HISTOGRAM_GENERATION_TOKENS] = {"vllm:request_generation_tokens",
                                     "Number of generation tokens of a choice.",
                                     BOUNDS(token_bounds)},
    [HISTOGRAM_MAX_GENERATION_TOKENS] = {"vllm:request_max_num_generation_tokens",
                                         "Tokens of a request's longest choice.",
                                         BOUNDS(token_bounds)},
    [HISTOGRAM_PARAMS_N] = {"vllm:request_params_n", "The request's n.", BOUNDS(n_bounds)},
    [HISTOGRAM_PARAMS_MAX_TOKENS] = {"vllm:request_params_max_tokens", "The request's max_tokens.",
                                     BOUNDS(token_bounds)},
};

static struct metric *counter_with(const struct serving_metrics *m, const char *name,
                                   const char *label, const char *value, const char *help)
{
    struct strbuf l;
    strbuf_init(&l, 0);
    strbuf_append_c(&l, m->labels);
    metrics_label(&l, label, str_from(value));
    struct metric *c = metrics_counter(m->registry, name, strbuf_str(&l).ptr, help);
    strbuf_fini(&l);
    return c;
}

static void init_counters(struct serving_metrics *m)
{
    static const char *const outcomes[OUTCOME_COUNT] = {"stop", "length", "abort", "error"};
    static const char *const by_source = "vllm:prompt_tokens_by_source_total",
                             *const source_help = "Prompt tokens by where their KV came from.";
    struct metrics *reg = m->registry;
    const char *l = m->labels;
    for (int i = 0; i < OUTCOME_COUNT; i++)
        m->requests[i] = counter_with(m, "vllm:request_success_total", "finished_reason",
                                      outcomes[i], "Count of successfully processed requests.");
    m->prompt_tokens =
        metrics_counter(reg, "vllm:prompt_tokens_total", l, "Number of prefill tokens processed.");
    m->computed_source = counter_with(m, by_source, "source", "local_compute", source_help);
    m->cached_source = counter_with(m, by_source, "source", "local_cache_hit", source_help);
    m->generation_tokens = metrics_counter(reg, "vllm:generation_tokens_total", l,
                                           "Number of generation tokens processed.");
    m->cached_tokens = metrics_counter(reg, "vllm:prompt_tokens_cached_total", l,
                                       "Number of prompt tokens found in the prefix cache.");
    m->cached_device = counter_with(m, "vllm:prompt_tokens_cached_by_source_total", "source",
                                    "device", "The same, by where the cache is.");
    m->prefix_queries = metrics_counter(reg, "vllm:prefix_cache_queries_total", l,
                                        "Prompt tokens looked up in the prefix cache.");
    m->prefix_hits = metrics_counter(reg, "vllm:prefix_cache_hits_total", l,
                                     "Prompt tokens found in the prefix cache.");
    m->refused = counter_with(m, "vllm:admission_rejections_total", "reason", "max_num_queued_reqs",
                              "Choices that the head refused for load.");
}

static void init_cluster(struct serving_metrics *m)
{
    struct metrics *reg = m->registry;
    const char *l = m->labels;
    m->running =
        metrics_gauge(reg, "vllm:num_requests_running", l, "The cluster's: in a step's batch.");
    m->waiting = metrics_gauge(reg, "vllm:num_requests_waiting", l,
                               "The cluster's: requests that wait for a step.");
    m->kv_usage = metrics_gauge(reg, "vllm:kv_cache_usage_perc", l,
                                "The cluster's KV blocks in use; 1 is all of them.");
    m->preemptions.metric = metrics_counter(reg, "vllm:num_preemptions_total", l,
                                            "The cluster's: sequences preempted.");
    m->drafts.metric =
        metrics_counter(reg, "vllm:spec_decode_num_drafts_total", l,
                        "The cluster's: sequences run with draft tokens, once a step.");
    m->draft_tokens.metric = metrics_counter(reg, "vllm:spec_decode_num_draft_tokens_total", l,
                                             "The cluster's: tokens drafted and run.");
    m->accepted_tokens.metric = metrics_counter(reg, "vllm:spec_decode_num_accepted_tokens_total",
                                                l, "The cluster's: draft tokens kept.");
}

void serving_metrics_init(struct serving_metrics *m, struct metrics *registry,
                          const char *model_name)
{
    struct strbuf l;
    strbuf_init(&l, 0);
    metrics_label(&l, "model_name", str_from(model_name));
    metrics_label(&l, "engine", STR("0"));
    *m = (struct serving_metrics){.registry = registry, .labels = mem_strdup(strbuf_str(&l).ptr)};
    strbuf_fini(&l);
    init_counters(m);
    for (int i = 0; i < HISTOGRAM_COUNT; i++) {
        const struct histogram_row *row = &histogram_rows[i];
        m->histograms[i] = metrics_histogram(registry, row->name, m->labels, row->help, row->bounds,
                                             row->n_bounds);
    }
    init_cluster(m);
    m->open_requests = metrics_gauge(registry, "coxswain_gateway_requests_open", m->labels,
                                     "HTTP requests being served.");
    m->rejected = metrics_counter(registry, "coxswain_gateway_requests_rejected_total", m->labels,
                                  "Requests answered with an error before a token was made.");
    m->resubmissions = metrics_counter(registry, "coxswain_gateway_resubmissions_total", m->labels,
                                       "Choices submitted again with the tokens they had.");
    m->head_link_up = metrics_gauge(registry, "coxswain_gateway_head_link_up", "",
                                    "1 while a session with the head is open.");
    m->head_losses = metrics_counter(registry, "coxswain_gateway_head_losses_total", "",
                                     "Sessions with the head that ended.");
}

void serving_metrics_fini(struct serving_metrics *m)
{
    mem_free(m->labels);
    *m = (struct serving_metrics){0};
}

/* ---- a choice ---- */

static double between(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) / (double)NS_PER_S : 0;
}

struct choice_phases serving_metrics_phases(const struct choice_times *t)
{
    uint64_t began_ns = t->submit_ns + t->queue_ns;
    struct choice_phases p = {.queue = (double)t->queue_ns / (double)NS_PER_S,
                              .e2e = between(t->arrival_ns, t->now_ns)};
    if (t->submit_ns) {
        p.prefill = between(began_ns, t->first_token_ns);
        p.decode = between(t->first_token_ns, t->last_token_ns);
        p.inference = p.prefill + p.decode;
    }
    return p;
}

void serving_metrics_prompt(struct serving_metrics *m, uint32_t n_prompt, uint32_t n_cached)
{
    metric_add(m->prompt_tokens, n_prompt);
    metric_add(m->computed_source, n_prompt > n_cached ? n_prompt - n_cached : 0);
    metric_add(m->cached_source, n_cached);
    metric_add(m->cached_tokens, n_cached);
    metric_add(m->cached_device, n_cached);
    metric_add(m->prefix_queries, n_prompt);
    metric_add(m->prefix_hits, n_cached);
}

void serving_metrics_end(struct serving_metrics *m, enum serving_outcome outcome,
                         const struct choice_times *t, uint32_t n_prompt, uint32_t n_cached,
                         uint32_t n_tokens)
{
    const struct choice_phases p = serving_metrics_phases(t);
    metric_add(m->requests[outcome], 1);
    metric_observe(m->histograms[HISTOGRAM_E2E], p.e2e);
    metric_observe(m->histograms[HISTOGRAM_QUEUE], p.queue);
    metric_observe(m->histograms[HISTOGRAM_PREFILL], p.prefill);
    metric_observe(m->histograms[HISTOGRAM_DECODE], p.decode);
    metric_observe(m->histograms[HISTOGRAM_INFERENCE], p.inference);
    metric_observe(m->histograms[HISTOGRAM_PROMPT_TOKENS], n_prompt);
    metric_observe(m->histograms[HISTOGRAM_COMPUTED_TOKENS],
                   n_prompt > n_cached ? n_prompt - n_cached : 0);
    metric_observe(m->histograms[HISTOGRAM_GENERATION_TOKENS], n_tokens);
    if (n_tokens > 1)
        metric_observe(m->histograms[HISTOGRAM_PER_OUTPUT_TOKEN], p.decode / (n_tokens - 1));
}

/* ---- the cluster ---- */

static void pass_on(struct passed_on *p, uint64_t value)
{
    metric_add(p->metric, (double)(value >= p->last ? value - p->last : value));
    p->last = value;
}

/* Sets the series that describes the KV cache. The series appears after the head's first report,
 * and another replica's values replace the old ones. */
static void tell_cache(struct serving_metrics *m, const struct cluster_load *c)
{
    struct strbuf l;
    char n[32];
    if (c->block_tokens == 0)
        return;
    strbuf_init(&l, 0);
    metrics_label(&l, "engine", STR("0"));
    snprintf(n, sizeof n, "%u", c->block_tokens);
    metrics_label(&l, "block_size", str_from(n));
    snprintf(n, sizeof n, "%llu", (unsigned long long)c->n_blocks);
    metrics_label(&l, "num_gpu_blocks", str_from(n));
    metrics_label(&l, "enable_prefix_caching", c->prefix_caching ? STR("True") : STR("False"));
    if (!m->cache_config)
        m->cache_config = metrics_gauge(m->registry, "vllm:cache_config_info", strbuf_str(&l).ptr,
                                        "How the cluster's KV cache is made.");
    metric_relabel(m->cache_config, strbuf_str(&l).ptr);
    metric_set(m->cache_config, 1);
    strbuf_fini(&l);
}

void serving_metrics_cluster(struct serving_metrics *m, const struct msg_cluster *c)
{
    const struct cluster_load *l = &c->load;
    metric_set(m->running, c->running);
    metric_set(m->waiting, c->waiting);
    metric_set(m->kv_usage, l->n_blocks ? (double)l->n_blocks_used / (double)l->n_blocks : 0);
    pass_on(&m->preemptions, l->n_preemptions);
    pass_on(&m->drafts, l->n_draft_steps);
    pass_on(&m->draft_tokens, l->n_drafted);
    pass_on(&m->accepted_tokens, l->n_accepted);
    tell_cache(m, l);
}

void serving_metrics_loras(struct serving_metrics *m, uint32_t max_loras, struct str running,
                           struct str waiting, double now_s)
{
    struct strbuf l;
    char n[16];
    strbuf_init(&l, 0);
    snprintf(n, sizeof n, "%u", max_loras);
    metrics_label(&l, "max_lora", str_from(n));
    metrics_label(&l, "waiting_lora_adapters", waiting);
    metrics_label(&l, "running_lora_adapters", running);
    if (!m->loras)
        m->loras = metrics_gauge(m->registry, "vllm:lora_requests_info", strbuf_str(&l).ptr,
                                 "Adapters of this gateway's requests; the value is the time.");
    metric_relabel(m->loras, strbuf_str(&l).ptr);
    metric_set(m->loras, now_s);
    strbuf_fini(&l);
}
