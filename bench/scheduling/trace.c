/* Makes the trace of scheduler_bench and scale_alone: the arriving requests and the answers of a
 * rank. A slot's first request has a context of 1k to 8k tokens. The lengths are spread evenly
 * over the slots and over the positions in a block, so that 1/16 of the sequences take a block
 * in every step. In each step, 2 % of the sequences end at random, and a new sequence of 1k
 * tokens takes each slot. 512 of its tokens are one of 16 prefixes in the prefix cache, and the
 * other tokens are new. */
#include "bench/scheduling/trace.h"

#include <string.h>

#include "common/base/mem.h"

enum {
    N_PREFIXES = 16,
    PREFIX_TOKENS = 512,
    SHORTEST = 1024,
    LONGEST = 8192 - 128, /* LONGEST leaves blocks for the sequence to grow */
    MAX_TOKENS = 4096,
    EOS = 128001,
    FIRST_SPECIAL = 128000,
};
static const double END_SHARE = 0.02;
static const uint32_t eos_ids[] = {EOS, 128009};

void trace_init(struct trace *t, uint32_t n, uint64_t seed)
{
    *t = (struct trace){.rng = {seed}, .n = n};
    t->slots = mem_array(n, sizeof *t->slots);
    t->ended = mem_array(n, sizeof *t->ended);
    t->prefixes = mem_array((size_t)N_PREFIXES * PREFIX_TOKENS, sizeof *t->prefixes);
    t->ids = mem_array(LONGEST + BLOCK_TOKENS, sizeof *t->ids);
    t->slot_ended = mem_array(n, sizeof *t->slot_ended);
    t->items = mem_array(n, sizeof *t->items);
    t->sampled = mem_array(n, sizeof *t->sampled);
    t->gaps = mem_array(n, sizeof *t->gaps);
    for (uint32_t i = 0; i < N_PREFIXES * PREFIX_TOKENS; i++)
        t->prefixes[i] = (uint32_t)rng_below(&t->rng, FIRST_SPECIAL);
}

void trace_fini(struct trace *t)
{
    mem_free(t->slots);
    mem_free(t->ended);
    mem_free(t->prefixes);
    mem_free(t->ids);
    mem_free(t->slot_ended);
    mem_free(t->items);
    mem_free(t->sampled);
    mem_free(t->gaps);
}

/* Returns the number of blocks of the pool: a third more than the running sequences take. Free
 * blocks hold evictable prefixes, as on a server that has been up for a while. */
uint32_t trace_n_blocks(uint32_t n)
{
    return 400 * n + 1024;
}

/* Returns the token budget of a step. The new sequences of a step must fit, or the number of
 * running sequences would shrink. */
uint32_t trace_budget_tokens(uint32_t n)
{
    return n <= 512 ? 8192 : 16 * n;
}

static uint32_t prompt_tokens(const struct trace *t, uint32_t i_slot, bool newcomer)
{
    uint32_t own = (uint32_t)((2ull * i_slot + 1) * (LONGEST - SHORTEST) / (2ull * t->n));
    return SHORTEST + i_slot % BLOCK_TOKENS + (newcomer ? 0 : own);
}

void trace_submit(struct trace *t, uint32_t i_slot, bool newcomer, struct msg_submit *out)
{
    struct slot *slot = &t->slots[i_slot];
    uint32_t n = prompt_tokens(t, i_slot, newcomer);
    /* A new sequence begins with a prefix that other slots have, so the prefix cache has that
     * prefix. */
    uint32_t n_prefixes = t->n < N_PREFIXES ? t->n : N_PREFIXES;
    uint32_t i_prefix = newcomer ? (uint32_t)rng_below(&t->rng, n_prefixes) : i_slot % N_PREFIXES;
    *slot = (struct slot){.generation = slot->generation + 1, .is_newcomer = newcomer};
    memcpy(t->ids, t->prefixes + (size_t)i_prefix * PREFIX_TOKENS, PREFIX_TOKENS * sizeof *t->ids);
    for (uint32_t i = PREFIX_TOKENS; i < n; i++)
        t->ids[i] = (uint32_t)rng_below(&t->rng, FIRST_SPECIAL);
    *out = (struct msg_submit){.id = {slot->generation, i_slot},
                               .attempt = 1,
                               .tenant = 1,
                               .n_prompt = n,
                               .ids = {t->ids, n},
                               .sampling = {.temperature = 1,
                                            .top_p = 1,
                                            .top_k = -1,
                                            .repetition_penalty = 1,
                                            .seed = rng_next(&t->rng),
                                            .n_logprobs = -1,
                                            .n_prompt_logprobs = -1,
                                            .max_tokens = MAX_TOKENS,
                                            .eos_ids = {eos_ids, 2}}};
}

static void draw_ends(struct trace *t, uint32_t n_items)
{
    /* the attempts are limited, because nearly all of a few sequences may have ended */
    uint32_t n_tries = 4 * n_items;
    t->owed_ends += END_SHARE * t->n;
    while (t->owed_ends >= 1 && n_tries-- > 0) {
        uint32_t i = (uint32_t)rng_below(&t->rng, n_items), slot = t->items[i].slot;
        if (t->slot_ended[slot])
            continue;
        t->slot_ended[slot] = true;
        t->sampled[i] = EOS;
        t->owed_ends--;
        t->n_ends += t->counts;
    }
}

static void count(struct trace *t, const struct msg_plan *p)
{
    t->n_plans++;
    t->n_runs += p->n_runs;
    t->n_admits += p->n_admits;
    for (uint32_t i = 0; i < p->n_admits; i++)
        t->n_hit_tokens += p->admits[i].n_computed;
    for (uint32_t i = 0; i < p->n_runs; i++)
        for (uint32_t k = 0; k < p->runs[i].n_blocks; k++)
            t->n_blocks += p->runs[i].blocks[k].ids.n;
}

void trace_answer(struct trace *t, const struct msg_plan *p, struct msg_result *out)
{
    uint32_t n = 0;
    if (t->counts)
        count(t, p);
    for (uint32_t i = 0; i < p->finished.n; i++)
        t->slot_ended[p->finished.ptr[i]] = false;
    for (uint32_t i = 0; i < p->n_runs; i++) {
        if (!p->runs[i].sample)
            continue;
        t->sampled[n] = (uint32_t)rng_below(&t->rng, FIRST_SPECIAL);
        t->gaps[n] = 1;
        t->items[n] = (struct result_item){
            .slot = p->runs[i].slot, .ids = {&t->sampled[n], 1}, .gaps = {&t->gaps[n], 1}};
        n++;
    }
    if (t->ends && n > 0)
        draw_ends(t, n);
    *out = (struct msg_result){.term_epoch = p->term_epoch,
                               .step = p->step,
                               .items = t->items,
                               .n_items = n,
                               .execute_ns = 20 * 1000 * 1000};
}
