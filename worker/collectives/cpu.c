/* Implements the collectives of ranks on CPUs. Each call is passed to `struct comm`. */
#include "worker/collectives/collectives.h"

#include <string.h>

#include "common/base/clock.h"
#include "worker/comm/stages.h"

_Static_assert(COLLECTIVES_MAX_RANKS == COMM_MAX_RANKS, "one bound");

/* Adds the time since from_ns to the time spent in calls, and returns s. */
static enum status spent(struct collectives *c, uint64_t from_ns, enum status s)
{
    ((struct collectives_comm *)c)->spent_ns += clock_mono_ns() - from_ns;
    return s;
}

static const struct comm_stages *of(const struct collectives *c)
{
    return ((const struct collectives_comm *)c)->comms;
}

/* Returns true when the pair is joined and this rank has number `rank` in it. Rank 0 of a pair
 * is nearer to the input. */
static bool is_pair(const struct comm *pair, uint32_t rank)
{
    return pair && comm_n_ranks(pair) == 2 && comm_rank(pair) == rank;
}

static struct collectives_place place(const struct collectives *c)
{
    const struct comm_stages *s = of(c);
    return (struct collectives_place){.rank = s->stage ? comm_rank(s->stage) : 0,
                                      .n_ranks = s->stage ? comm_n_ranks(s->stage) : 1,
                                      .before = is_pair(s->before, 1),
                                      .after = is_pair(s->after, 0)};
}

static enum status all_reduce_floats(struct collectives *c, float *x, size_t n, struct error *err)
{
    uint64_t from_ns = clock_mono_ns();
    return spent(c, from_ns, comm_all_reduce(of(c)->stage, x, n, err));
}

/* Adds the other ranks' activations, which are floats on a CPU. */
static enum status all_reduce(struct collectives *c, void *x, size_t n, struct error *err)
{
    uint64_t from_ns = clock_mono_ns();
    return spent(c, from_ns, comm_all_reduce(of(c)->stage, x, n, err));
}

static enum status gather_row(struct comm *stage, const struct collectives_columns *m, float *row,
                              struct error *err)
{
    struct comm_part parts[COMM_MAX_RANKS] = {{0}};
    uint32_t own = comm_rank(stage);
    for (uint32_t rank = 0; rank < comm_n_ranks(stage); rank++) {
        parts[rank].n_bytes = m->of[rank].n * sizeof *row;
        if (own == 0)
            parts[rank].data = row + m->of[rank].first;
        else if (own == rank)
            parts[rank].data = row;
    }
    return comm_gather(stage, 0, parts, err);
}

static enum status gather_columns(struct collectives *c, const struct collectives_columns *m,
                                  struct error *err)
{
    uint64_t from_ns = clock_mono_ns();
    for (uint32_t i = 0; i < m->n_rows; i++)
        TRY(gather_row(of(c)->stage, m, m->x + (size_t)i * m->stride, err));
    return spent(c, from_ns, STATUS_OK);
}

static enum status gather(struct collectives *c, const void *own, void *all, size_t n_bytes,
                          struct error *err)
{
    struct comm_part parts[COMM_MAX_RANKS] = {{0}};
    struct comm *stage = of(c)->stage;
    uint64_t from_ns = clock_mono_ns();
    uint32_t rank = comm_rank(stage);
    for (uint32_t r = 0; r < comm_n_ranks(stage); r++)
        parts[r] = (struct comm_part){all ? (uint8_t *)all + r * n_bytes : NULL, n_bytes};
    if (all)
        memcpy(parts[rank].data, own, n_bytes);
    else
        /* the cast drops const: a part that is sent is only read */
        parts[rank].data = (void *)(uintptr_t)own;
    return spent(c, from_ns, comm_gather(stage, 0, parts, err));
}

static enum status broadcast(struct collectives *c, uint32_t root, void *data, size_t n_bytes,
                             struct error *err)
{
    uint64_t from_ns = clock_mono_ns();
    return spent(c, from_ns, comm_broadcast(of(c)->ids, root, data, n_bytes, err));
}

static enum status take(struct collectives *c, void *data, size_t n_bytes, struct error *err)
{
    uint64_t from_ns = clock_mono_ns();
    return spent(c, from_ns, comm_broadcast(of(c)->before, 0, data, n_bytes, err));
}

static enum status give(struct collectives *c, void *data, size_t n_bytes, struct error *err)
{
    uint64_t from_ns = clock_mono_ns();
    return spent(c, from_ns, comm_broadcast(of(c)->after, 0, data, n_bytes, err));
}

static enum status wait_done(struct collectives *c, struct error *err)
{
    (void)c;
    (void)err;
    return STATUS_OK;
}

static const struct collectives_ops comm_collectives_ops = {.place = place,
                                                            .all_reduce = all_reduce,
                                                            .all_reduce_floats = all_reduce_floats,
                                                            .gather_columns = gather_columns,
                                                            .gather = gather,
                                                            .broadcast = broadcast,
                                                            .take = take,
                                                            .give = give,
                                                            .wait = wait_done};

void collectives_comm_init(struct collectives_comm *c, const struct comm_stages *comms)
{
    *c = (struct collectives_comm){.base = {&comm_collectives_ops}, .comms = comms};
}
