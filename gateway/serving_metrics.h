#pragma once
/* What the gateway counts, under vLLM's names. The registry owns the metrics. */
#include "common/base/metrics.h"
#include "proto/messages.h"

enum serving_outcome { OUTCOME_STOP, OUTCOME_LENGTH, OUTCOME_ABORT, OUTCOME_ERROR, OUTCOME_COUNT };

struct serving_metrics {
    struct metric *requests[OUTCOME_COUNT]; /* by how a choice ended */
    struct metric *prompt_tokens, *generation_tokens, *cached_tokens;
    struct metric *ttft, *inter_token, *e2e;
    struct metric *request_prompt_tokens, *request_generation_tokens;
    struct metric *open_requests, *rejected, *resubmissions, *head_link_up, *head_losses;
};

void serving_metrics_init(struct serving_metrics *m, struct metrics *registry,
                          const char *model_name);
