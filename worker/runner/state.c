#include "worker/runner/state.h"

/* Checks that the collectives are joined as the rank for which the program was cut. Otherwise
 * sums would be wrong without any error. */
enum status runner_check_ranks(const struct runner *r, struct error *err)
{
    const struct program *p = r->s.program;
    struct collectives_place at = {.n_ranks = 1};
    if (r->s.collectives)
        at = r->s.collectives->ops->place(r->s.collectives);
    if (p->tp > 1 && (at.rank != p->rank || at.n_ranks != p->tp))
        return error_set(err, STATUS_INVALID,
                         "the shard is for rank %u of %u, but the communicator has rank %u of %u. "
                         "Report this bug",
                         p->rank, p->tp, at.rank, at.n_ranks);
    if ((!program_is_first(p) && !at.before) || (!program_is_last(p) && !at.after))
        return error_set(err, STATUS_INVALID,
                         "the shard is stage %u of %u, but the previous or next stage is not "
                         "connected. Report this bug",
                         p->stage, p->pp);
    return STATUS_OK;
}

bool runner_interrupted(const struct runner *r)
{
    atomic_fetch_add_explicit(r->s.progress, 1, memory_order_relaxed);
    return atomic_load_explicit(r->s.interrupt, memory_order_relaxed);
}
