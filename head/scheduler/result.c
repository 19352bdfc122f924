/* Applies results in the order of their steps.
 *
 * The core calls `scheduler_on_result`; its events say which requests got tokens or ended.
 * Tokens are added to the request, full blocks to the prefix cache, times to the budgets.
 *
 * Invariants: the result is checked completely before any of it is applied. A rank that answers
 * something other than the oldest plan in flight is out of step, and its replica must be
 * dissolved. */
#include <assert.h>
#include <stdio.h>

#include "head/request/prompt_logprobs.h"
#include "head/scheduler/state.h"

static inline bool has_item(const struct step_entry *e)
{
    return e->sample || e->has_prompt_logprobs;
}

/* Returns true when the item's rows fit the entry. Rows of a sequence that has left are not
 * checked. */
static bool answers_prompt_logprobs(const struct result_item *item, const struct step_entry *e)
{
    if (!e->has_prompt_logprobs || !e->seq)
        return e->has_prompt_logprobs || item->n_prompt_logprobs == 0;
    return request_prompt_logprobs_answer(e->r, e->start, e->n_tokens, item->prompt_logprobs,
                                          item->n_prompt_logprobs);
}

/* Returns true when the item answers the entry. A run that follows drafts may be empty: an
 * earlier result has then ended its request. */
static bool answers(const struct result_item *item, const struct step_entry *e)
{
    if (item->slot != e->slot || e->pools != (item->vector.n > 0) ||
        !answers_prompt_logprobs(item, e))
        return false;
    if (!e->sample)
        return (item->ids.n | item->n_logprobs) == 0;
    return item->ids.n <= e->n_draft + 1u && (item->ids.n >= 1 || (e->follows && !e->seq)) &&
           (item->n_logprobs == 0 || item->n_logprobs == item->ids.n);
}

static enum status check_result(const struct scheduler *s, const struct msg_result *m,
                                struct error *err)
{
    if (m->term_epoch != s->term_epoch)
        return error_set(err, STATUS_PROTOCOL,
                         "the result belongs to epoch %llx, but the replica is in epoch %llx. The "
                         "head forms the replica again",
                         (unsigned long long)m->term_epoch, (unsigned long long)s->term_epoch);
    if (scheduler_in_flight(s) == 0 || m->step != s->step_done + 1)
        return error_set(err, STATUS_PROTOCOL,
                         "the result is of step %llu, but step %llu is next (%u in flight). The "
                         "head forms the replica again",
                         (unsigned long long)m->step, (unsigned long long)s->step_done + 1,
                         scheduler_in_flight(s));
    const struct step_record *rec = scheduler_record(s, m->step);
    uint32_t n = 0, n_draft = 0;
    for (uint32_t i = 0; i < rec->n; i++) {
        n_draft += rec->entries[i].n_draft;
        if (!has_item(&rec->entries[i]))
            continue;
        if (n >= m->n_items || !answers(&m->items[n], &rec->entries[i]))
            return error_set(err, STATUS_PROTOCOL,
                             "step %llu: item %u of the result does not belong to the run of slot "
                             "%u. The head forms the replica again",
                             (unsigned long long)m->step, n, rec->entries[i].slot);
        n++;
    }
    if (m->n_drafted > n_draft)
        return error_set(err, STATUS_PROTOCOL,
                         "step %llu: the result has %u draft tokens, but the plan allowed %u. The "
                         "head forms the replica again",
                         (unsigned long long)m->step, m->n_drafted, n_draft);
    if (n != m->n_items)
        return error_set(err, STATUS_PROTOCOL,
                         "step %llu: the result has %u items, but the plan had %u. The head forms "
                         "the replica again",
                         (unsigned long long)m->step, m->n_items, n);
    return STATUS_OK;
}

/* Handles the first token of a sequence since its admission. */
static void on_first_token(struct scheduler *s, struct seq *x, uint64_t now_ns)
{
    if (!x->r->first_token_ns)
        x->r->first_token_ns = now_ns;
    blocks_enter_tail(s->blocks, x->tables, x->r);
    x->tail_shared = true;
}

static uint32_t push_tokens(struct request *r, const struct result_item *item)
{
    uint32_t n = 0;
    while (n < item->ids.n && r->finish == FINISH_NONE) {
        if (item->n_logprobs)
            request_push_token(r, item->ids.ptr[n], &item->logprobs[n]);
        else
            request_push_id(r, item->ids.ptr[n]);
        n++;
    }
    return n;
}

/* Handles rare effects of a result on a sequence that continues. */
static void move_on(struct scheduler *s, struct seq *x, uint64_t now_ns)
{
    if (!x->tail_shared) {
        on_first_token(s, x, now_ns);
        s->events[s->n_events - 1].is_first = true;
    }
    if (seq_n_known(x) >= x->enter_at && s->c.enable_prefix_caching) {
        /* The blocks are not in the CPU's cache, so they are prefetched now and entered at the
         * end. */
        s->entering[s->n_entering++] = x;
        blocks_prefetch(s->blocks, x->tables);
    }
}

/* Enters full blocks into the prefix cache. No listed sequence has left, since a sequence that
 * ends in a result is not listed. */
static void enter_blocks(struct scheduler *s)
{
    for (uint32_t i = 0; i < s->n_entering; i++)
        blocks_prefetch_enter(s->blocks, s->entering[i]->tables, s->entering[i]->r);
    for (uint32_t i = 0; i < s->n_entering; i++) {
        struct seq *x = s->entering[i];
        x->enter_at = blocks_enter(s->blocks, x->tables, x->r, seq_n_known(x));
    }
}

static void count_accepted(struct scheduler *s, uint32_t n)
{
    s->stats.n_accepted += n;
    for (uint32_t i = 0; i < n; i++)
        s->accepted_at[i]++;
}

/* Stores an item's rows of the prompt, before a token of the same item. The sequence must still
 * exist. */
static void take_prompt_logprobs(struct scheduler *s, const struct seq *x,
                                 const struct step_entry *e, const struct result_item *item)
{
    request_take_prompt_logprobs(x->r, e->start, item->prompt_logprobs, item->n_prompt_logprobs);
    if (!e->sample)
        s->events[s->n_events++] = (struct scheduler_event){.request = x->r};
}

/* Ends the request with an error when the mask ended it. The last token is then not valid. */
static void end_dead(struct request *r, const struct result_item *item, uint32_t n_new)
{
    if (n_new == 0 || n_new > item->gaps.n || !(item->gaps.ptr[n_new - 1] < 0))
        return;
    r->finish = FINISH_ERROR;
    r->status = STATUS_INVALID;
    uint32_t n = request_n_generated(r) - 1;
    if (item->gaps.ptr[n_new - 1] > RESULT_MASK_COST)
        snprintf(r->text, sizeof r->text,
                 "After %u tokens the answer's grammar allows none of this model's tokens, so the "
                 "answer cannot be completed.",
                 n);
    else
        snprintf(r->text, sizeof r->text,
                 "After %u tokens it takes too long to find the tokens that the grammar allows. "
                 "Write its rules with recursion on one side (list: item | list item).",
                 n);
}

/* Charges the tenant for the mask of one item, also when the sequence has left. */
static void charge_masks(struct scheduler *s, const struct step_entry *e,
                         const struct result_item *item)
{
    mask_shares_charge(&s->masks, e->i_mask_share, e->mask_units, item->mask_units);
    struct seq *x = e->seq;
    if (!x)
        return;
    x->mask_units = item->mask_units;
    if (item->matcher_kib > 0)
        x->r->matcher_kib = item->matcher_kib;
    if (!x->had_mask)
        mask_shares_had_first(&s->masks, e->i_mask_share);
    x->had_mask = true;
}

/* Charges the run's tenant for its part of the step's time, also when the sequence has left. */
static void charge_time(struct scheduler *s, const struct step_entry *e, struct usage_step *step)
{
    uint64_t ns = usage_run(s->c.usage, step, e->usage_row, e->n_tokens + e->n_draft);
    if (e->has_usage && e->seq)
        e->r->usage.step_ns += ns;
}

static void count_generated(struct scheduler *s, const struct step_entry *e, uint32_t n_new)
{
    if (e->has_usage)
        n_new = usage_skip(&e->r->usage, n_new);
    if (!e->pools)
        usage_generated(s->c.usage, e->usage_row, n_new);
}

/* Returns the time of the step, as the rank says it, but not more than since the plan was sent. */
static uint64_t step_ns(const struct step_record *rec, const struct msg_result *m, uint64_t now_ns)
{
    uint64_t most_ns = now_ns > rec->sent_ns ? now_ns - rec->sent_ns : 0;
    return m->execute_ns < most_ns ? m->execute_ns : most_ns;
}

/* Applies the tokens of one run. The sequence must still exist. */
static void take_tokens(struct scheduler *s, struct seq *x, const struct step_entry *e,
                        const struct result_item *item, uint64_t now_ns)
{
    struct request *r = x->r;
    uint32_t n_more = item->ids.n - 1; /* accepted draft tokens of the run */
    if (e->pools)
        request_take_vector(r, item->vector);
    uint32_t n_new = push_tokens(r, item);
    end_dead(r, item, n_new);
    bool ended = r->finish != FINISH_NONE;
    s->events[s->n_events++] =
        (struct scheduler_event){.request = r, .n_new = n_new, .ended = ended};
    s->stats.n_generated_tokens += n_new;
    if (s->c.usage)
        count_generated(s, e, n_new);
    if (n_more)
        count_accepted(s, n_more);
    x->n_pending--;
    x->n_ahead -= e->n_draft;
    x->n_total += n_more;
    if (ended) {
        request_enter(r, r->finish == FINISH_ERROR ? REQUEST_FAILED : REQUEST_FINISHED);
        scheduler_remove(s, x->r);
    } else if (x->place == SEQ_RUNNING && e->incarnation == x->incarnation) {
        x->n_scheduled += n_more;
        move_on(s, x, now_ns);
    }
}

static void prefetch(const struct step_record *rec, uint32_t i)
{
    if (i + REQUEST_PREFETCH_FAR >= rec->n)
        return;
    const struct step_entry *e = &rec->entries[i + REQUEST_PREFETCH_FAR];
    __builtin_prefetch(e->seq, 1);
    request_prefetch(e->r);
    e = &rec->entries[i + REQUEST_PREFETCH_NEAR];
    if (e->seq)
        request_prefetch_ids(e->r);
}

enum status scheduler_on_result(struct scheduler *s, const struct msg_result *m, uint64_t now_ns,
                                const struct scheduler_event **events, uint32_t *n_events,
                                struct error *err)
{
    *events = s->events;
    *n_events = s->n_events = s->n_entering = 0;
    TRY(check_result(s, m, err));
    struct step_record *rec = scheduler_record(s, m->step);
    uint32_t i_record = (uint32_t)(m->step % s->c.depth), i_item = 0;
    struct step_load load = {.n_sampled = m->n_drafted};
    struct usage_step usage = {0};
    if (s->c.usage)
        usage = usage_begin_step(s->c.usage, step_ns(rec, m, now_ns), rec->n_tokens);
    s->step_done = m->step;
    s->stats.n_drafted += m->n_drafted;
    for (uint32_t i = 0; i < rec->n; i++) {
        const struct step_entry *e = &rec->entries[i];
        prefetch(rec, i);
        load.n_sampled += e->sample;
        load.n_prompt_logprobs += e->n_prompt_logprobs;
        load.n_prompt += e->n_tokens - e->sample - e->n_prompt_logprobs;
        s->n_ahead -= e->n_draft > 0;
        const struct result_item *item = has_item(e) ? &m->items[i_item++] : NULL;
        if (e->i_mask_share != MASK_SHARE_NONE)
            charge_masks(s, e, item);
        if (s->c.usage)
            charge_time(s, e, &usage);
        if (!e->seq)
            continue;
        e->seq->entry[i_record] = ENTRY_NONE;
        if (e->has_prompt_logprobs)
            take_prompt_logprobs(s, e->seq, e, item);
        if (e->sample)
            take_tokens(s, e->seq, e, item, now_ns);
    }
    rec->n = 0;
    enter_blocks(s);
    *n_events = s->n_events;
    step_budget_on_result(&s->budget, load, m->execute_ns);
    mask_shares_on_result(&s->masks, m->execute_ns);
    blocks_on_done(s->blocks, m->step);
    return STATUS_OK;
}
