#pragma once
/* The processor time that each tenant's compiles have taken lately. Whose compiles took more than
 * COMPILE_DEBT_MOST_NS has them at the lowest priority from then on, until that is forgotten: half
 * of it in COMPILE_DEBT_HALF_NS. On a machine with time to spare nothing changes by that; on one
 * whose steps need both, fifty compiles a second of one tenant would take half a core from the
 * streams of all others. The same idea as a scheduler's feedback queue (Corbato et al., AFIPS
 * 1962), by tenant and not by process, since each compile is a process of its own.
 *
 * Plain data, bounded: where there are more tenants than it keeps, who owes least is forgotten. */
#include <stdbool.h>
#include <stdint.h>

#define COMPILE_DEBT_MOST_NS 500000000u
#define COMPILE_DEBT_HALF_NS 10000000000u

enum { COMPILE_DEBTS_KEPT = 64 };

struct compile_debt {
    uint64_t tenant, at_ns;
    double ns; /* as it was then; 0: this place is free */
};

struct compile_debts {
    struct compile_debt all[COMPILE_DEBTS_KEPT];
};

void compile_debts_add(struct compile_debts *d, uint64_t tenant, uint64_t ns, uint64_t now_ns);
/* Its compiles go behind everything else. */
bool compile_debts_is_heavy(const struct compile_debts *d, uint64_t tenant, uint64_t now_ns);
