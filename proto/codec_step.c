/* step.proto <-> plain structs: the plan and its result, the hot path of the codec. A plan's spans
 * are borrowed in both directions; only the small structs around them are built. */
#include "proto/codec_internal.h"
#include "proto/step.pb-c.h"

static void put_run(struct wire *w, const struct plan_run *r, Cox__PlanRun *p)
{
    p->slot = r->slot;
    p->start = r->start;
    p->n_tokens = r->n_tokens;
    p->n_draft = r->n_draft;
    p->sample = r->sample;
    p->follows = r->follows;
    p->blocks = wire_new_array(w, &cox__plan_blocks__descriptor, r->n_blocks);
    if (!p->blocks)
        return;
    p->n_blocks = r->n_blocks;
    for (uint32_t i = 0; i < r->n_blocks; i++) {
        p->blocks[i]->i_group = r->blocks[i].i_group;
        p->blocks[i]->drop_leading = r->blocks[i].drop_leading;
        WIRE_PUT_SPAN(p->blocks[i], ids, r->blocks[i].ids);
    }
}

static void get_run(struct wire *w, const Cox__PlanRun *p, struct plan_run *r)
{
    struct plan_blocks *blocks = wire_array(w, p->n_blocks, sizeof *blocks);
    for (size_t i = 0; blocks && i < p->n_blocks; i++)
        blocks[i] = (struct plan_blocks){p->blocks[i]->i_group, p->blocks[i]->drop_leading,
                                         WIRE_GET_U32(p->blocks[i], ids)};
    *r = (struct plan_run){.slot = p->slot,
                           .start = p->start,
                           .n_tokens = p->n_tokens,
                           .n_draft = p->n_draft,
                           .sample = p->sample != 0,
                           .follows = p->follows != 0,
                           .blocks = blocks,
                           .n_blocks = (uint32_t)p->n_blocks};
}

static void put_copies(struct wire *w, const struct msg_plan *plan, Cox__Plan *p)
{
    p->copies = wire_new_array(w, &cox__plan_copy__descriptor, plan->n_copies);
    p->n_copies = plan->n_copies;
    for (uint32_t i = 0; p->copies && i < plan->n_copies; i++) {
        p->copies[i]->i_group = plan->copies[i].i_group;
        p->copies[i]->from = plan->copies[i].from;
        p->copies[i]->to = plan->copies[i].to;
    }
}

static void put_admits(struct wire *w, const struct msg_plan *plan, Cox__Plan *p)
{
    p->admits = wire_new_array(w, &cox__plan_admit__descriptor, plan->n_admits);
    p->n_admits = plan->n_admits;
    for (uint32_t i = 0; p->admits && i < plan->n_admits; i++) {
        const struct plan_admit *a = &plan->admits[i];
        Cox__PlanAdmit *q = p->admits[i];
        q->slot = a->slot;
        q->n_prompt = a->n_prompt;
        q->n_computed = a->n_computed;
        WIRE_PUT_SPAN(q, ids, a->ids);
        q->sampling = wire_put_sampling(w, &a->sampling);
    }
}

static ProtobufCMessage *put_plan(struct wire *w, const struct msg *m)
{
    const struct msg_plan *plan = &m->plan;
    WIRE_PUT(Plan, plan);
    p->term_epoch = plan->term_epoch;
    p->step = plan->step;
    p->full = plan->full;
    WIRE_PUT_SPAN(p, finished, plan->finished);
    put_copies(w, plan, p);
    put_admits(w, plan, p);
    p->runs = wire_new_array(w, &cox__plan_run__descriptor, plan->n_runs);
    p->n_runs = plan->n_runs;
    for (uint32_t i = 0; p->runs && i < plan->n_runs; i++)
        put_run(w, &plan->runs[i], p->runs[i]);
    p->digest = plan->digest;
    return &p->base;
}

static void get_plan(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__Plan *p = (const Cox__Plan *)base;
    struct plan_copy *copies = wire_array(w, p->n_copies, sizeof *copies);
    for (size_t i = 0; copies && i < p->n_copies; i++)
        copies[i] = (struct plan_copy){p->copies[i]->i_group, p->copies[i]->from, p->copies[i]->to};
    struct plan_admit *admits = wire_array(w, p->n_admits, sizeof *admits);
    for (size_t i = 0; admits && i < p->n_admits; i++) {
        const Cox__PlanAdmit *q = p->admits[i];
        admits[i] = (struct plan_admit){.slot = q->slot,
                                        .n_prompt = q->n_prompt,
                                        .n_computed = q->n_computed,
                                        .ids = WIRE_GET_U32(q, ids)};
        wire_get_sampling(w, q->sampling, &admits[i].sampling);
    }
    struct plan_run *runs = wire_array(w, p->n_runs, sizeof *runs);
    for (size_t i = 0; runs && i < p->n_runs; i++)
        get_run(w, p->runs[i], &runs[i]);
    m->plan = (struct msg_plan){.term_epoch = p->term_epoch,
                                .step = p->step,
                                .full = p->full != 0,
                                .finished = WIRE_GET_U32(p, finished),
                                .copies = copies,
                                .n_copies = (uint32_t)p->n_copies,
                                .admits = admits,
                                .n_admits = (uint32_t)p->n_admits,
                                .runs = runs,
                                .n_runs = (uint32_t)p->n_runs,
                                .digest = p->digest};
}

static ProtobufCMessage *put_result(struct wire *w, const struct msg *m)
{
    const struct msg_result *r = &m->result;
    WIRE_PUT(Result, result);
    p->term_epoch = r->term_epoch;
    p->step = r->step;
    p->execute_ns = r->execute_ns;
    p->wait_ns = r->wait_ns;
    p->n_drafted = r->n_drafted;
    p->items = wire_new_array(w, &cox__result_item__descriptor, r->n_items);
    p->n_items = r->n_items;
    for (uint32_t i = 0; w->status == STATUS_OK && i < r->n_items; i++) {
        const struct result_item *it = &r->items[i];
        Cox__ResultItem *q = p->items[i];
        q->slot = it->slot;
        WIRE_PUT_SPAN(q, ids, it->ids);
        q->logprobs = wire_put_rows(w, it->logprobs, it->n_logprobs);
        q->n_logprobs = it->n_logprobs;
        q->prompt_logprobs = wire_put_rows(w, it->prompt_logprobs, it->n_prompt_logprobs);
        q->n_prompt_logprobs = it->n_prompt_logprobs;
        WIRE_PUT_SPAN(q, gaps, it->gaps);
    }
    return &p->base;
}

static void get_result(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__Result *p = (const Cox__Result *)base;
    struct result_item *items = wire_array(w, p->n_items, sizeof *items);
    for (size_t i = 0; items && i < p->n_items; i++) {
        const Cox__ResultItem *q = p->items[i];
        items[i] = (struct result_item){
            .slot = q->slot,
            .ids = WIRE_GET_U32(q, ids),
            .logprobs = wire_get_rows(w, q->logprobs, q->n_logprobs),
            .n_logprobs = (uint32_t)q->n_logprobs,
            .prompt_logprobs = wire_get_rows(w, q->prompt_logprobs, q->n_prompt_logprobs),
            .n_prompt_logprobs = (uint32_t)q->n_prompt_logprobs,
            .gaps = {q->gaps, (uint32_t)q->n_gaps}};
    }
    m->result = (struct msg_result){.term_epoch = p->term_epoch,
                                    .step = p->step,
                                    .items = items,
                                    .n_items = (uint32_t)p->n_items,
                                    .execute_ns = p->execute_ns,
                                    .wait_ns = p->wait_ns,
                                    .n_drafted = p->n_drafted};
}

static ProtobufCMessage *put_gap(struct wire *w, const struct msg *m)
{
    WIRE_PUT(Gap, gap);
    p->term_epoch = m->gap.term_epoch;
    p->last_step = m->gap.last_step;
    p->got_step = m->gap.got_step;
    p->text = wire_put_text(m->gap.text);
    return &p->base;
}

static void get_gap(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__Gap *p = (const Cox__Gap *)base;
    m->gap = (struct msg_gap){p->term_epoch, p->last_step, p->got_step, wire_get_str(p->text)};
}

const struct codec_ops codec_step_ops[MSG_TYPE_COUNT] = {
    WIRE_ROW(PLAN, plan, CODEC_LARGE_BYTES),
    WIRE_ROW(RESULT, result, CODEC_LARGE_BYTES),
    WIRE_ROW(GAP, gap, CODEC_SMALL_BYTES),
};
