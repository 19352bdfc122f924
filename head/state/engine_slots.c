#include "head/state/engine_slots.h"

#include <string.h>

/* Adds only the counters of `from`; the other fields describe the present. */
static void add_counters(struct scheduler_stats *to, const struct scheduler_stats *x)
{
    to->n_preemptions += x->n_preemptions;
    to->n_steps += x->n_steps;
    to->n_prompt_tokens += x->n_prompt_tokens;
    to->n_generated_tokens += x->n_generated_tokens;
    to->prefix_hit_tokens += x->prefix_hit_tokens;
    to->prefix_query_tokens += x->prefix_query_tokens;
    to->n_evictions += x->n_evictions;
    to->n_copied_blocks += x->n_copied_blocks;
    to->n_draft_steps += x->n_draft_steps;
    to->n_drafted += x->n_drafted;
    to->n_accepted += x->n_accepted;
}

void engine_slots_retire(struct head_core *h, const struct scheduler *s)
{
    struct scheduler_stats x;
    scheduler_get_stats(s, &x);
    add_counters(&h->retired, &x);
    scheduler_add_accepted(s, h->retired_accepted_at);
}

void engine_slots_totals(const struct head_core *h, struct scheduler_stats *out)
{
    *out = h->retired;
    for (uint32_t i = 0; i < h->n_live; i++) {
        struct scheduler_stats x;
        scheduler_get_stats(h->engine_slots[h->live[i]].scheduler, &x);
        out->running += x.running;
        out->waiting += x.waiting;
        out->in_flight += x.in_flight;
        out->n_blocks += x.n_blocks;
        out->n_blocks_used += x.n_blocks_used;
        add_counters(out, &x);
    }
}

void engine_slots_accepted(const struct head_core *h, uint64_t *out)
{
    memcpy(out, h->retired_accepted_at, sizeof h->retired_accepted_at);
    for (uint32_t i = 0; i < h->n_live; i++)
        scheduler_add_accepted(h->engine_slots[h->live[i]].scheduler, out);
}

bool engine_slots_give_prompt_logprobs(const struct head_core *h)
{
    for (uint32_t i = 0; i < h->n_live; i++)
        if (!h->engine_slots[h->live[i]].replica->gives_prompt_logprobs)
            return false;
    return true;
}

/* Updates the core's sums with the engine slot's numbers. */
void engine_slots_count(struct head_core *h, struct engine_slot *l)
{
    struct scheduler_stats x = {0};
    if (l->scheduler)
        scheduler_get_stats(l->scheduler, &x);
    h->n_running += x.running - l->n_running;
    h->n_queued += x.waiting - l->n_queued;
    l->n_running = x.running;
    l->n_queued = x.waiting;
}

void engine_slots_add_live(struct head_core *h, uint32_t index)
{
    uint32_t i = h->n_live++;
    for (; i > 0 && h->live[i - 1] > index; i--)
        h->live[i] = h->live[i - 1];
    h->live[i] = index;
}

void engine_slots_remove_live(struct head_core *h, uint32_t index)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < h->n_live; i++) {
        if (h->live[i] != index)
            h->live[n++] = h->live[i];
    }
    h->n_live = n;
}
