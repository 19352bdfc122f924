/* Implements our policy: the real scheduler with a simulated rank. timed.c calls it with
 * arrivals, steps, results and losses. Each plan is passed to the simulated rank (sim_rank.c),
 * which checks and runs it. The result waits in in_flight until timed.c delivers it. The policy
 * owns each request from its arrival to its end. It checks the scheduler's invariants every
 * check_every plans. */
#include "tests/sim/policy.h"

#include <string.h>

#include "common/base/mem.h"
#include "tests/sim/sim_rank.h"

enum { DEPTH_MAX = 2 };

struct cox {
    struct policy_config c;
    struct scheduler *scheduler;
    struct sim_rank *rank;
    struct request **requests; /* requests by index in the load; NULL = not in the policy */
    uint64_t term_epoch;
    struct msg_result in_flight[DEPTH_MAX];
    uint32_t n_in_flight, n_unchecked;
};

static uint64_t count_preemptions(void *p)
{
    struct cox *x = p;
    struct scheduler_stats stats;
    scheduler_get_stats(x->scheduler, &stats);
    return stats.n_preemptions;
}

static void cox_close(void *p)
{
    struct cox *x = p;
    scheduler_free(x->scheduler);
    for (uint32_t i = 0; i < x->c.load->n; i++)
        if (x->requests[i]) {
            x->requests[i]->sched = NULL; /* the scheduler no longer exists */
            request_free(x->requests[i]);
        }
    sim_rank_free(x->rank);
    mem_free(x->requests);
    mem_free(x);
}

static void re_add(void *ctx, struct request *r)
{
    struct cox *x = ctx;
    if (scheduler_add(x->scheduler, r) != STATUS_OK)
        x->requests[r->i_gateway]->finish = FINISH_ERROR; /* lose() handles this request */
}

static bool cox_lose(void *p, struct error *err)
{
    struct cox *x = p;
    x->n_in_flight = 0;
    x->term_epoch++;
    sim_rank_reset(x->rank, x->term_epoch);
    scheduler_reset(x->scheduler, x->term_epoch, re_add, x);
    for (uint32_t i = 0; i < x->c.load->n; i++)
        if (x->requests[i] && x->requests[i]->finish == FINISH_ERROR) {
            error_set(err, STATUS_INTERNAL, "request %u is refused after a loss", i);
            return false;
        }
    return true;
}

static void *cox_open(const struct policy_config *c, struct error *err)
{
    struct cox *x = mem_zalloc(sizeof *x);
    const struct scheduler_config *s = &c->scheduler;
    struct sim_rank_config rank = {.max_num_seqs = s->max_num_seqs,
                                   .max_num_batched_tokens = s->max_num_batched_tokens,
                                   .max_model_len = s->max_model_len,
                                   .vocab_size = POLICY_VOCAB,
                                   .kv_groups = s->kv_groups,
                                   .n_kv_groups = s->n_kv_groups,
                                   .n_draft = s->n_draft,
                                   .draft_max_seqs = s->draft_max_seqs,
                                   .draft_percent = c->accept_percent,
                                   .drafts_all = true};
    x->c = *c;
    x->requests = mem_array(c->load->n + 1, sizeof(struct request *));
    x->rank = sim_rank_new(&rank);
    if (scheduler_new(s, &x->scheduler, err) == STATUS_OK && cox_lose(x, err))
        return x;
    cox_close(x);
    return NULL;
}

static bool cox_add(void *p, uint32_t i, uint64_t now_ns, bool *refused, struct error *err)
{
    struct cox *x = p;
    const struct load_request *from = &x->c.load->requests[i];
    struct msg_submit m = {.id = {1, from->i_request},
                           .i_choice = from->i_choice,
                           .attempt = 1,
                           .tenant = from->i_tenant,
                           .priority = x->c.load_config->tenants[from->i_tenant].priority,
                           .n_prompt = from->n_prompt,
                           .ids = {from->ids, from->n_prompt},
                           .deadline_ms = from->deadline_ms,
                           .sampling = {.temperature = 1,
                                        .top_p = 1,
                                        .repetition_penalty = 1,
                                        .seed = from->i_request,
                                        .i_choice = from->i_choice,
                                        .n_logprobs = -1,
                                        .n_prompt_logprobs = -1,
                                        .max_tokens = from->n_answer}};
    struct request *r;
    if (request_new(NULL, &m, x->c.scheduler.max_model_len, now_ns, &r, err) != STATUS_OK)
        return false;
    r->arrival_seq = i + 1;
    r->i_gateway = i;
    *refused = scheduler_add(x->scheduler, r) != STATUS_OK;
    if (*refused)
        request_free(r);
    else
        x->requests[i] = r;
    return true;
}

static void forget(struct cox *x, uint32_t i)
{
    request_free(x->requests[i]);
    x->requests[i] = NULL;
}

static void cox_remove(void *p, uint32_t i)
{
    struct cox *x = p;
    scheduler_remove(x->scheduler, x->requests[i]);
    forget(x, i);
}

static bool check(struct cox *x, struct error *err)
{
    if (!x->c.check_every || ++x->n_unchecked < x->c.check_every)
        return true;
    x->n_unchecked = 0;
    return scheduler_check(x->scheduler, err);
}

static bool cox_step(void *p, uint64_t now_ns, bool *made, struct cost_work *work,
                     struct error *err)
{
    struct cox *x = p;
    const struct msg_plan *plan = scheduler_step(x->scheduler, now_ns);
    *made = plan != NULL;
    if (!plan)
        return true;
    uint64_t step_done = plan->step - 1 - x->n_in_flight;
    for (uint32_t i = 0; i < plan->n_runs; i++) {
        const struct plan_run *run = &plan->runs[i];
        bool decodes = run->sample && run->n_tokens == 1;
        work->n_decodes += decodes ? 1 + run->n_draft : 0;
        work->n_prompt += decodes ? 0 : run->n_tokens;
        work->n_context += run->start + run->n_tokens;
        work->n_drafts = run->n_draft > work->n_drafts ? run->n_draft : work->n_drafts;
    }
    return sim_rank_execute(x->rank, plan, step_done, &x->in_flight[x->n_in_flight++], err) &&
           check(x, err);
}

static bool cox_on_result(void *p, uint64_t now_ns, uint64_t execute_ns, struct error *err)
{
    struct cox *x = p;
    struct msg_result m = x->in_flight[0];
    const struct scheduler_event *events;
    uint32_t n_events;
    m.execute_ns = execute_ns;
    x->in_flight[0] = x->in_flight[1];
    x->n_in_flight--;
    if (scheduler_on_result(x->scheduler, &m, now_ns, &events, &n_events, err) != STATUS_OK)
        return false;
    for (uint32_t i = 0; i < n_events; i++) {
        uint32_t k = events[i].request->i_gateway;
        bool ended = events[i].ended;
        x->c.on_tokens(x->c.ctx, k, events[i].n_new, ended);
        if (ended)
            forget(x, k);
    }
    return check(x, err);
}

static uint32_t cox_pop_ended(void *p, bool *lost)
{
    struct cox *x = p;
    *lost = false;
    struct request *r = scheduler_pop_ended(x->scheduler);
    if (!r)
        return UINT32_MAX;
    uint32_t i = r->i_gateway;
    forget(x, i);
    return i;
}

static bool cox_waits(void *p, uint32_t i)
{
    struct cox *x = p;
    return x->requests[i]->scheduled_ns == 0;
}

static uint32_t cox_prompt_tokens(void *p, uint32_t i)
{
    struct cox *x = p;
    return x->requests[i]->n_prompt - x->requests[i]->n_cached;
}

static bool cox_drained(void *p, struct error *err)
{
    struct cox *x = p;
    struct scheduler_stats stats;
    struct scheduler_load load;
    scheduler_get_stats(x->scheduler, &stats);
    scheduler_get_load(x->scheduler, &load);
    if (!stats.running && !stats.waiting && !stats.in_flight && !stats.n_blocks_used &&
        !load.n_prompt_tokens)
        return scheduler_check(x->scheduler, err);
    error_set(err, STATUS_INTERNAL, "drained, but the scheduler still holds something");
    return false;
}

const struct policy_ops policy_cox = {
    .name = "cox",
    .deadlines = true,
    .open = cox_open,
    .close = cox_close,
    .add = cox_add,
    .remove = cox_remove,
    .step = cox_step,
    .on_result = cox_on_result,
    .lose = cox_lose,
    .pop_ended = cox_pop_ended,
    .waits = cox_waits,
    .prompt_tokens = cox_prompt_tokens,
    .drained = cox_drained,
    .n_preemptions = count_preemptions,
};
