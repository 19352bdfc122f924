/* Maps the messages of engine.proto to plain structs and back: requests from gateways, and
 * tokens and the cluster's state to gateways. A `put` function builds the generated struct on
 * the scratch arena and borrows the message's spans. A `get` function borrows the arrays that
 * protobuf-c put on the arena.
 * Invariants: check.c alone decides whether a value is allowed, and a failure is kept in struct
 * wire. The functions do no I/O and may run on any thread. */
#include "proto/codec/columns.h"
#include "proto/codec/ops.h"
#include "proto/codec/sampling.h"
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
    p->n_scored = s->n_known_logprobs;
    p->same_grammar = s->same_grammar;
    p->tenant_name = wire_put_str(s->tenant_name);
    p->asks_usage = s->asks_usage;
    p->slo_ttft_ms = s->slo_ttft_ms;
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
                                    .deadline_ms = p->deadline_ms,
                                    .n_known_logprobs = p->n_scored,
                                    .same_grammar = p->same_grammar,
                                    .asks_usage = p->asks_usage,
                                    .tenant_name = wire_get_str(p->tenant_name),
                                    .slo_ttft_ms = p->slo_ttft_ms};
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

static bool has_extra(const struct tokens_item *t)
{
    return t->n_logprobs > 0 || t->n_prompt_logprobs > 0 || t->status != STATUS_OK ||
           t->retry_after_s > 0 || t->text.len > 0 || t->vector.n > 0 || t->queue_us > 0 ||
           t->block_ms > 0 || t->step_ns > 0 || t->predicted_ttft_ms > 0;
}

static void put_extra(struct wire *w, const struct tokens_item *t, uint32_t i_item,
                      Cox__TokensExtra *p)
{
    p->i_item = i_item;
    p->logprobs = wire_put_rows(w, t->logprobs, t->n_logprobs);
    p->n_logprobs = t->n_logprobs;
    p->prompt_logprobs = wire_put_rows(w, t->prompt_logprobs, t->n_prompt_logprobs);
    p->n_prompt_logprobs = t->n_prompt_logprobs;
    p->prompt_start = t->prompt_start;
    p->status = (uint32_t)t->status;
    p->retry_after_s = t->retry_after_s;
    p->text = wire_put_text(t->text);
    WIRE_PUT_SPAN(p, vector, t->vector);
    p->queue_us = t->queue_us;
    p->block_ms = t->block_ms;
    p->step_ns = t->step_ns;
    p->predicted_ttft_ms = t->predicted_ttft_ms;
}

static void new_columns(struct wire *w, const struct msg_tokens *t, Cox__Tokens *p)
{
    size_t n = t->n_items, n_ids = 0, n_extras = 0;
    for (size_t i = 0; i < n; i++) {
        n_ids += t->items[i].ids.n;
        n_extras += has_extra(&t->items[i]);
    }
    WIRE_NEW_COLUMN(w, p, item_id_hi, n);
    WIRE_NEW_COLUMN(w, p, item_id_lo, n);
    WIRE_NEW_COLUMN(w, p, item_i_choice, n);
    WIRE_NEW_COLUMN(w, p, item_attempt, n);
    WIRE_NEW_COLUMN(w, p, item_start, n);
    WIRE_NEW_COLUMN(w, p, item_n_cached, n);
    WIRE_NEW_COLUMN(w, p, item_finish, n);
    WIRE_NEW_COLUMN(w, p, item_stop_id, n);
    WIRE_NEW_COLUMN(w, p, item_n_ids, n);
    WIRE_NEW_COLUMN(w, p, item_ids, n_ids);
    p->extras = wire_new_array(w, &cox__tokens_extra__descriptor, n_extras);
}

static void put_items(struct wire *w, const struct msg_tokens *t, Cox__Tokens *p)
{
    uint32_t choices = 0, odd_attempts = 0, cached = 0, finishes = 0, stops = 0, odd_n_ids = 0;
    uint32_t *end = p->item_ids;
    for (uint32_t i = 0; w->status == STATUS_OK && i < t->n_items; i++) {
        const struct tokens_item *it = &t->items[i];
        p->item_id_hi[i] = it->id.hi;
        p->item_id_lo[i] = it->id.lo;
        p->item_start[i] = it->start;
        choices |= p->item_i_choice[i] = it->i_choice;
        odd_attempts |= (p->item_attempt[i] = it->attempt) ^ 1;
        cached |= p->item_n_cached[i] = it->n_cached;
        finishes |= p->item_finish[i] = (uint32_t)it->finish;
        stops |= p->item_stop_id[i] = it->stop_id;
        odd_n_ids |= (p->item_n_ids[i] = it->ids.n) ^ 1;
        end = wire_put_words(end, it->ids);
        if (p->extras && has_extra(it))
            put_extra(w, it, i, p->extras[p->n_extras++]);
    }
    WIRE_DROP_COLUMN(p, item_i_choice, choices == 0);
    WIRE_DROP_COLUMN(p, item_attempt, odd_attempts == 0);
    WIRE_DROP_COLUMN(p, item_n_cached, cached == 0);
    WIRE_DROP_COLUMN(p, item_finish, finishes == 0);
    WIRE_DROP_COLUMN(p, item_stop_id, stops == 0);
    WIRE_DROP_COLUMN(p, item_n_ids, odd_n_ids == 0);
}

static void get_extras(struct wire *w, const Cox__Tokens *p, struct tokens_item *items)
{
    size_t least = 0;
    for (size_t i = 0; w->status == STATUS_OK && i < p->n_extras; i++) {
        const Cox__TokensExtra *q = p->extras[i];
        if (q->i_item < least || q->i_item >= p->n_item_id_hi) {
            wire_fail(w, STATUS_PROTOCOL,
                      "the field i_item does not rise, or names an item that does not exist. "
                      "Report this bug");
            return;
        }
        least = (size_t)q->i_item + 1;
        struct tokens_item *it = &items[q->i_item];
        it->logprobs = wire_get_rows(w, q->logprobs, q->n_logprobs);
        it->n_logprobs = (uint32_t)q->n_logprobs;
        it->prompt_logprobs = wire_get_rows(w, q->prompt_logprobs, q->n_prompt_logprobs);
        it->n_prompt_logprobs = (uint32_t)q->n_prompt_logprobs;
        it->prompt_start = q->prompt_start;
        it->status = (enum status)q->status;
        it->retry_after_s = q->retry_after_s;
        it->text = wire_get_str(q->text);
        it->vector = WIRE_GET_F32(q, vector);
        it->queue_us = q->queue_us;
        it->block_ms = q->block_ms;
        it->step_ns = q->step_ns;
        it->predicted_ttft_ms = q->predicted_ttft_ms;
    }
}

static ProtobufCMessage *put_tokens(struct wire *w, const struct msg *m)
{
    WIRE_PUT(Tokens, tokens);
    p->term_epoch = m->tokens.term_epoch;
    new_columns(w, &m->tokens, p);
    put_items(w, &m->tokens, p);
    return &p->base;
}

static struct tokens_item *get_items(struct wire *w, const Cox__Tokens *p)
{
    size_t n = p->n_item_id_hi;
    struct wire_column i_choice = WIRE_GET_COLUMN(w, p, item_i_choice, n, WIRE_USUAL_0);
    struct wire_column attempt = WIRE_GET_COLUMN(w, p, item_attempt, n, WIRE_USUAL_1);
    struct wire_column start = WIRE_GET_COLUMN(w, p, item_start, n, WIRE_ALWAYS);
    struct wire_column n_cached = WIRE_GET_COLUMN(w, p, item_n_cached, n, WIRE_USUAL_0);
    struct wire_column finish = WIRE_GET_COLUMN(w, p, item_finish, n, WIRE_USUAL_0);
    struct wire_column stop_id = WIRE_GET_COLUMN(w, p, item_stop_id, n, WIRE_USUAL_0);
    struct wire_column n_ids = WIRE_GET_COLUMN(w, p, item_n_ids, n, WIRE_USUAL_1);
    struct wire_rest ids = wire_get_rest(p->item_ids, p->n_item_ids);
    struct tokens_item *items = wire_uncleared(w, n, sizeof *items);
    if (p->n_item_id_lo != n) {
        wire_fail(w, STATUS_PROTOCOL,
                  "the field item_id_lo does not have one value per item. Report this bug");
        return NULL;
    }
    for (size_t i = 0; items && i < n; i++)
        items[i] = (struct tokens_item){.id = {p->item_id_hi[i], p->item_id_lo[i]},
                                        .i_choice = wire_at(i_choice, i),
                                        .attempt = wire_at(attempt, i),
                                        .start = wire_at(start, i),
                                        .ids = wire_take(&ids, wire_at(n_ids, i)),
                                        .finish = (enum finish_reason)wire_at(finish, i),
                                        .stop_id = wire_at(stop_id, i),
                                        .n_cached = wire_at(n_cached, i),
                                        .text = {"", 0}};
    wire_must(w, !ids.missing && ids.n == 0,
              "the sum of item_n_ids differs from the number of item_ids");
    get_extras(w, p, items);
    return items;
}

static void get_tokens(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__Tokens *p = (const Cox__Tokens *)base;
    m->tokens = (struct msg_tokens){p->term_epoch, get_items(w, p), (uint32_t)p->n_item_id_hi};
}

static ProtobufCMessage *put_cluster(struct wire *w, const struct msg *m)
{
    const struct msg_cluster *c = &m->cluster;
    WIRE_PUT(Cluster, cluster);
    p->term = c->term;
    p->n_groups_ready = c->n_replicas_ready;
    p->n_groups = c->n_replicas;
    p->n_workers = c->n_workers;
    p->model = wire_put_str(c->model);
    p->max_model_len = c->max_model_len;
    p->vocab_size = c->vocab_size;
    p->running = c->running;
    p->waiting = c->waiting;
    p->draining = c->draining;
    p->n_blocks = c->load.n_blocks;
    p->n_blocks_used = c->load.n_blocks_used;
    p->n_preemptions = c->load.n_preemptions;
    p->n_draft_steps = c->load.n_draft_steps;
    p->n_drafted = c->load.n_drafted;
    p->n_accepted = c->load.n_accepted;
    p->block_tokens = c->load.block_tokens;
    p->max_loras = c->load.max_loras;
    p->prefix_caching = c->load.prefix_caching;
    p->scores_prompts = c->gives_prompt_logprobs;
    p->one_class = c->one_class;
    p->start_s = c->start_s;
    return &p->base;
}

static void get_cluster(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__Cluster *p = (const Cox__Cluster *)base;
    m->cluster = (struct msg_cluster){.term = p->term,
                                      .n_replicas_ready = p->n_groups_ready,
                                      .n_replicas = p->n_groups,
                                      .n_workers = p->n_workers,
                                      .model = wire_get_str(p->model),
                                      .max_model_len = p->max_model_len,
                                      .vocab_size = p->vocab_size,
                                      .running = p->running,
                                      .waiting = p->waiting,
                                      .draining = p->draining != 0,
                                      .load = {.n_blocks = p->n_blocks,
                                               .n_blocks_used = p->n_blocks_used,
                                               .n_preemptions = p->n_preemptions,
                                               .n_draft_steps = p->n_draft_steps,
                                               .n_drafted = p->n_drafted,
                                               .n_accepted = p->n_accepted,
                                               .block_tokens = p->block_tokens,
                                               .max_loras = p->max_loras,
                                               .prefix_caching = p->prefix_caching != 0},
                                      .gives_prompt_logprobs = p->scores_prompts != 0,
                                      .one_class = p->one_class != 0,
                                      .start_s = p->start_s};
}

const struct codec_ops codec_engine_ops[MSG_TYPE_COUNT] = {
    WIRE_ROW(SUBMIT, submit, CODEC_LARGE_BYTES),   WIRE_ROW(CANCEL, cancel, CODEC_SMALL_BYTES),
    WIRE_ROW(FINISH, finish, CODEC_SMALL_BYTES),   WIRE_ROW(TOKENS, tokens, CODEC_LARGE_BYTES),
    WIRE_ROW(CLUSTER, cluster, CODEC_SMALL_BYTES),
};
