#include "worker/comm/stages.h"

#include "worker/comm/part.h"

enum { MARK_STAGE = 1, MARK_PAIR, MARK_IDS };

enum status comm_stages_open(struct comm *all, uint32_t tp, uint32_t pp, struct comm_stages *out,
                             struct error *err)
{
    *out = (struct comm_stages){.all = all, .sampling_rank = (pp - 1) * tp};
    if (pp == 1) {
        out->stage = out->ids = all;
        return STATUS_OK;
    }
    if (tp > 1)
        TRY(comm_open_part(all, MARK_STAGE, &out->stage, err));
    TRY(comm_open_part(all, MARK_PAIR, &out->before, err));
    TRY(comm_open_part(all, MARK_PAIR, &out->after, err));
    return comm_open_part(all, MARK_IDS, &out->ids, err);
}

/* Returns true when the rank at place `p` needs a link to the rank at `position`. Both ends
 * compute the same result. */
static bool linked(const struct comm_place *p, uint32_t position)
{
    uint32_t own = comm_place_position(p), sampling_rank = (p->pp - 1) * p->tp;
    bool same_stage = position / p->tp == p->stage;
    bool neighbour = position == own + p->tp || position + p->tp == own;
    return position != own &&
           (same_stage || neighbour || position == sampling_rank || own == sampling_rank);
}

/* Joins the pair of the ranks at positions `first` (rank 0) and `first` + tp (rank 1). */
static enum status join_pair(struct comm *part, const struct comm_place *p, uint32_t first,
                             struct error *err)
{
    const uint32_t pair[2] = {first, first + p->tp};
    return comm_join_part(
        part,
        &(struct comm_members){.ranks = pair, .n = 2, .rank = comm_place_position(p) != first},
        err);
}

static enum status join_parts(const struct comm_stages *s, const struct comm_place *p,
                              struct error *err)
{
    uint32_t ranks[COMM_MAX_RANKS], own = comm_place_position(p);
    for (uint32_t r = 0; r < comm_place_world(p); r++)
        ranks[r] = r;
    if (s->stage)
        TRY(comm_join_part(s->stage,
                           &(struct comm_members){.ranks = ranks + (size_t)p->stage * p->tp,
                                                  .n = p->tp,
                                                  .rank = p->rank,
                                                  .sums = true},
                           err));
    if (p->stage > 0)
        TRY(join_pair(s->before, p, own - p->tp, err));
    if (p->stage + 1 < p->pp)
        TRY(join_pair(s->after, p, own, err));
    return comm_join_part(
        s->ids, &(struct comm_members){.ranks = ranks, .n = comm_place_world(p), .rank = own}, err);
}

enum status comm_stages_join(const struct comm_stages *s, const struct comm_place *p,
                             const struct comm_group *g, struct error *err)
{
    bool links[COMM_MAX_RANKS] = {false};
    struct comm_group group = *g;
    if (p->pp == 1)
        return comm_join(s->all, g, err);
    if (comm_place_world(p) > COMM_MAX_RANKS)
        return error_set(
            err, STATUS_INVALID,
            "%u ranks in %u stages are too many: a replica has at most %u ranks. Report this bug",
            p->tp, p->pp, COMM_MAX_RANKS);
    for (uint32_t r = 0; r < comm_place_world(p); r++)
        links[r] = linked(p, r);
    group.links = links;
    TRY(comm_join(s->all, &group, err));
    return join_parts(s, p, err);
}

uint64_t comm_stages_bytes(const struct comm_place *p)
{
    uint32_t n_links = 0, world = comm_place_world(p);
    if (p->pp == 1)
        return comm_memory_bytes(p->tp);
    for (uint32_t r = 0; r < world; r++)
        n_links += linked(p, r);
    uint32_t n_pairs = (p->stage > 0) + (p->stage + 1 < p->pp);
    return n_links * comm_link_bytes() + comm_group_bytes(p->tp, true) +
           2 * (uint64_t)comm_group_bytes(world, false) + n_pairs * comm_group_bytes(2, false);
}
