/* Maps the messages of step.proto to plain structs and back: the plan and its result, which are
 * the hot path of the codec, and the report of a gap.
 *
 * Data flow: a `put` function builds the generated struct on the scratch arena. It borrows the
 * spans of the message and copies runs, blocks and items into columns (columns.h). It then drops
 * each column that has only the usual value. A `get` function does the reverse: it builds the
 * plain structs on the arena, with spans that point into the received columns. The table at the
 * end names both functions for each type.
 *
 * Invariants: the order of runs, blocks, items and ids is kept exactly. A `get` function refuses
 * only faults that the plain structs cannot show: columns of different lengths, counts whose sum
 * does not match the ids, unknown flags, and indices that are out of order or out of range. The
 * other rules are in check.c. A failure is kept in struct wire. The functions do no I/O and may
 * run on any thread. */
#include "proto/codec/columns.h"
#include "proto/codec/ops.h"
#include "proto/codec/sampling.h"
#include "proto/step.pb-c.h"

enum run_flag { RUN_SAMPLE = 1, RUN_FOLLOWS = 2, RUN_FLAGS = 3 };

/* Puts the blocks of all runs into the columns of one list. */
static void put_blocks(struct wire *w, const struct msg_plan *plan, size_t n_ids, Cox__Plan *p)
{
    size_t n = p->n_block_run, i = 0;
    uint32_t groups = 0, drops = 0, odd_n_ids = 0;
    WIRE_NEW_COLUMN(w, p, block_run, n);
    WIRE_NEW_COLUMN(w, p, block_group, n);
    WIRE_NEW_COLUMN(w, p, block_drop_leading, n);
    WIRE_NEW_COLUMN(w, p, block_n_ids, n);
    WIRE_NEW_COLUMN(w, p, block_ids, n_ids);
    uint32_t *end = p->block_ids;
    for (uint32_t i_run = 0; w->status == STATUS_OK && i < n; i_run++) {
        for (uint32_t k = 0; k < plan->runs[i_run].n_blocks; k++, i++) {
            const struct plan_blocks *b = &plan->runs[i_run].blocks[k];
            p->block_run[i] = i_run;
            groups |= p->block_group[i] = b->i_group;
            drops |= p->block_drop_leading[i] = b->drop_leading;
            odd_n_ids |= (p->block_n_ids[i] = b->ids.n) ^ 1;
            end = wire_put_words(end, b->ids);
        }
    }
    WIRE_DROP_COLUMN(p, block_group, groups == 0);
    WIRE_DROP_COLUMN(p, block_drop_leading, drops == 0);
    WIRE_DROP_COLUMN(p, block_n_ids, odd_n_ids == 0);
}

static void put_runs(struct wire *w, const struct msg_plan *plan, Cox__Plan *p)
{
    uint32_t n = plan->n_runs, odd_n_tokens = 0, drafts = 0, odd_flags = 0;
    size_t n_block_ids = 0;
    WIRE_NEW_COLUMN(w, p, run_slot, n);
    WIRE_NEW_COLUMN(w, p, run_start, n);
    WIRE_NEW_COLUMN(w, p, run_n_tokens, n);
    WIRE_NEW_COLUMN(w, p, run_n_draft, n);
    WIRE_NEW_COLUMN(w, p, run_flags, n);
    for (uint32_t i = 0; w->status == STATUS_OK && i < n; i++) {
        const struct plan_run *r = &plan->runs[i];
        uint32_t flags = (r->sample ? RUN_SAMPLE : 0u) | (r->follows ? RUN_FOLLOWS : 0u);
        p->run_slot[i] = r->slot;
        p->run_start[i] = r->start;
        odd_n_tokens |= (p->run_n_tokens[i] = r->n_tokens) ^ 1;
        drafts |= p->run_n_draft[i] = r->n_draft;
        odd_flags |= (p->run_flags[i] = flags) ^ RUN_SAMPLE;
        p->n_block_run += r->n_blocks;
        for (uint32_t k = 0; k < r->n_blocks; k++)
            n_block_ids += r->blocks[k].ids.n;
    }
    WIRE_DROP_COLUMN(p, run_n_tokens, odd_n_tokens == 0);
    WIRE_DROP_COLUMN(p, run_n_draft, drafts == 0);
    WIRE_DROP_COLUMN(p, run_flags, odd_flags == 0);
    put_blocks(w, plan, n_block_ids, p);
}

static void get_blocks(struct wire *w, const Cox__Plan *p, struct plan_run *runs, size_t n_runs)
{
    size_t n = p->n_block_run;
    struct wire_column group = WIRE_GET_COLUMN(w, p, block_group, n, WIRE_USUAL_0);
    struct wire_column drop = WIRE_GET_COLUMN(w, p, block_drop_leading, n, WIRE_USUAL_0);
    struct wire_column n_ids = WIRE_GET_COLUMN(w, p, block_n_ids, n, WIRE_USUAL_1);
    struct wire_rest ids = wire_get_rest(p->block_ids, p->n_block_ids);
    struct plan_blocks *blocks = wire_uncleared(w, n, sizeof *blocks);
    uint32_t least = 0;
    for (size_t i = 0; blocks && w->status == STATUS_OK && i < n; i++) {
        uint32_t i_run = p->block_run[i];
        if (i_run < least || i_run >= n_runs) {
            wire_fail(
                w, STATUS_PROTOCOL,
                "the field block_run falls, or names a run that does not exist. Report this bug");
            return;
        }
        least = i_run;
        blocks[i] = (struct plan_blocks){wire_at(group, i), wire_at(drop, i),
                                         wire_take(&ids, wire_at(n_ids, i))};
        if (runs[i_run].n_blocks++ == 0)
            runs[i_run].blocks = &blocks[i];
    }
    wire_must(w, !ids.missing && ids.n == 0,
              "the sum of block_n_ids differs from the number of block_ids");
}

static struct plan_run *get_runs(struct wire *w, const Cox__Plan *p)
{
    size_t n = p->n_run_slot;
    struct wire_column start = WIRE_GET_COLUMN(w, p, run_start, n, WIRE_ALWAYS);
    struct wire_column n_tokens = WIRE_GET_COLUMN(w, p, run_n_tokens, n, WIRE_USUAL_1);
    struct wire_column n_draft = WIRE_GET_COLUMN(w, p, run_n_draft, n, WIRE_USUAL_0);
    struct wire_column flags = WIRE_GET_COLUMN(w, p, run_flags, n, WIRE_USUAL_1);
    struct plan_run *runs = wire_uncleared(w, n, sizeof *runs);
    uint32_t all_flags = 0;
    for (size_t i = 0; runs && i < n; i++) {
        uint32_t f = wire_at(flags, i);
        all_flags |= f;
        runs[i] = (struct plan_run){.slot = p->run_slot[i],
                                    .start = wire_at(start, i),
                                    .n_tokens = wire_at(n_tokens, i),
                                    .n_draft = wire_at(n_draft, i),
                                    .sample = (f & RUN_SAMPLE) != 0,
                                    .follows = (f & RUN_FOLLOWS) != 0};
    }
    wire_must(w, (all_flags & ~(uint32_t)RUN_FLAGS) == 0, "run_flags has unknown flags");
    get_blocks(w, p, runs, n);
    return runs;
}

static void put_copies(struct wire *w, const struct msg_plan *plan, Cox__Plan *p)
{
    uint32_t n = plan->n_copies, groups = 0;
    WIRE_NEW_COLUMN(w, p, copy_group, n);
    WIRE_NEW_COLUMN(w, p, copy_from, n);
    WIRE_NEW_COLUMN(w, p, copy_to, n);
    for (uint32_t i = 0; w->status == STATUS_OK && i < n; i++) {
        groups |= p->copy_group[i] = plan->copies[i].i_group;
        p->copy_from[i] = plan->copies[i].from;
        p->copy_to[i] = plan->copies[i].to;
    }
    WIRE_DROP_COLUMN(p, copy_group, groups == 0);
}

static struct plan_copy *get_copies(struct wire *w, const Cox__Plan *p)
{
    size_t n = p->n_copy_from;
    struct wire_column group = WIRE_GET_COLUMN(w, p, copy_group, n, WIRE_USUAL_0);
    struct wire_column to = WIRE_GET_COLUMN(w, p, copy_to, n, WIRE_ALWAYS);
    struct plan_copy *copies = wire_uncleared(w, n, sizeof *copies);
    for (size_t i = 0; copies && i < n; i++)
        copies[i] = (struct plan_copy){wire_at(group, i), p->copy_from[i], wire_at(to, i)};
    return copies;
}

static void put_admits(struct wire *w, const struct msg_plan *plan, Cox__Plan *p)
{
    p->admits = wire_new_array(w, &cox__plan_admit__descriptor, plan->n_admits);
    p->n_admits = p->admits ? plan->n_admits : 0;
    for (uint32_t i = 0; i < p->n_admits; i++) {
        const struct plan_admit *a = &plan->admits[i];
        Cox__PlanAdmit *q = p->admits[i];
        q->slot = a->slot;
        q->n_prompt = a->n_prompt;
        q->n_computed = a->n_computed;
        WIRE_PUT_SPAN(q, ids, a->ids);
        q->sampling = wire_put_sampling(w, &a->sampling);
    }
}

static struct plan_admit *get_admits(struct wire *w, const Cox__Plan *p)
{
    struct plan_admit *admits = wire_array(w, p->n_admits, sizeof *admits);
    for (size_t i = 0; admits && i < p->n_admits; i++) {
        const Cox__PlanAdmit *q = p->admits[i];
        admits[i] = (struct plan_admit){.slot = q->slot,
                                        .n_prompt = q->n_prompt,
                                        .n_computed = q->n_computed,
                                        .ids = WIRE_GET_U32(q, ids)};
        wire_get_sampling(w, q->sampling, &admits[i].sampling);
    }
    return admits;
}

static ProtobufCMessage *put_plan(struct wire *w, const struct msg *m)
{
    const struct msg_plan *plan = &m->plan;
    WIRE_PUT(Plan, plan);
    p->term_epoch = plan->term_epoch;
    p->step = plan->step;
    p->full = plan->full;
    p->digest = plan->digest;
    WIRE_PUT_SPAN(p, finished, plan->finished);
    put_copies(w, plan, p);
    put_admits(w, plan, p);
    put_runs(w, plan, p);
    return &p->base;
}

static void get_plan(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__Plan *p = (const Cox__Plan *)base;
    m->plan = (struct msg_plan){.term_epoch = p->term_epoch,
                                .step = p->step,
                                .full = p->full != 0,
                                .finished = WIRE_GET_U32(p, finished),
                                .copies = get_copies(w, p),
                                .n_copies = (uint32_t)p->n_copy_from,
                                .admits = get_admits(w, p),
                                .n_admits = (uint32_t)p->n_admits,
                                .runs = get_runs(w, p),
                                .n_runs = (uint32_t)p->n_run_slot,
                                .digest = p->digest};
}

static bool has_more(const struct result_item *it)
{
    return it->n_logprobs > 0 || it->n_prompt_logprobs > 0 || it->vector.n > 0;
}

static void put_result_logprobs(struct wire *w, const struct result_item *it, uint32_t i_item,
                                Cox__ResultLogprobs *p)
{
    p->i_item = i_item;
    p->logprobs = wire_put_rows(w, it->logprobs, it->n_logprobs);
    p->n_logprobs = it->n_logprobs;
    p->prompt_logprobs = wire_put_rows(w, it->prompt_logprobs, it->n_prompt_logprobs);
    p->n_prompt_logprobs = it->n_prompt_logprobs;
    WIRE_PUT_SPAN(p, vector, it->vector);
}

static void get_result_logprobs(struct wire *w, const Cox__Result *p, struct result_item *items)
{
    size_t least = 0;
    for (size_t i = 0; w->status == STATUS_OK && i < p->n_logprobs; i++) {
        const Cox__ResultLogprobs *q = p->logprobs[i];
        if (q->i_item < least || q->i_item >= p->n_item_slot) {
            wire_fail(w, STATUS_PROTOCOL,
                      "the field i_item does not rise, or names an item that does not exist. "
                      "Report this bug");
            return;
        }
        least = (size_t)q->i_item + 1;
        struct result_item *it = &items[q->i_item];
        it->logprobs = wire_get_rows(w, q->logprobs, q->n_logprobs);
        it->n_logprobs = (uint32_t)q->n_logprobs;
        it->prompt_logprobs = wire_get_rows(w, q->prompt_logprobs, q->n_prompt_logprobs);
        it->n_prompt_logprobs = (uint32_t)q->n_prompt_logprobs;
        it->vector = WIRE_GET_F32(q, vector);
    }
}

/* Writes the items into columns. msg_check has verified that every item has as many gaps as ids. */
static void put_items(struct wire *w, const struct msg_result *r, Cox__Result *p)
{
    uint32_t n = r->n_items, odd_n_ids = 0, odd_units = 0, odd_kib = 0;
    size_t n_ids = 0, n_logprobs = 0, at = 0;
    for (uint32_t i = 0; i < n; i++) {
        n_ids += r->items[i].ids.n;
        n_logprobs += has_more(&r->items[i]);
    }
    WIRE_NEW_COLUMN(w, p, item_slot, n);
    WIRE_NEW_COLUMN(w, p, item_n_ids, n);
    WIRE_NEW_COLUMN(w, p, item_mask_units, n);
    WIRE_NEW_COLUMN(w, p, item_matcher_kib, n);
    WIRE_NEW_COLUMN(w, p, item_ids, n_ids);
    WIRE_NEW_COLUMN(w, p, item_gaps, n_ids);
    p->logprobs = wire_new_array(w, &cox__result_logprobs__descriptor, n_logprobs);
    for (uint32_t i = 0; w->status == STATUS_OK && i < n; i++) {
        const struct result_item *it = &r->items[i];
        p->item_slot[i] = it->slot;
        odd_n_ids |= (p->item_n_ids[i] = it->ids.n) ^ 1;
        odd_units |= p->item_mask_units[i] = it->mask_units;
        odd_kib |= p->item_matcher_kib[i] = it->matcher_kib;
        for (uint32_t k = 0; k < it->ids.n; k++, at++) {
            p->item_ids[at] = it->ids.ptr[k];
            p->item_gaps[at] = it->gaps.ptr[k];
        }
        if (p->logprobs && has_more(it))
            put_result_logprobs(w, it, i, p->logprobs[p->n_logprobs++]);
    }
    WIRE_DROP_COLUMN(p, item_n_ids, odd_n_ids == 0);
    WIRE_DROP_COLUMN(p, item_mask_units, odd_units == 0);
    WIRE_DROP_COLUMN(p, item_matcher_kib, odd_kib == 0);
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
    put_items(w, r, p);
    return &p->base;
}

static struct result_item *get_items(struct wire *w, const Cox__Result *p)
{
    size_t n = p->n_item_slot;
    struct wire_column n_ids = WIRE_GET_COLUMN(w, p, item_n_ids, n, WIRE_USUAL_1);
    struct wire_column units = WIRE_GET_COLUMN(w, p, item_mask_units, n, WIRE_USUAL_0);
    struct wire_column kib = WIRE_GET_COLUMN(w, p, item_matcher_kib, n, WIRE_USUAL_0);
    struct wire_rest ids = wire_get_rest(p->item_ids, p->n_item_ids);
    struct result_item *items = wire_uncleared(w, n, sizeof *items);
    const float *gap = p->item_gaps;
    if (p->n_item_gaps != p->n_item_ids) {
        wire_fail(w, STATUS_PROTOCOL,
                  "the field item_gaps does not have one value per id. Report this bug");
        return NULL;
    }
    for (size_t i = 0; items && i < n; i++) {
        struct u32_span s = wire_take(&ids, wire_at(n_ids, i));
        items[i] = (struct result_item){.slot = p->item_slot[i],
                                        .ids = s,
                                        .gaps = {gap, s.n},
                                        .mask_units = wire_at(units, i),
                                        .matcher_kib = wire_at(kib, i)};
        gap = s.n ? gap + s.n : gap;
    }
    wire_must(w, !ids.missing && ids.n == 0,
              "the sum of item_n_ids differs from the number of item_ids");
    get_result_logprobs(w, p, items);
    return items;
}

static void get_result(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__Result *p = (const Cox__Result *)base;
    m->result = (struct msg_result){.term_epoch = p->term_epoch,
                                    .step = p->step,
                                    .items = get_items(w, p),
                                    .n_items = (uint32_t)p->n_item_slot,
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
