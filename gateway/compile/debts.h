#pragma once
/* Counts the processor time that each tenant's compiles took recently, as a debt. Above
 * COMPILE_DEBT_MOST_NS the tenant's compiles run at the lowest priority until the debt has
 * decayed. The debt halves every COMPILE_DEBT_HALF_NS.
 * The lower priority has no effect on a machine with idle cores. On a busy machine, fifty
 * compiles per second of one tenant would take half a core from the streams of all others. The
 * idea is the scheduler's feedback queue (Corbato et al., AFIPS 1962). It is applied to tenants
 * and not to processes, because each compile is a new process.
 * The debts are plain data with a fixed bound. When there are more tenants than entries, the
 * smallest debt is forgotten. */
#include <stdbool.h>
#include <stdint.h>

#define COMPILE_DEBT_MOST_NS 500000000u
#define COMPILE_DEBT_HALF_NS 10000000000u

enum { COMPILE_DEBTS_KEPT = 64 };

struct compile_debt {
    uint64_t tenant, at_ns;
    double ns; /* processor time owed at `at_ns`; 0 = the entry is free */
};

struct compile_debts {
    struct compile_debt all[COMPILE_DEBTS_KEPT];
};

void compile_debts_add(struct compile_debts *d, uint64_t tenant, uint64_t ns, uint64_t now_ns);
/* Returns true when the tenant's compiles run at the lowest priority. */
bool compile_debts_is_heavy(const struct compile_debts *d, uint64_t tenant, uint64_t now_ns);
