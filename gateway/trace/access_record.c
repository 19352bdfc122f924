#include "gateway/trace/access_record.h"

#include <string.h>

#include "gateway/request/state.h"

void access_record_copy(char out[ACCESS_RECORD_NAME_MAX], struct str s)
{
    if (s.len >= ACCESS_RECORD_NAME_MAX)
        s.len = ACCESS_RECORD_NAME_MAX - 1;
    s.len = str_utf8_valid(s);
    memcpy(out, s.ptr, s.len);
    out[s.len] = '\0';
}

/* Sets the times of the record. Several choices count as one choice that began with the first
 * and ended with the last. */
static void take_times(struct access_record *n, const struct api_request *r)
{
    struct choice_times t = {.arrival_ns = r->arrival_ns,
                             .now_ns = r->s->o.now_ns(r->s->o.clock_ctx)};
    for (uint32_t i = 0; i < r->n_choices; i++) {
        const struct api_choice *c = &r->choices[i];
        if (i == 0 || (c->g.first_token_ns &&
                       (!t.first_token_ns || c->g.first_token_ns < t.first_token_ns))) {
            t.submit_ns = c->submit_ns;
            t.queue_ns = c->queue_ns;
            t.first_token_ns = c->g.first_token_ns;
        }
        if (c->g.last_token_ns > t.last_token_ns)
            t.last_token_ns = c->g.last_token_ns;
    }
    n->has_first_token = t.first_token_ns > 0;
    n->ttft = n->has_first_token ? (double)(t.first_token_ns - t.arrival_ns) / 1e9 : 0;
    n->phases = serving_metrics_phases(&t);
}

void access_record_take(struct access_record *n, const struct api_request *r)
{
    const struct params *p = &r->prepared.params;
    if (r->n_choices == 0)
        return;
    n->is_llm = true;
    n->stream = p->stream;
    access_record_copy(n->id, str_from(r->id_text));
    access_record_copy(n->model, r->shape.model);
    n->n = p->n;
    n->n_choices = r->n_choices;
    n->n_ended = r->n_ended;
    n->max_tokens = p->max_tokens ? p->max_tokens : r->prepared.max_tokens_room;
    n->temperature = (double)p->sampling.temperature;
    n->top_p = (double)p->sampling.top_p;
    n->prompt_tokens = n->cached_tokens = n->completion_tokens = 0;
    n->by_length = false;
    for (uint32_t i = 0; i < r->prepared.prompts.n; i++)
        n->prompt_tokens += r->prepared.prompts.items[i].n_ids;
    for (uint32_t i = 0; i < r->n_choices; i++) {
        n->completion_tokens += r->choices[i].g.n_ids;
        n->by_length |= r->choices[i].g.finish == FINISH_LENGTH;
        if (i % p->n_generated == 0)
            n->cached_tokens += r->choices[i].g.n_cached;
    }
    take_times(n, r);
}

const char *access_record_outcome(const struct access_record *n, int http_status, bool aborted)
{
    if (aborted)
        return "abort";
    if (http_status != 200 || n->n_ended < n->n_choices)
        return "error";
    return n->by_length ? "length" : "stop";
}
