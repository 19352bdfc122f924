#pragma once
/* Requests that move from one replica to another while they run (docs/develop/recovery.md, "Moving
 * requests"): who moves, where to, whether its KV blocks are copied first, and what becomes of it
 * when something fails. A move of a request is
 *
 *   COPYING   blocks of both replicas are out of use; their ranks were told, or are being told
 *   LEAVING   it runs no further where it was; the results of its steps in flight are awaited
 *   STUCK     it failed, and a rank that may still write into the blocks has not said it is done
 *
 * and it begins with LEAVING where nothing is to be copied. An engine slot has at most one COPYING
 * or STUCK at a time. Plain data; routing/transfers.c moves one from state to state. */
#include "head/cluster/registry.h"
#include "head/request/state.h"

#define TRANSFER_ID_BYTES 32u

enum transfer_state { TRANSFER_COPYING, TRANSFER_LEAVING, TRANSFER_STUCK };
enum { TRANSFER_FROM, TRANSFER_TO };

struct transfer_side {
    uint32_t i_replica, n_ranks;
    uint64_t epoch;
    bool is_over;      /* its epoch has ended, and its blocks with it */
    uint8_t *told;     /* [n_ranks]; NULL: nobody is told anything */
    uint8_t *answered; /* [n_ranks] */
    uint32_t *blocks;  /* [n_blocks] */
};

struct transfer {
    struct transfer *next;
    enum transfer_state state;
    uint64_t id;
    struct request_id request;
    uint32_t i_choice;
    uint32_t n_coming; /* tokens that will need room where it goes */
    struct transfer_side sides[2];
    uint32_t n_tokens, n_blocks;
    struct request_salt salt; /* that the request has with what is copied */
    uint32_t *block_groups;   /* [n_blocks] */
    uint64_t n_bytes;         /* of one rank */
    uint64_t start_ns, took_ns;
    uint8_t comm_id[TRANSFER_ID_BYTES];
    bool failed;
    char why[160];
};

struct transfers {
    struct transfer *first; /* oldest first */
    uint32_t n;
    uint64_t last_id;
    double bytes_per_s; /* of one rank, on average */
    uint64_t n_done, n_failed, n_bytes;
    uint64_t n_moved,
        n_recomputed; /* requests that went on elsewhere; the second: without blocks */
};
