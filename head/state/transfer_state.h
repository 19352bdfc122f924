#pragma once
/* Describes requests that move from one replica to another while they run
 * (docs/develop/recovery.md, "Moving requests"): the request, the two replicas, and whether its
 * KV blocks are copied first. The states of a move are
 *
 *   COPYING   blocks of both replicas are reserved; their ranks receive the orders, or copy
 *   LEAVING   the request no longer runs in the old replica; results of steps in flight are pending
 *   STUCK     the copy failed, and a rank that may still write into the blocks has not answered
 *
 * A move without blocks begins with LEAVING. An engine slot has at most one COPYING or STUCK
 * move at a time. routing/transfers.c changes the state. */
#include "head/cluster/registry.h"
#include "head/request/state.h"

#define TRANSFER_ID_BYTES 32u

enum transfer_state { TRANSFER_COPYING, TRANSFER_LEAVING, TRANSFER_STUCK };
enum { TRANSFER_FROM, TRANSFER_TO };

struct transfer_side {
    uint32_t i_replica, n_ranks;
    uint64_t epoch;
    bool is_over;      /* the side's epoch has ended, and its blocks with it */
    uint8_t *told;     /* array of n_ranks: the rank received the order; NULL = no rank gets one */
    uint8_t *answered; /* array of n_ranks: the rank has answered */
    uint32_t *blocks;  /* array of n_blocks: block ids on this side */
};

struct transfer {
    struct transfer *next;
    enum transfer_state state;
    uint64_t id;
    struct request_id request;
    uint32_t i_choice;
    uint32_t n_coming; /* tokens of the request that need blocks at the destination */
    struct transfer_side sides[2];
    uint32_t n_tokens, n_blocks;
    struct request_salt salt; /* salt that the request shares with the copied blocks */
    uint32_t *block_groups;   /* array of n_blocks: KV group of each block */
    uint64_t n_bytes;         /* size of the copy, bytes per rank */
    uint64_t start_ns, took_ns;
    uint8_t comm_id[TRANSFER_ID_BYTES];
    bool failed;
    char why[160];
};

struct transfers {
    struct transfer *first; /* list of moves, the oldest first */
    uint32_t n;
    uint64_t last_id;
    double bytes_per_s; /* speed of copies, mean per rank */
    uint64_t n_done, n_failed, n_bytes;
    /* n_moved: requests that continued in another replica; n_recomputed: those of them without
     * blocks */
    uint64_t n_moved, n_recomputed;
};
