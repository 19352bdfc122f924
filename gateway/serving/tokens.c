#include "gateway/serving/tokens.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "gateway/request/answer_writer.h"
#include "gateway/request/end.h"
#include "gateway/request/pool_work.h"
#include "gateway/request/promise.h"
#include "gateway/request/submit.h"
#include "gateway/serving/hand_over.h"
#include "gateway/serving/pump.h"

enum { MAX_ATTEMPTS = 100000 };

static uint32_t n_prompt_of(const struct api_choice *c)
{
    const struct prepared *p = &c->owner->prepared;
    return p->prompts.items[c->i_choice / p->params.n_generated].n_ids;
}

static void observe_tokens(struct api_request *r, struct api_choice *c, uint32_t n_new)
{
    struct generation *g = &c->g;
    uint64_t t = serving_now(r->s);
    struct serving_metrics *m = &r->s->metrics;
    r->last_progress_ns = t;
    r->s->n_failed_in_row = 0;
    metric_add(m->generation_tokens, n_new);
    limits_spend(r->key, n_new, t);
    if (!g->first_token_ns) {
        g->first_token_ns = t;
        api_request_forget_body(r);
        serving_metrics_prompt(m, n_prompt_of(c), g->n_cached);
        metric_observe(m->histograms[HISTOGRAM_TTFT], seconds_of_ns(t - r->arrival_ns));
    } else {
        for (uint32_t i = 0; i < n_new; i++)
            metric_observe(m->histograms[HISTOGRAM_INTER_TOKEN],
                           seconds_of_ns(t - g->last_token_ns) / n_new);
    }
    g->last_token_ns = t;
}

static struct choice_times times_of(const struct api_choice *c)
{
    return (struct choice_times){.arrival_ns = c->owner->arrival_ns,
                                 .submit_ns = c->submit_ns,
                                 .queue_ns = c->queue_ns,
                                 .first_token_ns = c->g.first_token_ns,
                                 .last_token_ns = c->g.last_token_ns,
                                 .now_ns = serving_now(c->owner->s)};
}

static void observe_end(struct api_request *r, const struct api_choice *c)
{
    struct serving_metrics *m = &r->s->metrics;
    const struct choice_times times = times_of(c);
    uint32_t longest = 0;
    r->s->n_failed_in_row = 0;
    if (!c->g.first_token_ns) /* embeddings have no tokens, so the prompt is counted here */
        serving_metrics_prompt(m, n_prompt_of(c), c->g.n_cached);
    serving_metrics_end(m, c->g.finish == FINISH_LENGTH ? OUTCOME_LENGTH : OUTCOME_STOP, &times,
                        n_prompt_of(c), c->g.n_cached, c->g.n_ids);
    if (++r->n_ended < r->n_choices)
        return;
    for (uint32_t i = 0; i < r->n_choices; i++)
        if (r->choices[i].g.n_ids > longest)
            longest = r->choices[i].g.n_ids;
    metric_observe(m->histograms[HISTOGRAM_MAX_GENERATION_TOKENS], longest);
}

/* Takes what the choice has used. A new head counts from 0, so a lower number is another head's. */
static void take_usage(struct api_choice *c, const struct tokens_item *t)
{
    if (t->block_ms < c->block_ms || t->step_ns < c->step_ns) {
        c->earlier_block_ms += c->block_ms;
        c->earlier_step_ns += c->step_ns;
    }
    c->block_ms = t->block_ms;
    c->step_ns = t->step_ns;
}

void api_request_on_tokens(struct api_request *r, uint32_t i_choice, const struct tokens_item *t)
{
    struct api_choice *c = &r->choices[i_choice];
    uint32_t before = c->g.n_ids;
    bool was_ended = generation_ended(&c->g);
    struct api_error why;
    enum generation_event e = generation_on_tokens(&c->g, &r->rules, t, &why);
    if (t->queue_us > 0)
        c->queue_ns = t->queue_us * 1000;
    promise_take(r, c, t);
    if (r->full_usage && !was_ended)
        take_usage(c, t);
    if (c->g.n_ids > before)
        observe_tokens(r, c, c->g.n_ids - before);
    if (was_ended) {
        if (t->finish == FINISH_NONE && t->attempt == c->g.stream.attempt)
            api_choice_finish(c);
        return;
    }
    if (e == GENERATION_RESUBMIT && c->g.stream.attempt > MAX_ATTEMPTS) {
        why = (struct api_error){0};
        api_error_set(&why, 500, NULL,
                      "The cluster lost tokens of this request too many times. Try again later.");
        e = GENERATION_FAILED;
    }
    if (e == GENERATION_RESUBMIT) {
        log_warn("tokens_missing", "id=%s choice=%u have=%u got_from=%u", r->id_text, i_choice,
                 c->g.n_ids, t->start);
        metric_add(r->s->metrics.resubmissions, 1);
        serving_add_pending(r->s, c);
    } else if (e == GENERATION_FAILED) {
        const bool too_late = promise_explain(r, t, &why);
        if (why.http_status == 429)
            metric_add(r->s->metrics.refused, 1);
        if (!too_late || !api_request_hand_over(r, why.retry_after_s))
            api_request_fail(r, &why);
    } else if (e != GENERATION_NOTHING) {
        if (e == GENERATION_STOPPED)
            api_choice_finish(c);
        if (generation_ended(&c->g))
            observe_end(r, c);
        api_request_flush(r);
    }
}
