#include "head/row_shares.h"

#include <assert.h>

#include "common/base/mem.h"

enum {
    CAP_MIN = 16,
    QUICK = 4, /* a part of the target that is quick enough */
    PROBE = 8  /* one of so many steps has fewer decodes, while their cost is not sure */
};
#define UNSURE 0.1
#define DECODES_PART                                                                               \
    0.75 /* of the longest step beside prompts, whose floor is a quarter of one                    \
          */

void row_shares_fini(struct row_shares *m)
{
    mem_free(m->all);
    *m = (struct row_shares){0};
}

/* ---- who is in ---- */

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

/* ---- a step ---- */

/* The tenants that have the most give until all have n together: nobody has more than *most. Of the
 * remainder one more goes to the first ones. */
static void fill(struct row_shares *m, uint32_t n)
{
    uint32_t n_over = 0, each = 0, rest = n;
    for (uint32_t i = 0; i < m->n; i++)
        n_over += m->all[i].n_last > 0;
    for (bool changed = true; changed && n_over > 0;) {
        changed = false;
        each = rest / n_over;
        for (uint32_t i = 0; i < m->n; i++) {
            struct row_share *s = &m->all[i];
            if (s->n_last == 0 || s->n_may == s->n_last || s->n_last > each)
                continue;
            s->n_may = s->n_last;
            rest -= s->n_last;
            n_over--;
            changed = true;
        }
    }
    uint32_t more = rest - each * n_over;
    for (uint32_t i = 0; i < m->n; i++) {
        struct row_share *s = &m->all[i];
        if (s->n_last == 0 || s->n_may == s->n_last)
            continue;
        s->n_may = each + (more > 0);
        more -= more > 0;
    }
}

void row_shares_plan(struct row_shares *m, const struct step_budget *b, uint32_t n_each,
                     bool has_prompts)
{
    double drawn_ns = b->drawn_ns * n_each;
    uint32_t n_all = 0, least = UINT32_MAX, n_deciding = 0;
    m->limits = false;
    m->n_rows = m->n_fresh = UINT32_MAX;
    m->longest_ns = UINT64_MAX;
    if (m->n_tenants < 2 || b->target_ns == 0 || b->token_ns <= 0 || b->drawn_ns <= 0)
        return;
    for (uint32_t i = 0; i < m->n; i++) {
        struct row_share *s = &m->all[i];
        s->n_may = 0;
        n_all += s->n_last;
        n_deciding += s->n_last > 0;
        if (s->n_last > 0 && s->n_last < least)
            least = s->n_last;
    }
    if (n_deciding == 0)
        n_deciding = least = 1;
    double longest = m->n_tenants * (b->pass_ns + drawn_ns * least);
    double quick = (double)b->target_ns / QUICK;
    longest = longest > quick ? longest : quick;
    m->longest_ns = longest < 1e18 ? (uint64_t)longest : UINT64_MAX;
    double fit = (longest * (has_prompts ? DECODES_PART : 1) - b->pass_ns) / drawn_ns;
    if (b->n_results % PROBE == 0 && step_budget_unsure_of_drawn(b) > UNSURE)
        fit = least * n_deciding;
    fit = fit < UINT32_MAX / 2 ? fit : UINT32_MAX / 2;
    m->n_rows = fit > n_deciding ? (uint32_t)fit : n_deciding; /* one of each at least */
    m->limits = m->n_rows < n_all;
    m->n_fresh = m->limits ? 0 : m->n_rows - n_all;
    if (m->limits)
        fill(m, m->n_rows);
}

void row_shares_begin_step(struct row_shares *m)
{
    m->n_fresh_ran = 0;
    m->held = false;
    for (uint32_t i = 0; i < m->n; i++)
        m->all[i].n_ready = 0;
}

/* They stand in a ring of as many as there were in the last step; the window moves on by its own
 * size. Those that have come since have what is left; the others wait for the next step, when they
 * are counted: the prompts of one step may end in a hundred decodes of the next one. */
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
