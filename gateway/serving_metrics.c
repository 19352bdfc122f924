#include "gateway/serving_metrics.h"

#include <stdio.h>

#define N(a) (uint32_t)(sizeof(a) / sizeof *(a))

/* vLLM's buckets (v1/metrics/buckets.py), so that its dashboards read ours */
static const double ttft_bounds[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                     1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
static const double latency_bounds[] = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                        30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
static const double inter_token_bounds[] = {.001, .0025, .005, .01, .025, .05, .075, .1,
                                            .15,  .2,    .3,   .4,  .5,   .75, 1,    2.5,
                                            5,    7.5,   10,   20,  40,   80};
static const double token_bounds[] = {1,   2,    5,    10,   20,    50,    100,   200,
                                      500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};

void serving_metrics_init(struct serving_metrics *m, struct metrics *reg, const char *model_name)
{
    static const char *const outcomes[OUTCOME_COUNT] = {"stop", "length", "abort", "error"};
    char l[256], lr[320];
    struct strbuf
        quoted; /* a name may hold quotes: escaped as JSON does, which Prometheus shares */
    strbuf_init(&quoted, 0);
    strbuf_append_json(&quoted, str_from(model_name));
    snprintf(l, sizeof l, "model_name=%.200s", quoted.ptr);
    if (quoted.len > 200)
        snprintf(l, sizeof l, "model_name=\"long\"");
    strbuf_fini(&quoted);
    for (int i = 0; i < OUTCOME_COUNT; i++) {
        snprintf(lr, sizeof lr, "%s,finished_reason=\"%s\"", l, outcomes[i]);
        m->requests[i] = metrics_counter(reg, "vllm:request_success_total", lr,
                                         "Count of successfully processed requests.");
    }
    m->prompt_tokens =
        metrics_counter(reg, "vllm:prompt_tokens_total", l, "Number of prefill tokens processed.");
    m->generation_tokens = metrics_counter(reg, "vllm:generation_tokens_total", l,
                                           "Number of generation tokens processed.");
    m->cached_tokens = metrics_counter(reg, "vllm:prompt_tokens_cached_total", l,
                                       "Number of prompt tokens found in the prefix cache.");
    m->ttft = metrics_histogram(reg, "vllm:time_to_first_token_seconds", l,
                                "Histogram of time to first token in seconds.", ttft_bounds,
                                N(ttft_bounds));
    m->inter_token = metrics_histogram(reg, "vllm:inter_token_latency_seconds", l,
                                       "Histogram of inter-token latency in seconds.",
                                       inter_token_bounds, N(inter_token_bounds));
    m->e2e = metrics_histogram(reg, "vllm:e2e_request_latency_seconds", l,
                               "Histogram of e2e request latency in seconds.", latency_bounds,
                               N(latency_bounds));
    m->request_prompt_tokens =
        metrics_histogram(reg, "vllm:request_prompt_tokens", l,
                          "Number of prefill tokens of a request.", token_bounds, N(token_bounds));
    m->request_generation_tokens = metrics_histogram(reg, "vllm:request_generation_tokens", l,
                                                     "Number of generation tokens of a choice.",
                                                     token_bounds, N(token_bounds));
    m->open_requests =
        metrics_gauge(reg, "coxswain_gateway_requests_open", l, "HTTP requests being served.");
    m->rejected = metrics_counter(reg, "coxswain_gateway_requests_rejected_total", l,
                                  "Requests answered with an error before a token was made.");
    m->resubmissions = metrics_counter(reg, "coxswain_gateway_resubmissions_total", l,
                                       "Choices submitted again with the tokens they had.");
    m->head_link_up = metrics_gauge(reg, "coxswain_gateway_head_link_up", "",
                                    "1 while a session with the head is open.");
    m->head_losses = metrics_counter(reg, "coxswain_gateway_head_losses_total", "",
                                     "Sessions with the head that ended.");
}
