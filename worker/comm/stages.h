#pragma once
/* Declares the communicators of a rank of a model in stages (docs/develop/comm.md, "Stages").
 * One group holds all tp x pp ranks. Rank r of stage s is its rank s * tp + r. In this group a
 * rank has links to the ranks of its stage, to its neighbours, and to the sampling rank (rank 0
 * of the last stage). Its neighbours are the same rank of the previous and the next stage. With
 * one stage there is one communicator for all ranks, or none for a rank alone. The threads are
 * those of comm.h. */
#include "worker/comm/comm.h"

/* `comm_place` is the rank slot of a rank: its stage, and its rank within the stage. */
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
/* Returns true for the sampling rank, which has the logits and sends the sampled ids to all. */
static inline bool comm_place_samples(const struct comm_place *p)
{
    return p->rank == 0 && p->stage + 1 == p->pp;
}

/* `comm_stages` holds the communicators of a rank. A part is NULL when no rank slot has members
 * for it. */
struct comm_stages {
    struct comm *all;
    struct comm *stage; /* communicator of the tp ranks of the stage */
    /* communicators with the neighbours; rank 0 is nearer to the input */
    struct comm *before, *after;
    struct comm *ids; /* communicator of all ranks; `sampling_rank` broadcasts ids to them */
    uint32_t sampling_rank;
};

/* Opens the parts over `all`, which is open and borrowed; `all` is NULL for one rank alone. */
MUST_USE enum status comm_stages_open(struct comm *all, uint32_t tp, uint32_t pp,
                                      struct comm_stages *out, struct error *err);
/* Joins the group of all ranks, then the parts of this rank slot. `g` describes the whole group;
 * its `links` are filled in here. After an error, and after comm_leave of `all`, the parts have
 * no members. */
MUST_USE enum status comm_stages_join(const struct comm_stages *s, const struct comm_place *p,
                                      const struct comm_group *g, struct error *err);
/* Returns the bytes of all communicators of this rank slot, like comm_memory_bytes. */
uint64_t comm_stages_bytes(const struct comm_place *p);
