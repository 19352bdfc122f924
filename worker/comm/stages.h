#pragma once
/* The communicators of a rank of a model in stages (docs/develop/comm.md, "Stages"): one group of
 * all tp x pp ranks, in which a rank has links to those of its own stage, to its neighbours, which
 * are the same rank of the stages before and behind it, and to the sampling rank: rank 0 of the
 * last stage. Rank r of stage s is rank s * tp + r of the group. With one stage there is one
 * communicator for all, or none for a rank alone. Threads as of comm.h. */
#include "worker/comm/comm.h"

/* A rank's rank slot. */
struct comm_place {
    uint32_t tp, pp, rank, stage;
};
static inline uint32_t comm_place_world(const struct comm_place *p)
{
    return p->tp * p->pp;
}
static inline uint32_t comm_place_position(const struct comm_place *p)
{
    return p->stage * p->tp + p->rank;
}
/* Has the logits, and tells all ranks what it sampled. */
static inline bool comm_place_samples(const struct comm_place *p)
{
    return p->rank == 0 && p->stage + 1 == p->pp;
}

/* Parts are NULL where there is nobody in them at any place. */
struct comm_stages {
    struct comm *all;
    struct comm *stage;          /* the tp ranks of a stage */
    struct comm *before, *after; /* pairs: rank 0 is the one that is nearer to the input */
    struct comm *ids;            /* all ranks; what rank `drawer` of it knows goes to all */
    uint32_t sampling_rank;
};

/* Over `all`, which is open and borrowed; NULL for one rank alone. */
MUST_USE enum status comm_stages_open(struct comm *all, uint32_t tp, uint32_t pp,
                                      struct comm_stages *out, struct error *err);
/* comm_join of all ranks, and of the parts of this place. g: of all, but links. After an error and
 * after comm_leave of `all` there is nobody in the parts. */
MUST_USE enum status comm_stages_join(const struct comm_stages *s, const struct comm_place *p,
                                      const struct comm_group *g, struct error *err);
/* As comm_memory_bytes, at this place. */
uint64_t comm_stages_bytes(const struct comm_place *p);
