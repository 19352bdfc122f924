/* Results, in the order of the steps. Everything is checked before anything is applied: a rank that
 * answers something else than what was asked is out of step, and its group must be dissolved. */
#include <assert.h>

#include "head/scheduler_internal.h"

enum { PREFETCH_SEQ = 8, PREFETCH_REQUEST = 4, PREFETCH_IDS = 2 }; /* entries ahead */

/* A run that follows drafts may have found the end: then the request has ended by an earlier
 * result, and nobody waits for this one. */
static bool answers(const struct result_item *item, const struct step_entry *e)
{
    return item->slot == e->slot && item->ids.n <= e->n_draft + 1u &&
           (item->ids.n >= 1 || (e->follows && !e->seq)) &&
           (item->n_logprobs == 0 || item->n_logprobs == item->ids.n);
}

static enum status check_result(const struct scheduler *s, const struct msg_result *m,
                                struct error *err)
{
    if (m->term_epoch != s->term_epoch)
        return error_set(err, STATUS_PROTOCOL, "a result of epoch %llx, the group's is %llx",
                         (unsigned long long)m->term_epoch, (unsigned long long)s->term_epoch);
    if (scheduler_in_flight(s) == 0 || m->step != s->step_done + 1)
        return error_set(err, STATUS_PROTOCOL, "a result of step %llu, want %llu (%u in flight)",
                         (unsigned long long)m->step, (unsigned long long)s->step_done + 1,
                         scheduler_in_flight(s));
    const struct step_record *rec = scheduler_record(s, m->step);
    uint32_t n = 0;
    for (uint32_t i = 0; i < rec->n; i++) {
        if (!rec->entries[i].sample)
            continue;
        if (n >= m->n_items || !answers(&m->items[n], &rec->entries[i]))
            return error_set(err, STATUS_PROTOCOL,
                             "step %llu, item %u: it does not answer the run of slot %u",
                             (unsigned long long)m->step, n, rec->entries[i].slot);
        n++;
    }
    if (n != m->n_items)
        return error_set(err, STATUS_PROTOCOL, "step %llu: %u items, want %u",
                         (unsigned long long)m->step, m->n_items, n);
    return STATUS_OK;
}

/* Its first token since it was admitted. */
static void on_first_token(struct scheduler *s, struct seq *x, uint64_t now_ns)
{
    if (!x->r->first_token_ns)
        x->r->first_token_ns = now_ns;
    blocks_enter_tail(s->blocks, x->tables, x->r);
    x->tail_shared = true;
}

static uint32_t push_tokens(struct scheduler *s, struct request *r, const struct result_item *item)
{
    uint32_t n = 0;
    while (n < item->ids.n && r->finish == FINISH_NONE) {
        request_push_token(r, item->ids.ptr[n], item->n_logprobs ? &item->logprobs[n] : NULL);
        n++;
    }
    s->stats.n_generated_tokens += n;
    return n;
}

/* The tokens of one run; x is still there. */
static void take_tokens(struct scheduler *s, struct seq *x, const struct step_entry *e,
                        const struct result_item *item, uint64_t now_ns)
{
    bool current = x->place == SEQ_RUNNING && e->incarnation == x->incarnation;
    uint32_t n_more = item->ids.n - 1; /* accepted guesses */
    struct scheduler_event *event = &s->events[s->n_events++];
    *event = (struct scheduler_event){.request = x->r};
    event->n_new = push_tokens(s, x->r, item);
    event->ended = x->r->finish != FINISH_NONE;
    x->n_pending--;
    x->n_ahead -= e->n_draft;
    x->n_total += n_more;
    s->stats.n_accepted += n_more;
    if (event->ended) {
        request_enter(x->r, REQUEST_FINISHED);
        scheduler_drop(s, x);
        return;
    }
    if (!current)
        return;
    x->n_scheduled += n_more;
    if (!x->tail_shared)
        on_first_token(s, x, now_ns);
    uint32_t n_known = x->n_scheduled < x->r->n_ids ? x->n_scheduled : x->r->n_ids;
    if (n_known >= x->enter_at && s->c.enable_prefix_caching)
        x->enter_at = blocks_enter(s->blocks, x->tables, x->r, n_known);
}

static void prefetch(const struct step_record *rec, uint32_t i)
{
    const struct seq *x;
    if (i + PREFETCH_SEQ < rec->n)
        __builtin_prefetch(rec->entries[i + PREFETCH_SEQ].seq, 1);
    if (i + PREFETCH_REQUEST < rec->n && (x = rec->entries[i + PREFETCH_REQUEST].seq) != NULL) {
        __builtin_prefetch(x->r, 1);
        __builtin_prefetch((const char *)x->r + 64, 1);
    }
    if (i + PREFETCH_IDS < rec->n && (x = rec->entries[i + PREFETCH_IDS].seq) != NULL)
        __builtin_prefetch(x->r->ids + x->r->n_ids, 1);
}

enum status scheduler_on_result(struct scheduler *s, const struct msg_result *m, uint64_t now_ns,
                                const struct scheduler_event **events, uint32_t *n_events,
                                struct error *err)
{
    *events = s->events;
    *n_events = s->n_events = 0;
    TRY(check_result(s, m, err));
    struct step_record *rec = scheduler_record(s, m->step);
    uint32_t i_record = (uint32_t)(m->step % s->c.depth), i_item = 0;
    struct step_load load = {.n_drawn = m->n_drafted};
    s->step_done = m->step;
    s->stats.n_drafted += m->n_drafted;
    for (uint32_t i = 0; i < rec->n; i++) {
        const struct step_entry *e = &rec->entries[i];
        prefetch(rec, i);
        load.n_drawn += e->sample;
        load.n_prompt += e->n_tokens - e->sample;
        s->n_ahead -= e->n_draft > 0;
        const struct result_item *item = e->sample ? &m->items[i_item++] : NULL;
        if (!e->seq)
            continue;
        e->seq->entry[i_record] = ENTRY_NONE;
        if (item)
            take_tokens(s, e->seq, e, item, now_ns);
    }
    rec->n = 0;
    *n_events = s->n_events;
    step_budget_on_result(&s->budget, load, m->execute_ns);
    blocks_on_done(s->blocks, m->step);
    return STATUS_OK;
}
