#include "gateway/request/end.h"

#include "common/base/log.h"
#include "common/base/mem.h"
#include "gateway/request/error_reply.h"
#include "gateway/request/pool_work.h"
#include "gateway/request/submit.h"
#include "gateway/request/table.h"

static const unsigned state_next[API_STATE_COUNT] = {
    /* each entry is the set of allowed next states, as bits */
    [API_PREPARING] = 1u << API_RUNNING | 1u << API_DONE,
    [API_RUNNING] = 1u << API_STREAMING | 1u << API_DONE,
    [API_STREAMING] = 1u << API_DONE,
};

void api_request_enter(struct api_request *r, enum api_state next)
{
    if (!(state_next[r->state] & 1u << next)) {
        log_error("bug", "what=api_state from=%d to=%d", (int)r->state, (int)next);
        return;
    }
    r->state = next;
}

/* Counts a failure of the cluster. A deadline of the client (504) is none, and neither is an error
 * while the request is prepared here. */
static void note_failure(const struct api_request *r, const struct api_error *e)
{
    if (e->http_status < 500 || e->http_status == 504 || api_request_has_tokens(r) || r->s->over ||
        r->state == API_PREPARING)
        return;
    r->s->n_failed_in_row++;
    r->s->failed_ns = serving_now(r->s);
}

void api_request_fail(struct api_request *r, const struct api_error *e)
{
    note_failure(r, e);
    if (e->http_status >= 500) /* while the gateway stops, such errors are no fault */
        log_event(r->s->over ? LOG_INFO : LOG_WARN, "request_failed", "id=%s status=%d why=%s",
                  r->id_text, e->http_status, log_quote(e->message));
    if (r->reply)
        api_answer_error(r, e);
    r->reply = NULL;
    api_request_retire(r, OUTCOME_ERROR);
}

void api_request_retire(struct api_request *r, enum serving_outcome rest)
{
    struct serving *s = r->s;
    if (r->state == API_DONE)
        return;
    for (uint32_t i = 0; i < r->n_choices; i++) {
        struct api_choice *c = &r->choices[i];
        submit_queue_remove(&s->pending, &c->pending);
        if (!generation_ended(&c->g)) {
            api_choice_cancel(c);
            if (rest < OUTCOME_COUNT)
                metric_add(s->metrics.requests[rest], 1);
        }
    }
    if (r->on_pool)
        encode_pool_drop(r->on_pool,
                         /* the prompt of a client that has disconnected must not delay later
                          * prompts */
                         &r->job);
    api_request_enter(r, API_DONE);
    request_table_leave(r);
    request_table_remove(r);
    r->next = s->dead;
    s->dead = r;
    due_add(s->due);
}

void api_request_free(struct api_request *r)
{
    for (uint32_t i = 0; i < r->n_choices; i++) {
        generation_fini(&r->choices[i].g);
        answer_fini(&r->choices[i].answer);
    }
    mem_free(r->choices);
    dialect_state_fini(&r->dialect_state);
    stop_set_fini(&r->stops);
    api_request_free_prepared(r);
    mem_free(r->asked_model);
    strbuf_fini(&r->chunk_head);
    strbuf_fini(&r->whole.out);
    mem_free(r->whole.deltas);
    mem_free(r);
}
