/* Moves requests. The other replica is not simulated. The test only keeps the state that it must
 * have. A running client has its blocks held, leaves, and returns as from the other replica. Its
 * blocks are imported while other sequences run, filled with the right contents, or lost. Then
 * the request is added again. */
#include <string.h>

#include "tests/sim/sim_internal.h"

static bool fail(struct world *w, const char *what)
{
    error_set(w->err, STATUS_INTERNAL, "%s", what);
    return false;
}

bool world_has_moves(const struct world *w)
{
    for (uint32_t i = 0; i < w->n_clients; i++)
        if (w->clients[i].live && (w->clients[i].out_id || w->clients[i].outside))
            return true;
    return false;
}

/* Checks that every block of the move has the contents for its ids, or writes these contents. */
static bool fill(struct world *w, const struct client *c, uint64_t id, bool write)
{
    uint32_t n;
    const struct blocks_part *parts = scheduler_parts(w->scheduler, id, &n);
    for (uint32_t i = 0; i < n; i++)
        if (!sim_rank_moved(w->rank, parts[i].i_group, parts[i].id, parts[i].index, c->ids,
                            (uint32_t)c->sampling.lora.len, write && !parts[i].was_there) &&
            !write)
            return fail(w, "a block that is held holds something else");
    return true;
}

static bool hold(struct world *w, struct client *c)
{
    uint32_t n = scheduler_movable(w->scheduler, c->r);
    if (n == 0)
        return true;
    uint64_t id = ++w->n_moves;
    if (scheduler_hold(w->scheduler, c->r, n, id) != STATUS_OK)
        return true; /* a sliding window has advanced beyond these blocks */
    c->out_id = id;
    c->n_move = n;
    return fill(w, c, id, false);
}

/* Moves a request out of this scheduler. Its blocks here are kept for its return, or are freed. */
static bool leave(struct world *w, struct client *c)
{
    if (c->out_id && !fill(w, c, c->out_id, false))
        return false;
    scheduler_let_go(w->scheduler, c->out_id);
    c->out_id = 0;
    if (!scheduler_leave(w->scheduler, c->r))
        return true; /* the request leaves only when its results have arrived */
    scheduler_remove(w->scheduler, c->r);
    c->outside = true;
    w->report->n_moved_out++;
    uint32_t bt = 1;
    for (uint32_t i = 0; i < w->c.n_kv_groups; i++)
        bt = w->c.kv_groups[i].block_tokens > bt ? w->c.kv_groups[i].block_tokens : bt;
    c->n_move = (c->r->n_ids - 1) / bt * bt;
    uint64_t id = ++w->n_moves;
    if (c->n_move > 0 && percent(w, 80) &&
        scheduler_import(w->scheduler, c->r, c->n_move, id) == STATUS_OK)
        c->in_id = id;
    return true;
}

static bool moves_in(struct world *w, struct client *c)
{
    bool whole = c->in_id && percent(w, 70);
    if (whole && !fill(w, c, c->in_id, true))
        return false;
    if (whole)
        scheduler_imported(w->scheduler, c->in_id);
    else if (c->in_id)
        scheduler_let_go(w->scheduler, c->in_id);
    w->report->n_moved_in += whole;
    w->report->n_moves_lost += !whole;
    c->outside = false;
    uint64_t id = c->in_id;
    c->in_id = 0; /* the scheduler frees the import if it takes the request */
    if (!world_to_scheduler(w, c))
        return false;
    if (!c->live)
        scheduler_let_go(w->scheduler, id);
    return true;
}

bool world_move(struct world *w, struct client *c)
{
    if (c->outside)
        return percent(w, 30) ? moves_in(w, c) : true;
    if (c->r->finish != FINISH_NONE)
        return true;
    return c->out_id || percent(w, 30) ? leave(w, c) : hold(w, c);
}

bool world_end_moves(struct world *w, struct client *c)
{
    scheduler_let_go(w->scheduler, c->out_id);
    c->out_id = 0;
    return c->outside ? moves_in(w, c) : true;
}
