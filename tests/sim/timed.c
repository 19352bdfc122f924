/* Runs a replica in virtual time (timed.h). goodput.c and timed_test.c call timed_run with a
 * configuration and a policy. The main loop advances the clock to the next event: an arrival, a
 * cancellation, a lost rank, or the end of the oldest plan. It passes the event to the policy,
 * and requests plans from it until `depth` plans are in flight. The rank runs plans one after
 * another, each for the time of the cost model. The policy reports tokens through on_tokens. The
 * checks of timed.h run at each event. The first failure fills err and ends the run. The report
 * owns its outcomes; all other memory is freed at the end. One thread runs everything. */
#include "tests/sim/timed.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"

enum { DEPTH_MAX = 2, LOSS_PAUSE_MS = 1500 };

/* Counts the tokens that a tenant got, and keeps the state of its waiting requests, for the
 * check of fair shares. */
struct tenant {
    uint64_t served;
    bool waits;
    /* least value of (other's served - own served) since this tenant waits */
    int64_t least[LOAD_MAX_TENANTS];
};

struct cancel {
    uint64_t at_ns;
    uint32_t i;
    enum timed_end end;
};

struct timed {
    const struct timed_config *c;
    const struct policy_ops *ops;
    void *policy;
    struct load *load;
    struct timed_report *out;
    uint64_t now_ns, rank_free_ns, next_loss_ns;
    uint64_t ends_ns[DEPTH_MAX], takes_ns[DEPTH_MAX]; /* end and duration of each plan in flight */
    uint32_t n_in_flight;
    uint32_t n_arrived, n_live, i_cancel;
    uint32_t *live;         /* array of n_live requests in the policy */
    bool *waits;            /* array by request: it was not admitted at the last check */
    struct cancel *cancels; /* array of n_cancels, ordered by time */
    uint32_t n_cancels;
    struct tenant tenants[LOAD_MAX_TENANTS];
    struct error *err;
};

static bool fail(struct timed *t, const char *what, uint32_t i)
{
    error_set(t->err, STATUS_INTERNAL, "at %.3f s: %s (request %u)", (double)t->now_ns / 1e9, what,
              i);
    return false;
}

static void end(struct timed *t, uint32_t i, enum timed_end how)
{
    t->out->outcomes[i].end = how;
    for (uint32_t k = 0; k < t->n_live; k++)
        if (t->live[k] == i) {
            t->live[k] = t->live[--t->n_live];
            break;
        }
    uint64_t took = t->now_ns - t->out->outcomes[i].arrival_ns;
    if (how == TIMED_DONE && took > t->out->longest_ns)
        t->out->longest_ns = took;
}

/* ---- calls from the policy ---- */

static void on_tokens(void *ctx, uint32_t i, uint32_t n_new, bool ended)
{
    struct timed *t = ctx;
    struct timed_outcome *o = &t->out->outcomes[i];
    if (o->end != TIMED_OPEN) {
        fail(t, "tokens after the end", i);
        return;
    }
    if (o->n_tokens == 0)
        o->first_ns = t->now_ns;
    o->last_ns = t->now_ns;
    o->n_tokens += n_new;
    t->tenants[o->i_tenant].served += n_new;
    if (ended != (o->n_tokens == t->load->requests[i].n_answer))
        fail(t, "ends with too few tokens, or goes on with all", i);
    if (ended)
        end(t, i, TIMED_DONE);
}

static bool take_result(struct timed *t)
{
    uint64_t took = t->takes_ns[0];
    t->ends_ns[0] = t->ends_ns[1];
    t->takes_ns[0] = t->takes_ns[1];
    t->n_in_flight--;
    return t->ops->on_result(t->policy, t->now_ns, took, t->err) && t->err->status == STATUS_OK;
}

/* ---- events ---- */

static bool take_arrivals(struct timed *t)
{
    for (; t->n_arrived < t->load->n; t->n_arrived++) {
        uint32_t i = t->n_arrived;
        bool refused = false;
        if (t->load->requests[i].arrival_ns > t->now_ns)
            break;
        if (!t->ops->add(t->policy, i, t->now_ns, &refused, t->err))
            return false;
        t->live[t->n_live++] = i;
        t->waits[i] = !refused;
        if (refused)
            end(t, i, TIMED_REFUSED);
    }
    return true;
}

static void take_cancels(struct timed *t)
{
    for (; t->i_cancel < t->n_cancels; t->i_cancel++) {
        uint32_t i = t->cancels[t->i_cancel].i;
        if (t->cancels[t->i_cancel].at_ns > t->now_ns)
            return;
        if (t->out->outcomes[i].end != TIMED_OPEN)
            continue;
        t->ops->remove(t->policy, i);
        end(t, i, t->cancels[t->i_cancel].end);
    }
}

static bool take_loss(struct timed *t)
{
    if (t->now_ns < t->next_loss_ns)
        return true;
    t->next_loss_ns = t->n_arrived < t->load->n ? t->now_ns + t->c->loss_every_ns : UINT64_MAX;
    t->n_in_flight = 0;
    t->rank_free_ns = t->now_ns + LOSS_PAUSE_MS * NS_PER_MS;
    return t->ops->lose(t->policy, t->err);
}

static bool take_ended(struct timed *t)
{
    bool lost;
    for (uint32_t i; (i = t->ops->pop_ended(t->policy, &lost)) != UINT32_MAX;) {
        if (t->out->outcomes[i].end != TIMED_OPEN)
            return fail(t, "ended twice", i);
        end(t, i, lost ? TIMED_LOST : TIMED_TIMEOUT);
    }
    return true;
}

static bool make_plans(struct timed *t)
{
    while (t->n_in_flight < t->c->scheduler.depth) {
        struct cost_work work = {0};
        bool made = false;
        if (!t->ops->step(t->policy, t->now_ns, &made, &work, t->err))
            return false;
        if (!take_ended(t))
            return false;
        if (!made)
            break;
        uint64_t takes = cost_step_ns(&t->c->cost, &work);
        uint64_t start = t->now_ns > t->rank_free_ns ? t->now_ns : t->rank_free_ns;
        t->rank_free_ns = start + takes;
        t->takes_ns[t->n_in_flight] = takes;
        t->ends_ns[t->n_in_flight++] = t->rank_free_ns;
        t->out->n_steps++;
        t->out->busy_ns += takes;
    }
    if (t->n_in_flight == 0 && t->n_live > 0)
        return fail(t, "nothing runs, and requests wait", t->live[0]);
    return true;
}

/* ---- fair shares ---- */

static void look_who_waits(struct timed *t, bool *now)
{
    for (uint32_t k = 0; k < t->n_live; k++) {
        uint32_t i = t->live[k], i_tenant = t->out->outcomes[i].i_tenant;
        if (!t->waits[i])
            continue;
        if (t->ops->waits(t->policy, i)) {
            now[i_tenant] = true;
            continue;
        }
        t->waits[i] = false;
        t->tenants[i_tenant].served += t->ops->prompt_tokens(t->policy, i);
    }
}

/* Checks fair shares: while a tenant waits, no other tenant of its class may get much more than
 * it. */
static bool check_shares(struct timed *t)
{
    bool now[LOAD_MAX_TENANTS] = {false};
    const struct load_config *l = &t->c->load;
    look_who_waits(t, now);
    for (uint32_t a = 0; a < l->n_tenants; a++) {
        struct tenant *x = &t->tenants[a];
        for (uint32_t b = 0; b < l->n_tenants && now[a]; b++) {
            if (b == a || l->tenants[a].priority != l->tenants[b].priority)
                continue;
            int64_t lead = (int64_t)t->tenants[b].served - (int64_t)x->served;
            if (!x->waits || lead < x->least[b])
                x->least[b] = lead;
            uint64_t beyond = (uint64_t)(lead - x->least[b]);
            if (beyond > t->out->worst_share_tokens)
                t->out->worst_share_tokens = beyond;
            if (t->c->fair_share_tokens && beyond > t->c->fair_share_tokens)
                return fail(t, "waits while another tenant gets more than its share", t->live[0]);
        }
        x->waits = now[a];
    }
    return true;
}

/* ---- time ---- */

static uint64_t next_time(const struct timed *t)
{
    uint64_t next = t->n_in_flight ? t->ends_ns[0] : UINT64_MAX;
    if (t->n_arrived < t->load->n && t->load->requests[t->n_arrived].arrival_ns < next)
        next = t->load->requests[t->n_arrived].arrival_ns;
    if (t->i_cancel < t->n_cancels && t->cancels[t->i_cancel].at_ns < next)
        next = t->cancels[t->i_cancel].at_ns;
    return t->next_loss_ns < next ? t->next_loss_ns : next;
}

static bool run(struct timed *t)
{
    while (t->n_live > 0 || t->n_arrived < t->load->n || t->n_in_flight > 0) {
        t->now_ns = next_time(t);
        if (t->c->end_by_ns && t->now_ns > t->c->end_by_ns)
            return fail(t, "it should be over", t->n_live ? t->live[0] : 0);
        while (t->n_in_flight && t->ends_ns[0] <= t->now_ns)
            if (!take_result(t))
                return false;
        if (!take_arrivals(t))
            return false;
        take_cancels(t);
        if (!take_loss(t) || !make_plans(t) || !check_shares(t))
            return false;
    }
    t->out->end_ns = t->now_ns;
    if (t->c->longest_ns && t->out->longest_ns > t->c->longest_ns)
        return fail(t, "a request took too long", 0);
    return t->ops->drained(t->policy, t->err);
}

static int by_time(const void *a, const void *b)
{
    const struct cancel *x = a, *y = b;
    if (x->at_ns != y->at_ns)
        return x->at_ns < y->at_ns ? -1 : 1;
    if (x->i != y->i)
        return x->i < y->i ? -1 : 1;
    /* this is the end of a request whose client disconnects at its deadline */
    return (int)x->end - (int)y->end;
}

static void prepare(struct timed *t)
{
    t->load = load_new(&t->c->load);
    t->live = mem_array(t->load->n + 1, sizeof *t->live);
    t->waits = mem_array(t->load->n + 1, sizeof *t->waits);
    t->cancels = mem_array(2 * t->load->n + 1, sizeof *t->cancels);
    t->out->outcomes = mem_array(t->load->n + 1, sizeof *t->out->outcomes);
    t->out->n = t->load->n;
    for (uint32_t i = 0; i < t->load->n; i++) {
        const struct load_request *r = &t->load->requests[i];
        t->out->outcomes[i] =
            (struct timed_outcome){.i_tenant = r->i_tenant, .arrival_ns = r->arrival_ns};
        if (r->cancel_ns != UINT64_MAX)
            t->cancels[t->n_cancels++] = (struct cancel){r->cancel_ns, i, TIMED_CANCELLED};
        if (r->deadline_ms && !t->ops->deadlines)
            t->cancels[t->n_cancels++] =
                (struct cancel){r->arrival_ns + r->deadline_ms * NS_PER_MS, i, TIMED_TIMEOUT};
    }
    qsort(t->cancels, t->n_cancels, sizeof *t->cancels, by_time);
}

bool timed_run(const struct timed_config *c, const struct policy_ops *policy,
               struct timed_report *out, struct error *err)
{
    struct error inner = {0};
    struct timed t = {.c = c, .ops = policy, .out = out, .err = &inner};
    *out = (struct timed_report){0};
    t.next_loss_ns = c->loss_every_ns ? c->loss_every_ns : UINT64_MAX;
    prepare(&t);
    struct policy_config pc = {.scheduler = c->scheduler,
                               .load_config = &c->load,
                               .load = t.load,
                               .on_tokens = on_tokens,
                               .ctx = &t,
                               .by_priority = c->by_priority,
                               .accept_percent = c->cost.accept_percent,
                               .check_every = c->check_every};
    t.policy = policy->open(&pc, &inner);
    bool ok = t.policy && run(&t);
    if (t.policy) {
        out->n_preemptions = policy->n_preemptions(t.policy);
        policy->close(t.policy);
    }
    if (!ok)
        error_set(err, STATUS_INTERNAL, "seed %llu, %s: %s", (unsigned long long)c->load.seed,
                  policy->name, inner.text);
    load_free(t.load);
    mem_free(t.live);
    mem_free(t.waits);
    mem_free(t.cancels);
    return ok;
}

void timed_report_fini(struct timed_report *r)
{
    mem_free(r->outcomes);
    *r = (struct timed_report){0};
}
