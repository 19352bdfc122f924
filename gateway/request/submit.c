#include "gateway/request/submit.h"

#include <string.h>

#include "common/base/mem.h"
#include "gateway/request/promise.h"

enum { SUBMIT_BYTES = 256 }; /* estimated bytes of a message without its long fields */

static struct u32_span submit_ids(struct api_choice *c, const struct prompt *p)
{
    struct serving *s = c->owner->s;
    size_t n = (size_t)p->n_ids + c->g.n_ids;
    if (c->g.n_ids == 0)
        return (struct u32_span){p->ids, p->n_ids};
    if (n > s->cap_scratch_ids) {
        s->cap_scratch_ids = n * 2;
        s->scratch_ids = mem_realloc(s->scratch_ids, s->cap_scratch_ids * sizeof *s->scratch_ids);
    }
    memcpy(s->scratch_ids, p->ids, p->n_ids * sizeof *p->ids);
    memcpy(s->scratch_ids + p->n_ids, c->g.ids, c->g.n_ids * sizeof *c->g.ids);
    return (struct u32_span){s->scratch_ids, (uint32_t)n};
}

/* Returns the milliseconds left until the timeout, at least 1. Returns 0 when there is no
 * timeout. */
static uint64_t ms_left(const struct api_request *r)
{
    uint64_t t = serving_now(r->s);
    if (!r->deadline_ns)
        return 0;
    return t + 2 * NS_PER_MS <= r->deadline_ns ? (r->deadline_ns - t) / NS_PER_MS : 1;
}

static uint64_t weight_of(const struct msg_submit *m)
{
    const struct sampling_params *p = &m->sampling;
    uint64_t n_ids = (uint64_t)m->ids.n + p->stop_ids.n + p->allowed_ids.n + p->bad_words.n +
                     2ull * p->n_logit_bias;
    return SUBMIT_BYTES + 4 * n_ids + m->cache_salt.len + p->grammar.len + p->lora.len;
}

/* Sends a grammar once per request. All choices of a request have the same grammar, of up to
 * PROTO_MAX_GRAMMAR_BYTES. When the head keeps the grammar of the last Submit, later choices
 * refer to it. */
static void refer_to_grammar(const struct serving *s, struct msg_submit *m)
{
    m->same_grammar = m->sampling.grammar.len > 0 && s->engine.keeps_grammar &&
                      s->engine.keeps_grammar(s->engine.ctx) && m->id.lo == s->grammar_of.lo &&
                      m->id.hi == s->grammar_of.hi;
    if (!m->same_grammar)
        return;
    m->sampling.grammar_kind = GRAMMAR_NONE;
    m->sampling.grammar = STR("");
}

enum status api_choice_submit(struct api_choice *c, uint64_t *bytes)
{
    struct api_request *r = c->owner;
    struct serving *s = r->s;
    const struct params *params = &r->prepared.params;
    const struct prompt *p = &r->prepared.prompts.items[c->i_choice / params->n_generated];
    struct msg_submit m = {
        .id = r->id,
        .i_choice = c->i_choice,
        .attempt = c->g.stream.attempt,
        .tenant = r->tenant,
        .asks_usage = r->full_usage,
        .slo_ttft_ms = promise_left_ms(r),
        .tenant_name = r->key ? str_from(r->key->name) : STR(""),
        .cache_salt = params->cache_salt,
        .priority = (int32_t)params->priority,
        .deadline_ms = ms_left(r),
        .n_prompt = p->n_ids,
        .ids = submit_ids(c, p),
        .n_known_logprobs = c->g.prompt_logprobs.n_known,
        .sampling = params->sampling,
    };
    /* the rows are complete, or another choice requests them */
    if (prompt_logprobs_complete(&c->g.prompt_logprobs))
        m.sampling.n_prompt_logprobs = -1;
    m.sampling.i_prompt = c->i_choice / params->n_generated;
    m.sampling.i_choice = c->i_choice % params->n_generated;
    m.sampling.lora = r->lora;
    if (m.sampling.max_tokens == 0)
        m.sampling.max_tokens = r->prepared.max_tokens_room;
    if (!params->ignore_eos)
        m.sampling.eos_ids = (struct u32_span){s->o.eos_ids, s->o.n_eos_ids};
    refer_to_grammar(s, &m);
    *bytes = weight_of(&m);
    enum status status = s->engine.submit(s->engine.ctx, &m);
    if (status == STATUS_OK && m.sampling.grammar.len > 0)
        s->grammar_of = r->id;
    return status;
}

void api_choice_finish(struct api_choice *c)
{
    struct serving *s = c->owner->s;
    struct msg_finish m = {.id = c->owner->id,
                           .i_choice = c->i_choice,
                           .attempt = c->g.stream.attempt,
                           .n_tokens = c->g.n_ids};
    /* When this message is lost, further tokens make `api_request_on_tokens` send it again. */
    (void)!s->engine.finish(s->engine.ctx, &m);
}

void api_choice_cancel(struct api_choice *c)
{
    struct serving *s = c->owner->s;
    struct msg_cancel m = {
        .id = c->owner->id, .i_choice = c->i_choice, .attempt = c->g.stream.attempt};
    if (c->g.stream.phase == STREAM_OPEN || c->g.stream.attempt > 1)
        /* when this message is lost, `serving_on_tokens` sends it again */
        (void)!s->engine.cancel(s->engine.ctx, &m);
    stream_end(&c->g.stream);
}
