#pragma once
/* Counts the gateway's metrics, under vLLM's names (docs/reference/metrics.md). The registry
 * owns the metrics. Each gateway counts the requests that it serves, and these counts may be
 * added up over gateways. Numbers that only the head has are forwarded as reported, so every
 * gateway shows the same numbers. */
#include "common/base/metrics.h"
#include "proto/messages.h"

enum serving_outcome { OUTCOME_STOP, OUTCOME_LENGTH, OUTCOME_ABORT, OUTCOME_ERROR, OUTCOME_COUNT };

/* `serving_histogram` lists the histograms, in the order of the table in metrics.c. */
enum serving_histogram {
    HISTOGRAM_TTFT,
    HISTOGRAM_INTER_TOKEN,
    HISTOGRAM_PER_OUTPUT_TOKEN,
    HISTOGRAM_E2E,
    HISTOGRAM_QUEUE,
    HISTOGRAM_PREFILL,
    HISTOGRAM_DECODE,
    HISTOGRAM_INFERENCE,
    HISTOGRAM_PROMPT_TOKENS,
    HISTOGRAM_COMPUTED_TOKENS,
    HISTOGRAM_GENERATION_TOKENS,
    HISTOGRAM_MAX_GENERATION_TOKENS,
    HISTOGRAM_PARAMS_N,
    HISTOGRAM_PARAMS_MAX_TOKENS,
    HISTOGRAM_COUNT
};

/* `passed_on` is a counter of the head and its last value. The counter restarts at 0 with
 * another head. */
struct passed_on {
    struct metric *metric;
    uint64_t last;
};

struct serving_metrics {
    struct metrics *registry; /* owner of the metrics; borrowed */
    char *labels;             /* labels `model_name` and `engine` of every series; owned */
    struct metric *requests[OUTCOME_COUNT]; /* number of choices, by their outcome */
    struct metric *prompt_tokens, *generation_tokens, *cached_tokens;
    struct metric *computed_source, *cached_source,
        *cached_device; /* counts of prompt tokens under vLLM's labels */
    struct metric *prefix_queries, *prefix_hits;
    struct metric *histograms[HISTOGRAM_COUNT];
    struct metric *open_requests, *rejected, *refused, *resubmissions, *head_link_up, *head_losses;
    /* values that hold for the whole cluster */
    struct metric *running, *waiting, *kv_usage, *cache_config, *loras;
    struct passed_on preemptions, drafts, draft_tokens, accepted_tokens;
};

/* `choice_times` holds the times of a choice that ended without an error, in ns. The token times
 * of a choice without tokens are 0. */
struct choice_times {
    uint64_t arrival_ns, submit_ns, queue_ns, first_token_ns, last_token_ns, now_ns;
};
struct choice_phases { /* phases of a choice in seconds */
    double queue, prefill, decode, inference, e2e;
};

void serving_metrics_init(struct serving_metrics *m, struct metrics *registry,
                          const char *model_name);
void serving_metrics_fini(struct serving_metrics *m);
/* Splits the time of a choice into phases. The queue ends with the first step, prefill with the
 * first token, decode with the last token. Each phase is at least 0, even after wrong clocks or
 * lost links. */
struct choice_phases serving_metrics_phases(const struct choice_times *t);
/* Counts the prompt of a choice. Call this function once per choice, with its first token.
 * `n_cached` of `n_prompt` tokens were in the prefix cache. */
void serving_metrics_prompt(struct serving_metrics *m, uint32_t n_prompt, uint32_t n_cached);
/* Counts a choice that ended without an error with `n_tokens` generated tokens. */
void serving_metrics_end(struct serving_metrics *m, enum serving_outcome outcome,
                         const struct choice_times *t, uint32_t n_prompt, uint32_t n_cached,
                         uint32_t n_tokens);
void serving_metrics_cluster(struct serving_metrics *m, const struct msg_cluster *c);
/* Sets the metric of adapters in use. `running` and `waiting` are names of adapters, each once,
 * joined by commas. The metric's value is `now_s`, as in vLLM. */
void serving_metrics_loras(struct serving_metrics *m, uint32_t max_loras, struct str running,
                           struct str waiting, double now_s);
