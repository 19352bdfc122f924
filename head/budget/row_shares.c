/* Computes max-min fair shares of a step's decodes and of its prompt time. row_shares.h has the
 * rule.
 *
 * The scheduler calls `row_shares_plan` once per step with the learnt costs (step_budget.h),
 * then `row_shares_may_run` for each decode that could run. For prompts it declares the time
 * that each tenant could use with `row_shares_want_time`, and reads the tenant's part with
 * `row_shares_time_left`.
 *
 * Invariants: one scheduler owns the shares. The code has no clock, so that a replay decides the
 * same. A step costs O(tenants), plus a few instructions per decode. Tenants beyond
 * ROW_SHARES_MOST are not limited. */
#include "head/budget/row_shares.h"

#include <assert.h>

#include "common/base/mem.h"

enum {
    CAP_MIN = 16,
    QUICK = 4, /* a step of target / QUICK is short enough for every tenant */
    /* while the cost of decodes is uncertain, one step in PROBE runs half of its decodes */
    PROBE = 32,
    MANY_ROWS = 1 << 20,
    FIT_MAX = INT32_MAX /* larger than the sum of all tenants' rows */
};
#define UNSURE 0.1
/* DECODES_PART is the part of a step with prompts that decodes may take. Prompts get the rest. */
#define DECODES_PART 0.75

void row_shares_fini(struct row_shares *m)
{
    mem_free(m->all);
    *m = (struct row_shares){0};
}

/* ---- shares ---- */

static uint32_t find(const struct row_shares *m, uint64_t tenant)
{
    uint32_t i_unused = m->n;
    for (uint32_t i = 0; i < m->n; i++) {
        if (m->all[i].n_inside == 0)
            i_unused = i;
        else if (m->all[i].tenant == tenant)
            return i;
    }
    return i_unused;
}

uint16_t row_shares_enter(struct row_shares *m, uint64_t tenant)
{
    uint32_t i = find(m, tenant);
    if (i == ROW_SHARES_MOST)
        return ROW_SHARE_NONE;
    if (i == m->cap) {
        m->cap = m->cap ? 2 * m->cap : CAP_MIN;
        m->all = mem_realloc(m->all, m->cap * sizeof *m->all);
    }
    if (i == m->n)
        m->all[m->n++].n_inside = 0;
    struct row_share *s = &m->all[i];
    if (s->n_inside == 0) {
        *s = (struct row_share){.tenant = tenant};
        m->n_tenants++;
    }
    s->n_inside++;
    return (uint16_t)i;
}

void row_shares_leave(struct row_shares *m, uint16_t i)
{
    if (i == ROW_SHARE_NONE)
        return;
    struct row_share *s = &m->all[i];
    assert(s->n_inside > 0);
    if (--s->n_inside > 0)
        return;
    *s = (struct row_share){0};
    m->n_tenants--;
}

void row_shares_prompt(struct row_shares *m, uint16_t i, bool begins)
{
    if (i != ROW_SHARE_NONE)
        m->all[i].n_prompts += begins ? 1 : -1u;
}

/* ---- planning a step ---- */

/* Describes a division of rows: each tenant that wants more gets `each` rows, and the first
 * `n_more` of them one row more. */
struct parts {
    uint32_t each, n_more;
};

/* Computes max-min fair parts of n. No tenant gets more than it wants, and the others get the
 * unused rest (Bertsekas and Gallager, "Data Networks", 6.5.2). `n_others` is a number of
 * additional parties that want any amount. */
static struct parts share_out(const struct row_shares *m, uint32_t n, uint32_t n_others)
{
    for (uint32_t each = 0;;) {
        uint32_t n_over = n_others, rest = n;
        for (uint32_t i = 0; i < m->n; i++) {
            if (m->all[i].wanted > each)
                n_over++;
            else
                rest -= (uint32_t)m->all[i].wanted;
        }
        if (n_over == 0 || rest / n_over == each) /* `each` never falls */
            return (struct parts){each, rest - each * n_over};
        each = rest / n_over;
    }
}

/* Divides n rows among the tenants and sets n_may of each. A tenant's prompts count as
 * `n_prompts` rows, which no decode gets. Returns the number of decodes that may run. */
static uint32_t fill(struct row_shares *m, uint32_t n, uint32_t n_prompts)
{
    struct parts parts = share_out(m, n, 0);
    uint32_t n_may = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        struct row_share *s = &m->all[i];
        uint32_t its = parts.each + (parts.n_more > 0), prompts = s->n_prompts > 0 ? n_prompts : 0;
        s->n_may = s->n_last;
        if (s->n_last > 0 && s->wanted > parts.each) {
            s->n_may = its > prompts ? its - prompts : 1;
            s->n_may = s->n_may < s->n_last ? s->n_may : s->n_last;
            parts.n_more -= parts.n_more > 0;
        }
        n_may += s->n_may;
    }
    return n_may;
}

/* Returns how many decodes run in a step that measures their cost: half of them, but not fewer
 * than n_few if these fit. With n_few rows, each tenant keeps as many decodes as the tenant with
 * the fewest, which therefore misses no step. */
static double probe(double fit, uint32_t n_all, uint32_t n_few)
{
    double half = (fit < n_all ? fit : n_all) / 2;
    return half > n_few ? half : fit < n_few ? fit : n_few;
}

/* Limits the decodes to `fit` rows. The prompts of each tenant that has some count as
 * `of_prompts` rows. */
static void limit(struct row_shares *m, double fit, double of_prompts)
{
    const uint32_t n_prompts = (uint32_t)(of_prompts < MANY_ROWS ? of_prompts : MANY_ROWS),
                   n_fit = (uint32_t)(fit < FIT_MAX ? fit : FIT_MAX);
    uint32_t n_all = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        struct row_share *s = &m->all[i];
        s->wanted = s->n_last + (s->n_prompts > 0 ? n_prompts : 0);
        n_all += (uint32_t)s->wanted;
    }
    m->limits = n_fit < n_all;
    m->n_fresh = m->limits ? 0 : n_fit - n_all;
    m->n_rows = m->limits ? fill(m, n_fit, n_prompts) : n_fit;
    for (uint32_t i = 0; i < m->n; i++)
        m->all[i].wanted = 0; /* `wanted` is used next for the prompts' time */
}

void row_shares_plan(struct row_shares *m, const struct step_budget *b, uint32_t n_each,
                     bool has_prompts)
{
    double sampled_ns = b->sampled_ns * n_each;
    uint32_t n_all = 0, least = UINT32_MAX, n_deciding = 0, n_prompting = 0;
    m->limits = false;
    m->n_rows = m->n_fresh = UINT32_MAX;
    m->longest_ns = UINT64_MAX;
    if (m->n_tenants < 2 || b->target_ns == 0 || b->token_ns <= 0 || b->sampled_ns <= 0)
        return;
    for (uint32_t i = 0; i < m->n; i++) {
        const struct row_share *s = &m->all[i];
        n_all += s->n_last;
        n_deciding += s->n_last > 0;
        n_prompting += s->n_prompts > 0;
        uint32_t rows = s->n_last > 0 ? s->n_last : s->n_inside; /* expected number of decodes */
        if (rows > 0 && rows < least)
            least = rows;
    }
    double by_turns = m->n_tenants * (b->pass_ns + sampled_ns * least);
    double quick = (double)b->target_ns / QUICK, part = has_prompts ? DECODES_PART : 1;
    double longest = by_turns > quick ? by_turns : quick, all_ns = b->pass_ns + sampled_ns * n_all;
    double most = longest * part > quick / part ? longest * part : quick / part;
    bool all_run = all_ns <= most;
    double fit = ((all_run ? most : longest) - b->pass_ns) / sampled_ns;
    double of_prompts = all_run || n_prompting == 0 ? 0 : longest * (1 - part) / sampled_ns;
    if (all_run && all_ns > longest * part)
        longest = all_ns / part;
    m->longest_ns = longest < 1e18 ? (uint64_t)longest : UINT64_MAX;
    if (b->n_results % PROBE == 0 && step_budget_unsure_of_sampled(b) > UNSURE)
        fit = probe(fit, n_all, least * n_deciding);
    limit(m, fit, of_prompts / (n_prompting + (n_prompting == 0)));
}

void row_shares_begin_step(struct row_shares *m)
{
    m->n_fresh_ran = 0;
    m->held = false;
    for (uint32_t i = 0; i < m->n; i++)
        m->all[i].n_ready = 0;
}

/* Returns true when decode `k` of the tenant may run. The decodes of a tenant form a ring of
 * `n_last`. The window of `n_may` advances by its own size after each step. New decodes (k >=
 * n_last) share what is left. The other new decodes wait for the next step, in which they are
 * counted. Without this the prompts of one step could add a hundred decodes to the next one. */
static bool may_run(struct row_shares *m, const struct row_share *s, uint32_t k)
{
    if (k >= s->n_last)
        return m->n_fresh_ran < m->n_fresh && ++m->n_fresh_ran > 0;
    if (!m->limits || s->n_may == s->n_last)
        return true;
    return (k >= s->from ? k - s->from : k + s->n_last - s->from) < s->n_may;
}

bool row_shares_may_run(struct row_shares *m, uint16_t i)
{
    if (i == ROW_SHARE_NONE)
        return true;
    struct row_share *s = &m->all[i];
    bool may = may_run(m, s, s->n_ready++);
    m->held = m->held || !may;
    return may;
}

void row_shares_end_step(struct row_shares *m)
{
    for (uint32_t i = 0; i < m->n; i++) {
        struct row_share *s = &m->all[i];
        bool moves = m->limits && s->n_may < s->n_last;
        s->from = s->n_ready > 0 ? (s->from + (moves ? s->n_may : 0)) % s->n_ready : 0;
        s->n_last = s->n_ready;
    }
}

bool row_shares_lift(struct row_shares *m)
{
    m->limits = false;
    m->n_rows = m->n_fresh = UINT32_MAX;
    return m->held;
}

/* ---- the prompts' time ---- */

void row_shares_want_time(struct row_shares *m, uint16_t i, uint64_t n)
{
    if (i != ROW_SHARE_NONE)
        m->all[i].wanted += n;
}

/* Returns true when this tenant has a waiting request (or a decode that waits for its mask) and
 * computes no prompt. */
static bool has_newcomers(const struct row_share *s)
{
    return s->n_prompts == 0 && s->n_inside > s->n_ready && s->n_inside > s->n_last;
}

void row_shares_split_time(struct row_shares *m, uint32_t n, bool has_waiting)
{
    uint32_t n_sharing = 0;
    bool newcomers = false;
    for (uint32_t i = 0; i < m->n; i++) {
        n_sharing += m->all[i].n_prompts > 0;
        newcomers = newcomers || has_newcomers(&m->all[i]);
    }
    uint32_t n_others = has_waiting && newcomers;
    bool is_split = n_sharing + n_others > 1;
    uint32_t each = is_split ? share_out(m, n, n_others).each : 0;
    for (uint32_t i = 0; i < m->n; i++) {
        struct row_share *s = &m->all[i];
        uint64_t most = s->wanted < each ? s->wanted : each;
        s->time_left = each > 0 && s->n_prompts > 0 ? (uint32_t)most : UINT32_MAX;
        s->wanted = 0;
    }
}

uint32_t row_shares_time_left(const struct row_shares *m, uint16_t i)
{
    return i == ROW_SHARE_NONE ? UINT32_MAX : m->all[i].time_left;
}

void row_shares_take_time(struct row_shares *m, uint16_t i, uint32_t n)
{
    if (i != ROW_SHARE_NONE && m->all[i].time_left < UINT32_MAX)
        m->all[i].time_left -= n < m->all[i].time_left ? n : m->all[i].time_left;
}
