/* Fuzzes the scheduler. The first bytes choose the world (budgets, pools, KV groups, drafts,
 * tenants). Each further byte chooses the next event: requests, cancels, resubmissions, plans,
 * late or wrong results, lost ranks, time. The world is the simulator's (tests/sim). The
 * simulator's rank and the real worker's bookkeeping read every plan, and the null rule checks
 * every token. Every invariant is checked after every operation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "tests/sim/sim_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STEPS_TO_DRAIN = 40, LOSE_PERCENT = 20, LONG_MS = 2500 };

enum op { OP_STEP, OP_DELIVER, OP_ARRIVE, OP_TIME, OP_DISTURB, OP_LIE, OP_LOSE, OP_LONG_TIME };
/* `ops` sets the relative frequency of each operation with random bytes. */
static const uint8_t ops[16] = {
    OP_STEP,   OP_STEP,   OP_STEP, OP_STEP,    OP_DELIVER, OP_DELIVER, OP_DELIVER, OP_DELIVER,
    OP_ARRIVE, OP_ARRIVE, OP_TIME, OP_DISTURB, OP_DISTURB, OP_LIE,     OP_LOSE,    OP_LONG_TIME};

static bool disturb(struct world *w)
{
    uint32_t i = below(w, w->n_clients);
    return !w->clients[i].live || world_disturb(w, &w->clients[i]);
}

static bool operate(struct world *w)
{
    bool made;
    switch ((enum op)ops[below(w, sizeof ops)]) {
    case OP_STEP:
        return world_step(w, &made);
    case OP_DELIVER:
        return !w->n_in_flight || world_deliver(w);
    case OP_ARRIVE:
        return world_arrive(w);
    case OP_DISTURB:
        return disturb(w);
    case OP_LIE:
        return world_lie(w);
    case OP_LOSE:
        return !percent(w, LOSE_PERCENT) || world_lose_rank(w);
    case OP_TIME:
        w->now_ns += between(w, 1, 20) * NS_PER_MS;
        return true;
    default:
        w->now_ns += LONG_MS * NS_PER_MS; /* the new time is beyond every deadline */
        return true;
    }
}

/* Runs some steps for requests near their end. The other requests are cancelled, wherever they
 * are. */
static bool drain(struct world *w)
{
    bool made;
    for (uint64_t end = w->n_steps + STEPS_TO_DRAIN; w->n_steps < end;) {
        if (!world_step(w, &made) || !world_check(w))
            return false;
        if (w->n_in_flight == 0)
            break;
        if (!world_deliver(w))
            return false;
    }
    for (uint32_t i = 0; i < w->n_clients; i++)
        if (w->clients[i].live)
            world_cancel(w, &w->clients[i]);
    while (w->n_in_flight)
        if (!world_deliver(w))
            return false;
    return world_check(w) && world_is_empty(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct world w;
    struct sim_report report = {0};
    struct error err = {0};
    memset(&w, 0, sizeof w);
    w.from_bytes = true;
    w.at = data;
    w.end = data + size;
    w.report = &report;
    w.err = &err;
    bool ok = world_open(&w) && world_check(&w);
    while (ok && w.at < w.end)
        ok = operate(&w) && world_check(&w);
    if (!ok || !drain(&w)) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    world_close(&w);
    return 0;
}
