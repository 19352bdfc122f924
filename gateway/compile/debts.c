#include "gateway/compile/debts.h"

#include <math.h>
#include <stddef.h>

static double debt_at(const struct compile_debt *x, uint64_t now_ns)
{
    double age = now_ns > x->at_ns ? (double)(now_ns - x->at_ns) : 0;
    return x->ns * exp2(-age / (double)COMPILE_DEBT_HALF_NS);
}

static const struct compile_debt *find(const struct compile_debts *d, uint64_t tenant)
{
    for (int i = 0; i < COMPILE_DEBTS_KEPT; i++)
        if (d->all[i].ns > 0 && d->all[i].tenant == tenant)
            return &d->all[i];
    return NULL;
}

static struct compile_debt *least(struct compile_debts *d, uint64_t now_ns)
{
    struct compile_debt *found = &d->all[0];
    for (int i = 1; i < COMPILE_DEBTS_KEPT; i++)
        if (debt_at(&d->all[i], now_ns) < debt_at(found, now_ns))
            found = &d->all[i];
    return found;
}

void compile_debts_add(struct compile_debts *d, uint64_t tenant, uint64_t ns, uint64_t now_ns)
{
    const struct compile_debt *known = find(d, tenant);
    double before = known ? debt_at(known, now_ns) : 0;
    struct compile_debt *x = known ? &d->all[known - d->all] : least(d, now_ns);
    *x = (struct compile_debt){tenant, now_ns, before + (double)ns};
}

bool compile_debts_is_heavy(const struct compile_debts *d, uint64_t tenant, uint64_t now_ns)
{
    const struct compile_debt *x = find(d, tenant);
    return x && debt_at(x, now_ns) > COMPILE_DEBT_MOST_NS;
}
