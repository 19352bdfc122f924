#pragma once
/* KV blocks from one replica to another (docs/develop/protocol.md, "KV transfers"): a part of
 * messages.h.
 */
#include <stdbool.h>

#include "common/base/status.h"
#include "common/base/str.h"
#include "proto/spans.h"

/* One goes to the rank that sends and one, with the same id, to the rank in the same rank slot of
 * the other replica, each under its own replica's epoch. Both join a communicator of two (rank 0
 * sends) and move the blocks in this order, beside their steps: nobody writes the ones sent nor
 * reads the ones received until both have answered. An epoch's end ends its transfers before
 * Aborted is said.
 */
struct msg_kv_transfer {
    uint64_t term_epoch, id;
    bool sends;
    struct str from_address, to_address; /* kv_address of both */
    struct bytes comm_id;
    struct u32_span block_groups; /* the KV group of each, rising; none: all of group 0 */
    struct u32_span blocks;       /* at least one */
};
struct msg_kv_transferred {
    uint64_t term_epoch, id;
    enum status status;
    struct str text;
    uint64_t n_bytes, took_ns; /* moved, and in which time from the join on */
};
