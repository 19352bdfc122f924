#pragma once
/* Metrics of the gateway, under vLLM's names (docs/reference/metrics.md). The registry owns the
 * metrics. Numbers of single requests are counted here and may be added up over gateways.
 * Numbers that only the head knows are passed on as reported, and every gateway has the same
 * ones. */
#include "common/base/metrics.h"
#include "proto/messages.h"

enum serving_outcome { OUTCOME_STOP, OUTCOME_LENGTH, OUTCOME_ABORT, OUTCOME_ERROR, OUTCOME_COUNT };

/* Histograms, in the order of the table in metrics.c. */
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

/* A counter of the head and its last value. It restarts at 0 with another head. */
struct passed_on {
    struct metric *metric;
    uint64_t last;
};

struct serving_metrics {
    struct metrics *registry; /* borrowed; owns the metrics */
    char *labels;             /* owned; `model_name` and `engine`, present in every series */
    struct metric *requests[OUTCOME_COUNT]; /* by the outcome of a choice */
    struct metric *prompt_tokens, *generation_tokens, *cached_tokens;
    struct metric *computed_source, *cached_source,
        *cached_device; /* the same counts under vLLM's labels */
    struct metric *prefix_queries, *prefix_hits;
    struct metric *histograms[HISTOGRAM_COUNT];
    struct metric *open_requests, *rejected, *refused, *resubmissions, *head_link_up, *head_losses;
    /* values of the whole cluster */
    struct metric *running, *waiting, *kv_usage, *cache_config, *loras;
    struct passed_on preemptions, drafts, draft_tokens, accepted_tokens;
};

/* Times of a choice that ended well, in ns. 0 in the token times of a choice without tokens. */
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
 * first token, decode with the last token. Each phase is at least 0, whatever clocks and lost
 * links did. */
struct choice_phases serving_metrics_phases(const struct choice_times *t);
/* Call it once per choice, with its first token. `n_cached` of `n_prompt` tokens were in the
 * prefix cache. */
void serving_metrics_prompt(struct serving_metrics *m, uint32_t n_prompt, uint32_t n_cached);
/* A choice ended well with `n_tokens` generated tokens. */
void serving_metrics_end(struct serving_metrics *m, enum serving_outcome outcome,
                         const struct choice_times *t, uint32_t n_prompt, uint32_t n_cached,
                         uint32_t n_tokens);
void serving_metrics_cluster(struct serving_metrics *m, const struct msg_cluster *c);
/* `running` and `waiting` are names of adapters, each once, joined by commas. The metric's value
 * is `now_s`, as in vLLM. */
void serving_metrics_loras(struct serving_metrics *m, uint32_t max_loras, struct str running,
                           struct str waiting, double now_s);
