#pragma once
/* A group of ranks: who is in it, where each listens, and the limits of all that has to do with it.
 */
#include "common/base/status.h"
#include "common/base/str.h"
#include "proto/messages.h"

#define COMM_ID_BYTES    32u
#define COMM_MAX_RANKS   64u
#define COMM_ADDRESS_MAX 64u /* "[v6 address]:port" and its NUL */
#define COMM_MAX_PARTS   4u

struct comm_group {
    uint64_t term_epoch;
    uint32_t rank, n_ranks;      /* n_ranks <= COMM_MAX_RANKS */
    const struct str *addresses; /* [n_ranks], as comm_address said there */
    struct bytes id;             /* COMM_ID_BYTES */
    uint32_t timeout_ms;         /* for all of it; 0: 20 s, less than a formation may take */
    /* [n_ranks] whom this rank is to have a link with, who is to have one with it; NULL: all. With
     * it the whole is there for its parts, and adds up nothing. */
    const bool *links;
};
