/* engine.proto <-> plain structs: requests in, tokens out. */
#include "proto/codec_internal.h"
#include "proto/engine.pb-c.h"

static ProtobufCMessage *put_submit(struct wire *w, const struct msg *m)
{
    const struct msg_submit *s = &m->submit;
    WIRE_PUT(Submit, submit);
    p->id_hi = s->id.hi;
    p->id_lo = s->id.lo;
    p->i_choice = s->i_choice;
    p->attempt = s->attempt;
    p->tenant = s->tenant;
    p->cache_salt = wire_put_str(s->cache_salt);
    p->priority = s->priority;
    p->n_prompt = s->n_prompt;
    WIRE_PUT_SPAN(p, ids, s->ids);
    p->deadline_ms = s->deadline_ms;
    p->sampling = wire_put_sampling(w, &s->sampling);
    return &p->base;
}

static void get_submit(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__Submit *p = (const Cox__Submit *)base;
    m->submit = (struct msg_submit){.id = {p->id_hi, p->id_lo},
                                    .i_choice = p->i_choice,
                                    .attempt = p->attempt,
                                    .tenant = p->tenant,
                                    .cache_salt = wire_get_str(p->cache_salt),
                                    .priority = p->priority,
                                    .n_prompt = p->n_prompt,
                                    .ids = WIRE_GET_U32(p, ids),
                                    .deadline_ms = p->deadline_ms};
    wire_get_sampling(w, p->sampling, &m->submit.sampling);
}

static ProtobufCMessage *put_cancel(struct wire *w, const struct msg *m)
{
    WIRE_PUT(Cancel, cancel);
    p->id_hi = m->cancel.id.hi;
    p->id_lo = m->cancel.id.lo;
    p->i_choice = m->cancel.i_choice;
    p->attempt = m->cancel.attempt;
    return &p->base;
}

static void get_cancel(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__Cancel *p = (const Cox__Cancel *)base;
    m->cancel = (struct msg_cancel){{p->id_hi, p->id_lo}, p->i_choice, p->attempt};
}

static ProtobufCMessage *put_finish(struct wire *w, const struct msg *m)
{
    WIRE_PUT(Finish, finish);
    p->id_hi = m->finish.id.hi;
    p->id_lo = m->finish.id.lo;
    p->i_choice = m->finish.i_choice;
    p->attempt = m->finish.attempt;
    p->n_tokens = m->finish.n_tokens;
    return &p->base;
}

static void get_finish(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__Finish *p = (const Cox__Finish *)base;
    m->finish = (struct msg_finish){{p->id_hi, p->id_lo}, p->i_choice, p->attempt, p->n_tokens};
}

static void put_tokens_item(struct wire *w, const struct tokens_item *t, Cox__TokensItem *p)
{
    p->id_hi = t->id.hi;
    p->id_lo = t->id.lo;
    p->i_choice = t->i_choice;
    p->attempt = t->attempt;
    p->start = t->start;
    WIRE_PUT_SPAN(p, ids, t->ids);
    p->logprobs = wire_put_rows(w, t->logprobs, t->n_logprobs);
    p->n_logprobs = t->n_logprobs;
    p->prompt_logprobs = wire_put_rows(w, t->prompt_logprobs, t->n_prompt_logprobs);
    p->n_prompt_logprobs = t->n_prompt_logprobs;
    p->finish = (Cox__FinishReason)t->finish;
    p->stop_id_plus_1 = t->stop_id + 1; /* UINT32_MAX wraps to 0 */
    p->n_cached = t->n_cached;
    p->status = (uint32_t)t->status;
    p->retry_after_s = t->retry_after_s;
    p->text = wire_put_text(t->text);
}

static void get_tokens_item(struct wire *w, const Cox__TokensItem *p, struct tokens_item *t)
{
    *t = (struct tokens_item){
        .id = {p->id_hi, p->id_lo},
        .i_choice = p->i_choice,
        .attempt = p->attempt,
        .start = p->start,
        .ids = WIRE_GET_U32(p, ids),
        .logprobs = wire_get_rows(w, p->logprobs, p->n_logprobs),
        .n_logprobs = (uint32_t)p->n_logprobs,
        .prompt_logprobs = wire_get_rows(w, p->prompt_logprobs, p->n_prompt_logprobs),
        .n_prompt_logprobs = (uint32_t)p->n_prompt_logprobs,
        .finish = (enum finish_reason)p->finish,
        .stop_id = p->stop_id_plus_1 - 1,
        .n_cached = p->n_cached,
        .status = (enum status)p->status,
        .retry_after_s = p->retry_after_s,
        .text = wire_get_str(p->text),
    };
}

static ProtobufCMessage *put_tokens(struct wire *w, const struct msg *m)
{
    WIRE_PUT(Tokens, tokens);
    p->term_epoch = m->tokens.term_epoch;
    p->items = wire_new_array(w, &cox__tokens_item__descriptor, m->tokens.n_items);
    p->n_items = m->tokens.n_items;
    for (uint32_t i = 0; p->items && i < m->tokens.n_items; i++)
        put_tokens_item(w, &m->tokens.items[i], p->items[i]);
    return &p->base;
}

static void get_tokens(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__Tokens *p = (const Cox__Tokens *)base;
    struct tokens_item *items = wire_array(w, p->n_items, sizeof *items);
    for (size_t i = 0; items && i < p->n_items; i++)
        get_tokens_item(w, p->items[i], &items[i]);
    m->tokens = (struct msg_tokens){p->term_epoch, items, (uint32_t)p->n_items};
}

static ProtobufCMessage *put_cluster(struct wire *w, const struct msg *m)
{
    const struct msg_cluster *c = &m->cluster;
    WIRE_PUT(Cluster, cluster);
    p->term = c->term;
    p->n_groups_ready = c->n_groups_ready;
    p->n_groups = c->n_groups;
    p->n_workers = c->n_workers;
    p->model = wire_put_str(c->model);
    p->max_model_len = c->max_model_len;
    p->vocab_size = c->vocab_size;
    p->running = c->running;
    p->waiting = c->waiting;
    p->draining = c->draining;
    return &p->base;
}

static void get_cluster(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__Cluster *p = (const Cox__Cluster *)base;
    m->cluster = (struct msg_cluster){.term = p->term,
                                      .n_groups_ready = p->n_groups_ready,
                                      .n_groups = p->n_groups,
                                      .n_workers = p->n_workers,
                                      .model = wire_get_str(p->model),
                                      .max_model_len = p->max_model_len,
                                      .vocab_size = p->vocab_size,
                                      .running = p->running,
                                      .waiting = p->waiting,
                                      .draining = p->draining != 0};
}

const struct codec_ops codec_engine_ops[MSG_TYPE_COUNT] = {
    WIRE_ROW(SUBMIT, submit, CODEC_LARGE_BYTES),   WIRE_ROW(CANCEL, cancel, CODEC_SMALL_BYTES),
    WIRE_ROW(FINISH, finish, CODEC_SMALL_BYTES),   WIRE_ROW(TOKENS, tokens, CODEC_LARGE_BYTES),
    WIRE_ROW(CLUSTER, cluster, CODEC_SMALL_BYTES),
};
