/* Runs turns of a world, chosen from a seed. */
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "head/request/table.h"
#include "tests/sim/sim_internal.h"

static bool turn(struct world *w, bool arrivals)
{
    w->now_ns += between(w, 1, 20) * NS_PER_MS;
    if (arrivals && percent(w, w->arrival_percent))
        for (uint32_t n = between(w, 1, w->burst); n; n--)
            if (!world_arrive(w))
                return false;
    for (uint32_t i = 0; i < w->n_clients && arrivals; i++)
        if (w->clients[i].live && below(w, 1000) < w->cancel_permille &&
            !world_disturb(w, &w->clients[i]))
            return false;
    for (uint32_t i = 0; i < w->n_clients; i++) {
        struct client *c = &w->clients[i];
        if (!arrivals && c->live && !world_end_moves(w, c))
            return false;
        if (arrivals && c->live && below(w, 1000) < w->move_permille && !world_move(w, c))
            return false;
    }
    if (arrivals && below(w, 1000) < w->reset_permille && !world_lose_rank(w))
        return false;
    for (bool made = true; made;)
        if (!world_step(w, &made))
            return false;
    if (!world_check(w))
        return false;
    if (percent(w, w->lie_percent) && !world_lie(w))
        return false;
    while (w->n_in_flight && percent(w, w->deliver_percent))
        if (!world_deliver(w))
            return false;
    if (!world_check(w))
        return false;
    w->report->n_turns++;
    return true;
}

static bool run_world(struct world *w, uint64_t n_steps, uint64_t *i_turn)
{
    /* Preemptions can lose work again and again, but each turn serves the oldest request. */
    uint64_t patience = n_steps * IDLE_TURNS_PER_STEP;
    if (!world_open(w))
        return false;
    patience += (uint64_t)w->n_clients * 40 * MAX_MODEL_LEN;
    for (*i_turn = 0; *i_turn < patience; (*i_turn)++) {
        bool arrivals = w->n_steps < n_steps;
        if (!arrivals && request_table_count(w->table) == 0 && w->n_in_flight == 0)
            return world_is_empty(w);
        if (!turn(w, arrivals))
            return false;
    }
    error_set(w->err, STATUS_INTERNAL, "the group does not drain");
    return false;
}

bool sim_run(uint64_t seed, uint64_t n_steps, struct sim_report *report, struct error *err)
{
    struct world *w = mem_zalloc(sizeof *w);
    struct error inner = {0};
    uint64_t i_turn = 0;
    w->rng.state = seed;
    w->report = report;
    w->err = &inner;
    bool ok = run_world(w, n_steps, &i_turn);
    if (!ok)
        error_set(err, STATUS_INTERNAL, "seed %llu, turn %llu: %s", (unsigned long long)seed,
                  (unsigned long long)i_turn, inner.text);
    world_close(w);
    mem_free(w);
    return ok;
}
