/* Writes a plan for the step log. This runs for every step, so a plain decode (one token,
 * sampled, nothing else) costs one store.
 *
 *   step flags [digest] finished copies admits runs      each list begins with its length
 *   run     the pair (slot, start) of a plain one, else STEP_LOG_OTHER slot start
 *           n_tokens << 2 | flags, n_draft, blocks */
#include "common/base/mem.h"
#include "head/record/format.h"
#include "proto/messages.h"

enum {
    VARINT32 = 5,
    PLAN_BYTES = 2 * STEP_LOG_VARINT_MAX + 8 + 4 * VARINT32,
    ADMIT_BYTES = 4 * VARINT32 + 4,
    COPY_BYTES = 3 * VARINT32,
    /* most bytes of a run, more than STEP_LOG_PAIR_ROOM */
    RUN_BYTES = 1 + 4 * VARINT32 + STEP_LOG_VARINT_MAX,
    BLOCKS_BYTES = 3 * VARINT32,
};

uint8_t *step_log_room(struct step_log_out *out, size_t n)
{
    if (out->cap - out->n < n) {
        size_t cap = out->cap ? 2 * out->cap : 4096;
        while (cap - out->n < n)
            cap *= 2;
        out->bytes = mem_realloc(out->bytes, cap);
        out->cap = cap;
    }
    return out->bytes + out->n;
}

void step_log_out_fini(struct step_log_out *out)
{
    mem_free(out->bytes);
    *out = (struct step_log_out){0};
}

static void moved(struct step_log_out *out, const uint8_t *p)
{
    out->n = (size_t)(p - out->bytes);
}

/* Returns the zigzag of the difference to `before` + 1, which is 0 for consecutive ids. */
static uint64_t step_from(int64_t before, uint32_t v)
{
    return step_log_zigzag((int64_t)v - before - 1);
}

static void put_finished(struct step_log_out *out, struct u32_span slots)
{
    uint8_t *p = step_log_room(out, (size_t)(slots.n + 1) * VARINT32);
    p = step_log_put_varint(p, slots.n);
    for (uint32_t i = 0; i < slots.n; i++)
        p = step_log_put_varint(p, slots.ptr[i]);
    moved(out, p);
}

static void put_copies(struct step_log_out *out, const struct msg_plan *plan)
{
    uint8_t *p = step_log_room(out, VARINT32 + (size_t)plan->n_copies * COPY_BYTES);
    p = step_log_put_varint(p, plan->n_copies);
    for (uint32_t i = 0; i < plan->n_copies; i++) {
        p = step_log_put_varint(p, plan->copies[i].i_group);
        p = step_log_put_varint(p, plan->copies[i].from);
        p = step_log_put_varint(p, plan->copies[i].to);
    }
    moved(out, p);
}

static void put_admits(struct step_log_out *out, const struct msg_plan *plan)
{
    uint8_t *p = step_log_room(out, VARINT32 + (size_t)plan->n_admits * ADMIT_BYTES);
    p = step_log_put_varint(p, plan->n_admits);
    for (uint32_t i = 0; i < plan->n_admits; i++) {
        const struct plan_admit *a = &plan->admits[i];
        uint32_t sum = step_log_ids_sum(a->ids.ptr, a->ids.n);
        p = step_log_put_varint(p, a->slot);
        p = step_log_put_varint(p, a->n_prompt);
        p = step_log_put_varint(p, a->n_computed);
        p = step_log_put_varint(p, a->ids.n);
        memcpy(p, &sum, sizeof sum);
        p += sizeof sum;
    }
    moved(out, p);
}

static void put_blocks(struct step_log_out *out, const struct plan_run *run)
{
    for (uint32_t i = 0; i < run->n_blocks; i++) {
        const struct plan_blocks *b = &run->blocks[i];
        uint8_t *p = step_log_room(out, BLOCKS_BYTES + (size_t)b->ids.n * VARINT32);
        p = step_log_put_varint(p, b->i_group);
        p = step_log_put_varint(p, b->drop_leading);
        p = step_log_put_varint(p, b->ids.n);
        int64_t before = -1;
        for (uint32_t k = 0; k < b->ids.n; before = b->ids.ptr[k++])
            p = step_log_put_varint(p, step_from(before, b->ids.ptr[k]));
        moved(out, p);
    }
}

static bool is_plain(const struct plan_run *r)
{
    return r->n_tokens == 1 && r->sample && !r->follows && r->n_draft == 0 && r->n_blocks == 0 &&
           step_log_is_pair(r->slot, r->start);
}

static uint8_t *put_other(uint8_t *p, const struct plan_run *r)
{
    unsigned flags = (r->sample ? STEP_LOG_SAMPLE : 0) | (r->follows ? STEP_LOG_FOLLOWS : 0);
    *p++ = STEP_LOG_OTHER;
    p = step_log_put_varint(p, r->slot);
    p = step_log_put_varint(p, r->start);
    p = step_log_put_varint(p, (uint64_t)r->n_tokens << STEP_LOG_RUN_BITS | flags);
    p = step_log_put_varint(p, r->n_draft);
    return step_log_put_varint(p, r->n_blocks);
}

static void put_runs(struct step_log_out *out, const struct msg_plan *plan)
{
    uint8_t *p = step_log_room(out, VARINT32 + (size_t)plan->n_runs * RUN_BYTES);
    p = step_log_put_varint(p, plan->n_runs);
    for (uint32_t i = 0; i < plan->n_runs; i++) {
        const struct plan_run *r = &plan->runs[i];
        if (is_plain(r)) {
            p = step_log_put_pair(p, r->slot, r->start);
            continue;
        }
        moved(out, put_other(p, r));
        put_blocks(out, r);
        p = step_log_room(out, (size_t)(plan->n_runs - i) * RUN_BYTES);
    }
    moved(out, p);
}

void step_log_put_plan(struct step_log_out *out, const struct msg_plan *plan)
{
    uint8_t *p = step_log_room(out, PLAN_BYTES);
    p = step_log_put_varint(p, plan->step);
    p = step_log_put_varint(p, (plan->full ? STEP_LOG_FULL : 0) |
                                   (plan->digest ? STEP_LOG_DIGEST : 0));
    if (plan->digest) {
        memcpy(p, &plan->digest, sizeof plan->digest);
        p += sizeof plan->digest;
    }
    moved(out, p);
    put_finished(out, plan->finished);
    put_copies(out, plan);
    put_admits(out, plan);
    put_runs(out, plan);
}
