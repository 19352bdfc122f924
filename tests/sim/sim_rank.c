#include "tests/sim/sim_rank.h"

#include <assert.h>
#include <string.h>

#include "common/base/mem.h"
#include "proto/plan_digest.h"

enum { MAX_GROUPS = 8, N_RESULTS = 2 };

struct table {
    uint32_t *ids; /* by logical index; [first, n) are held */
    uint32_t first, n;
};

struct slot {
    bool active, ran, admitted; /* the last two: in this plan */
    uint32_t n_ids, n_computed, length;
    uint32_t *ids;
    uint64_t *prefix; /* prefix[p]: hash of ids[0 .. p], what KV memory must hold at p */
    uint64_t adapter; /* where the hash of an adapter's KV starts */
    struct null_hash hash;
    struct table tables[MAX_GROUPS];
};

struct block {
    uint32_t n_owners;   /* active tables that hold it */
    uint64_t last_owned; /* last step in which an active table held it */
    uint64_t *content;   /* per position in the block; 0: never written */
};

struct group {
    struct kv_group k;
    struct block *blocks;
    uint64_t *content;
};

struct sim_rank {
    struct sim_rank_config c;
    struct group groups[MAX_GROUPS];
    struct slot *slots;
    uint64_t term_epoch, step, step_done;
    struct result_item *items[N_RESULTS];
    uint32_t *tokens[N_RESULTS];
    struct error *err;
};

#define LEGAL(rank, cond) legal((rank), (cond), #cond, __LINE__)

static bool legal(struct sim_rank *rank, bool ok, const char *text, int line)
{
    if (!ok)
        error_set(rank->err, STATUS_PROTOCOL, "plan %llu is illegal: %s is false (sim_rank.c:%d)",
                  (unsigned long long)rank->step, text, line);
    return ok;
}

struct sim_rank *sim_rank_new(const struct sim_rank_config *c)
{
    struct sim_rank *rank = mem_zalloc(sizeof *rank);
    rank->c = *c;
    rank->slots = mem_array(c->max_num_seqs, sizeof *rank->slots);
    for (uint32_t i = 0; i < c->n_kv_groups; i++) {
        struct group *g = &rank->groups[i];
        g->k = c->kv_groups[i];
        g->blocks = mem_array(g->k.n_blocks, sizeof *g->blocks);
        g->content = mem_array((size_t)g->k.n_blocks * g->k.block_tokens, sizeof *g->content);
        for (uint32_t b = 0; b < g->k.n_blocks; b++)
            g->blocks[b].content = g->content + (size_t)b * g->k.block_tokens;
    }
    for (uint32_t s = 0; s < c->max_num_seqs; s++) {
        rank->slots[s].ids = mem_array(c->max_model_len + 1, sizeof *rank->slots[s].ids);
        rank->slots[s].prefix = mem_array(c->max_model_len + 1, sizeof *rank->slots[s].prefix);
        for (uint32_t i = 0; i < c->n_kv_groups; i++)
            rank->slots[s].tables[i].ids =
                mem_array(c->max_model_len / rank->groups[i].k.block_tokens + 1, sizeof(uint32_t));
    }
    for (int i = 0; i < N_RESULTS; i++) {
        rank->items[i] = mem_array(c->max_num_seqs, sizeof *rank->items[i]);
        rank->tokens[i] = mem_array(c->max_num_seqs, sizeof *rank->tokens[i]);
    }
    return rank;
}

void sim_rank_free(struct sim_rank *rank)
{
    if (!rank)
        return;
    for (uint32_t s = 0; s < rank->c.max_num_seqs; s++) {
        mem_free(rank->slots[s].ids);
        mem_free(rank->slots[s].prefix);
        for (uint32_t i = 0; i < rank->c.n_kv_groups; i++)
            mem_free(rank->slots[s].tables[i].ids);
    }
    for (uint32_t i = 0; i < rank->c.n_kv_groups; i++) {
        mem_free(rank->groups[i].blocks);
        mem_free(rank->groups[i].content);
    }
    for (int i = 0; i < N_RESULTS; i++) {
        mem_free(rank->items[i]);
        mem_free(rank->tokens[i]);
    }
    mem_free(rank->slots);
    mem_free(rank);
}

static void drop_slot(struct sim_rank *rank, struct slot *x)
{
    for (uint32_t i = 0; i < rank->c.n_kv_groups; i++) {
        struct table *t = &x->tables[i];
        for (; t->first < t->n; t->first++)
            rank->groups[i].blocks[t->ids[t->first]].n_owners--;
        t->first = t->n = 0;
    }
    x->active = false;
}

void sim_rank_reset(struct sim_rank *rank, uint64_t term_epoch)
{
    for (uint32_t s = 0; s < rank->c.max_num_seqs; s++)
        if (rank->slots[s].active)
            drop_slot(rank, &rank->slots[s]);
    for (uint32_t i = 0; i < rank->c.n_kv_groups; i++) {
        struct group *g = &rank->groups[i];
        memset(g->content, 0, (size_t)g->k.n_blocks * g->k.block_tokens * sizeof *g->content);
        for (uint32_t b = 0; b < g->k.n_blocks; b++)
            g->blocks[b].last_owned = 0;
    }
    rank->term_epoch = term_epoch;
    rank->step = 0;
}

/* ---- the plan's structure ---- */

static void push_id(struct slot *x, uint32_t id)
{
    struct null_hash prefix = {x->n_ids ? x->prefix[x->n_ids - 1] : x->adapter};
    null_hash_push(&prefix, id);
    null_hash_push(&x->hash, id);
    x->prefix[x->n_ids] = prefix.h;
    x->ids[x->n_ids++] = id;
}

static bool apply_finished(struct sim_rank *rank, const struct msg_plan *plan)
{
    for (uint32_t i = 0; i < plan->finished.n; i++) {
        uint32_t slot = plan->finished.ptr[i];
        if (!LEGAL(rank, slot < rank->c.max_num_seqs) || !LEGAL(rank, rank->slots[slot].active))
            return false;
        drop_slot(rank, &rank->slots[slot]);
    }
    return true;
}

static bool apply_admit(struct sim_rank *rank, const struct plan_admit *a)
{
    if (!LEGAL(rank, a->slot < rank->c.max_num_seqs) ||
        !LEGAL(rank, !rank->slots[a->slot].active) || !LEGAL(rank, a->n_prompt >= 1) ||
        !LEGAL(rank, a->n_prompt <= a->ids.n) || !LEGAL(rank, a->n_computed < a->ids.n) ||
        !LEGAL(rank, a->ids.n < rank->c.max_model_len))
        return false;
    if (!LEGAL(rank, a->sampling.n_prompt_logprobs < 0 || a->n_computed == 0))
        return false;
    struct slot *x = &rank->slots[a->slot];
    x->active = x->admitted = true;
    x->adapter = 1 + a->sampling.lora.len;
    x->n_ids = 0;
    x->n_computed = x->length = a->n_computed;
    null_hash_init(&x->hash, a->sampling.seed, a->sampling.i_prompt, a->sampling.i_choice,
                   a->sampling.temperature);
    for (uint32_t i = 0; i < a->ids.n; i++)
        push_id(x, a->ids.ptr[i]);
    return true;
}

static bool append_block(struct sim_rank *rank, struct slot *x, uint32_t i_group, uint32_t id)
{
    struct group *g = &rank->groups[i_group];
    struct table *t = &x->tables[i_group];
    if (!LEGAL(rank, id < g->k.n_blocks) ||
        !LEGAL(rank, t->n <= rank->c.max_model_len / g->k.block_tokens))
        return false;
    for (uint32_t k = t->first; k < t->n; k++)
        if (!LEGAL(rank, t->ids[k] != id))
            return false;
    bool found_in_cache = (t->n + 1) * g->k.block_tokens <= x->n_computed && x->admitted;
    struct block *b = &g->blocks[id];
    /* a fresh block: nobody holds it, and no step that is in flight may still use it */
    if (!found_in_cache &&
        (!LEGAL(rank, b->n_owners == 0) || !LEGAL(rank, b->last_owned <= rank->step_done)))
        return false;
    b->n_owners++;
    t->ids[t->n++] = id;
    return true;
}

/* Drops of all runs come before the appends of any: a block may go from one to another in a plan.
 */
static bool apply_drops(struct sim_rank *rank, struct slot *x, const struct plan_run *run)
{
    uint32_t seen = 0;
    for (uint32_t i = 0; i < run->n_blocks; i++) {
        const struct plan_blocks *pb = &run->blocks[i];
        if (!LEGAL(rank, pb->i_group < rank->c.n_kv_groups) ||
            !LEGAL(rank, !(seen & 1u << pb->i_group)))
            return false;
        seen |= 1u << pb->i_group;
        struct table *t = &x->tables[pb->i_group];
        if (x->admitted) {
            t->first = t->n = pb->drop_leading;
            continue;
        }
        if (!LEGAL(rank, pb->drop_leading <= t->n - t->first))
            return false;
        for (uint32_t k = 0; k < pb->drop_leading; k++)
            rank->groups[pb->i_group].blocks[t->ids[t->first++]].n_owners--;
    }
    return true;
}

static bool apply_appends(struct sim_rank *rank, struct slot *x, const struct plan_run *run)
{
    for (uint32_t i = 0; i < run->n_blocks; i++)
        for (uint32_t k = 0; k < run->blocks[i].ids.n; k++)
            if (!append_block(rank, x, run->blocks[i].i_group, run->blocks[i].ids.ptr[k]))
                return false;
    return true;
}

static bool check_run(struct sim_rank *rank, const struct plan_run *run)
{
    if (!LEGAL(rank, run->slot < rank->c.max_num_seqs) ||
        !LEGAL(rank, rank->slots[run->slot].active) || !LEGAL(rank, !rank->slots[run->slot].ran))
        return false;
    struct slot *x = &rank->slots[run->slot];
    x->ran = true;
    if (!LEGAL(rank, run->start == x->length) || !LEGAL(rank, run->n_tokens >= 1) ||
        !LEGAL(rank, run->n_tokens <= x->n_ids - run->start) ||
        !LEGAL(rank, run->sample == (run->start + run->n_tokens == x->n_ids)) ||
        !LEGAL(rank, run->start + run->n_tokens < rank->c.max_model_len) ||
        !LEGAL(rank, run->n_draft == 0))
        return false;
    return apply_drops(rank, x, run);
}

/* ---- running ---- */

static bool run_group(struct sim_rank *rank, struct slot *x, const struct plan_run *run,
                      uint32_t i_group)
{
    struct group *g = &rank->groups[i_group];
    const struct table *t = &x->tables[i_group];
    uint32_t end = run->start + run->n_tokens, bt = g->k.block_tokens, from = 0;
    if (g->k.kind == KV_WINDOW && run->start >= g->k.window_tokens)
        from = run->start - g->k.window_tokens + 1;
    if (!LEGAL(rank, t->first * bt <= from) || !LEGAL(rank, t->n * bt >= end))
        return false;
    for (uint32_t p = from; p < run->start; p++)
        if (!LEGAL(rank, g->blocks[t->ids[p / bt]].content[p % bt] == x->prefix[p]))
            return false;
    for (uint32_t p = run->start; p < end; p++) {
        struct block *b = &g->blocks[t->ids[p / bt]];
        if (!LEGAL(rank, b->n_owners == 1)) /* nobody writes what another one reads */
            return false;
        b->content[p % bt] = x->prefix[p];
    }
    return true;
}

static uint64_t digest(const struct sim_rank *rank)
{
    uint64_t sum = 0;
    for (uint32_t s = 0; s < rank->c.max_num_seqs; s++) {
        const struct slot *x = &rank->slots[s];
        if (!x->active)
            continue;
        sum += plan_digest_sequence(s, x->length);
        for (uint32_t i = 0; i < rank->c.n_kv_groups; i++)
            for (uint32_t k = x->tables[i].first; k < x->tables[i].n; k++)
                sum += plan_digest_block(s, i, k, x->tables[i].ids[k]);
    }
    return plan_digest_end(sum);
}

static bool run_plan(struct sim_rank *rank, const struct msg_plan *plan, struct msg_result *out)
{
    static const float gap = 1;
    struct result_item *items = rank->items[rank->step % N_RESULTS];
    uint32_t *tokens = rank->tokens[rank->step % N_RESULTS];
    for (uint32_t i = 0; i < plan->n_runs; i++) {
        const struct plan_run *run = &plan->runs[i];
        struct slot *x = &rank->slots[run->slot];
        for (uint32_t g = 0; g < rank->c.n_kv_groups; g++)
            if (!run_group(rank, x, run, g))
                return false;
        x->length += run->n_tokens;
        if (!run->sample)
            continue;
        tokens[out->n_items] = null_hash_token(&x->hash, rank->c.vocab_size);
        push_id(x, tokens[out->n_items]);
        items[out->n_items] = (struct result_item){
            .slot = run->slot, .ids = {&tokens[out->n_items], 1}, .gaps = {&gap, 1}};
        out->n_items++;
    }
    out->items = items;
    return true;
}

/* Every active table holds its blocks through this step; admits and runs come in pairs. */
static bool close_plan(struct sim_rank *rank, const struct msg_plan *plan)
{
    for (uint32_t s = 0; s < rank->c.max_num_seqs; s++) {
        struct slot *x = &rank->slots[s];
        if (!LEGAL(rank, !x->admitted || x->ran))
            return false;
        x->admitted = x->ran = false;
        for (uint32_t i = 0; x->active && i < rank->c.n_kv_groups; i++)
            for (uint32_t k = x->tables[i].first; k < x->tables[i].n; k++)
                rank->groups[i].blocks[x->tables[i].ids[k]].last_owned = rank->step;
    }
    bool due = rank->step % PLAN_DIGEST_EVERY == 0;
    return LEGAL(rank, plan->digest == (due ? digest(rank) : 0));
}

bool sim_rank_execute(struct sim_rank *rank, const struct msg_plan *plan, uint64_t step_done,
                      struct msg_result *out, struct error *err)
{
    uint64_t n_tokens = 0;
    rank->err = err;
    rank->step_done = step_done;
    rank->step++;
    if (!LEGAL(rank, plan->term_epoch == rank->term_epoch) ||
        !LEGAL(rank, plan->step == rank->step) || !LEGAL(rank, plan->n_runs >= 1) ||
        !LEGAL(rank, plan->n_runs <= rank->c.max_num_seqs) || !LEGAL(rank, plan->n_copies == 0))
        return false;
    for (uint32_t s = 0; plan->full && s < rank->c.max_num_seqs; s++)
        if (rank->slots[s].active)
            drop_slot(rank, &rank->slots[s]);
    if (!apply_finished(rank, plan))
        return false;
    for (uint32_t i = 0; i < plan->n_admits; i++)
        if (!apply_admit(rank, &plan->admits[i]))
            return false;
    for (uint32_t i = 0; i < plan->n_runs; i++) {
        if (!check_run(rank, &plan->runs[i]))
            return false;
        n_tokens += plan->runs[i].n_tokens;
    }
    for (uint32_t i = 0; i < plan->n_runs; i++)
        if (!apply_appends(rank, &rank->slots[plan->runs[i].slot], &plan->runs[i]))
            return false;
    *out = (struct msg_result){.term_epoch = rank->term_epoch, .step = rank->step};
    return LEGAL(rank, n_tokens <= rank->c.max_num_batched_tokens) && run_plan(rank, plan, out) &&
           close_plan(rank, plan);
}

uint32_t sim_rank_n_active(const struct sim_rank *rank)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < rank->c.max_num_seqs; s++)
        n += rank->slots[s].active;
    return n;
}
