/* Results, in the order of the steps. Everything is checked before anything is applied: a rank that
 * answers something else than what was asked is out of step, and its group must be dissolved. */
#include <assert.h>

#include "head/scheduler_internal.h"

static bool answers(const struct result_item *item, const struct step_entry *e)
{
    return item->slot == e->slot && item->ids.n >= 1 && item->ids.n <= e->n_draft + 1 &&
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

static void push_tokens(struct scheduler *s, struct seq *x, const struct result_item *item,
                        uint64_t now_ns, struct scheduler_event *event)
{
    struct request *r = x->r;
    if (!r->first_token_ns)
        r->first_token_ns = now_ns;
    for (uint32_t i = 0; i < item->ids.n && r->finish == FINISH_NONE; i++) {
        request_push_token(r, item->ids.ptr[i], item->n_logprobs ? &item->logprobs[i] : NULL);
        event->n_new++;
        s->load_tokens++;
        s->stats.n_generated_tokens++;
    }
}

enum status scheduler_on_result(struct scheduler *s, const struct msg_result *m, uint64_t now_ns,
                                const struct scheduler_event **events, uint32_t *n_events,
                                struct error *err)
{
    *events = s->events;
    *n_events = 0;
    TRY(check_result(s, m, err));
    struct step_record *rec = scheduler_record(s, m->step);
    uint32_t i_record = (uint32_t)(m->step % s->c.depth), i_item = 0;
    struct step_load load = {0};
    s->step_done = m->step;
    for (uint32_t i = 0; i < rec->n; i++) {
        struct step_entry *e = &rec->entries[i];
        struct seq *x = e->seq;
        load.n_drawn += e->sample;
        load.n_prompt += e->n_tokens - e->sample;
        const struct result_item *item = e->sample ? &m->items[i_item++] : NULL;
        if (!x)
            continue;
        bool current = x->place == SEQ_RUNNING && e->incarnation == x->incarnation;
        x->entry[i_record] = ENTRY_NONE;
        struct scheduler_event event = {.request = x->r};
        if (item) {
            x->n_pending--;
            push_tokens(s, x, item, now_ns, &event);
        }
        if (current) {
            x->n_computed = e->start + e->n_tokens;
            kv_register(s, x);
        }
        event.ended = x->r->finish != FINISH_NONE;
        if (event.ended) {
            request_enter(x->r, REQUEST_FINISHED);
            scheduler_drop(s, x);
        }
        if (item)
            s->events[(*n_events)++] = event;
    }
    rec->n = 0;
    step_budget_on_result(&s->budget, load, m->execute_ns);
    for (uint32_t i = 0; i < s->c.n_kv_groups; i++)
        block_pool_on_done(s->groups[i].pool, m->step);
    return STATUS_OK;
}
