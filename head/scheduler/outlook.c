#include "head/scheduler/outlook.h"

#include "head/scheduler/plan.h"
#include "head/scheduler/state.h"

uint32_t scheduler_prompt_left(const struct request *r)
{
    const struct seq *x = r->sched;
    if (!x || x->place == SEQ_ENDED)
        return 0;
    return x->place == SEQ_WAITING || x->is_prompt ? x->n_left : 0;
}

/* Counts the sequences that run, and lists those that still compute their prompts. */
static void count_running(const struct scheduler *s, struct first_token_work *out)
{
    for (uint32_t i = 0; i < s->running_end; i++) {
        const struct seq *x = s->running[i];
        if (!x)
            continue;
        if (!x->is_prompt) {
            out->n_decodes++;
            out->n_context += x->n_scheduled;
            continue;
        }
        double n_left = seq_n_ready(x);
        if (out->n_running < FIRST_TOKEN_PROMPTS) {
            out->running[out->n_running++] =
                (struct first_token_prompt){.n_left = n_left, .start = x->n_scheduled};
        } else {
            out->n_ahead++;
            out->n_ahead_tokens += n_left;
        }
    }
}

static void count_room(const struct scheduler *s, struct first_token_work *out)
{
    struct scheduler_load load;
    double n_used = 0;
    scheduler_get_load(s, &load);
    for (uint32_t i = 0; i < s->c.n_kv_groups; i++) {
        const struct block_pool *p = blocks_pool(s->blocks, i);
        double n = (double)(s->c.kv_groups[i].n_blocks - block_pool_n_free(p)) *
                   blocks_tokens(s->blocks, i);
        n_used = s->c.kv_groups[i].kind != KV_WINDOW && n > n_used ? n : n_used;
    }
    out->n_free_slots = load.n_free_slots;
    out->n_free_tokens = (double)load.n_free_tokens;
    out->n_tokens_per_end = load.running > 0 ? n_used / load.running : 0;
}

void scheduler_outlook(const struct scheduler *s, const struct request *r,
                       struct first_token_work *out)
{
    const struct seq_queue_front front = seq_queue_front_of(&s->waiting, r->priority, r->tenant);
    const uint32_t n_hit = r->n_hit < r->n_ids ? r->n_hit : r->n_ids - 1;
    *out = (struct first_token_work){
        .depth = s->c.depth,
        .n_rows_max = s->c.max_num_batched_tokens,
        .n_each = 1 + plan_drafts_of_step(s),
        .chunk = s->c.long_prefill_token_threshold,
        .n_partial_max = s->c.max_partial_prefills,
        .budget = &s->budget,
        .longest_ns = s->rows.longest_ns ? s->rows.longest_ns : UINT64_MAX,
        .n_ahead = front.n,
        .n_ahead_tokens = front.n_tokens,
        .own = {.n_left = r->n_ids - n_hit, .start = n_hit},
    };
    count_running(s, out);
    count_room(s, out);
}
