#pragma once
/* Describes a group of ranks: its members, their addresses, and the group's limits. */
#include "common/base/status.h"
#include "common/base/str.h"
#include "proto/messages.h"

#define COMM_ID_BYTES    32u
#define COMM_MAX_RANKS   64u
#define COMM_ADDRESS_MAX 64u /* bytes of "[v6 address]:port" with its NUL */
#define COMM_MAX_PARTS   4u

struct comm_group {
    uint64_t term_epoch;
    uint32_t rank, n_ranks; /* this rank, and the number of ranks: at most COMM_MAX_RANKS */
    /* addresses by rank, [n_ranks], each as comm_address returned it there */
    const struct str *addresses;
    struct bytes id; /* secret id of the communicator, COMM_ID_BYTES long */
    /* limit of the whole join; 0 = 20 s, which is less than a formation may take */
    uint32_t timeout_ms;
    /* [n_ranks]; ranks that this rank links with, the same at both ends. NULL = all. With
     * `links` the group only serves its parts and has no sums of its own. */
    const bool *links;
};
