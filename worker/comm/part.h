#pragma once
/* Parts of a group. Compute thread, but for comm_open_part (the loop's), as of comm.h. */
#include "worker/comm/group.h"

struct comm;
/* A part: some ranks of a group, over the links of the whole, with ranks and collectives of its
 * own. It is opened once, has members from comm_join_part until the whole leaves, and is
 * interrupted and fails with it. What it sends is marked: with another mark than other parts
 * between the same ranks, not 0, and the same one on all of them. STATUS_LIMIT: COMM_MAX_PARTS are
 * open. */
MUST_USE enum status comm_open_part(struct comm *whole, uint8_t mark, struct comm **out,
                                    struct error *err);
/* members[n_members]: ranks of the whole, this one at `rank`; alike on all of them. sums: the part
 * has comm_all_reduce. STATUS_INVALID for other members, STATUS_NO_MEMORY. */
struct comm_members {
    const uint32_t *ranks;
    uint32_t n, rank;
    bool sums;
};
MUST_USE enum status comm_join_part(struct comm *part, const struct comm_members *m,
                                    struct error *err);
