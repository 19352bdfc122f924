#pragma once
/* Declares parts of a group. All functions run on the compute thread, except comm_open_part,
 * which runs on the loop thread (see comm.h). */
#include "worker/comm/group.h"

struct comm;
/* Opens a part: some ranks of a group, with their own numbering and collectives, over the links
 * of the whole group. A part is opened once. It has members from comm_join_part until the whole
 * group is left. An interrupt or an error of the group also applies to the part. `mark` tags the
 * part's messages. It is not 0, is the same on all ranks of the part, and differs from other
 * parts between the same ranks. Returns STATUS_LIMIT when COMM_MAX_PARTS are open. */
MUST_USE enum status comm_open_part(struct comm *whole, uint8_t mark, struct comm **out,
                                    struct error *err);
/* `comm_members` lists the members of a part: ranks[n] are ranks of the whole group, and this
 * rank is ranks[rank]. The list is the same on all members. With `sums` the part has
 * comm_all_reduce. comm_join_part returns STATUS_INVALID for an invalid list, or
 * STATUS_NO_MEMORY. */
struct comm_members {
    const uint32_t *ranks;
    uint32_t n, rank;
    bool sums;
};
MUST_USE enum status comm_join_part(struct comm *part, const struct comm_members *m,
                                    struct error *err);
