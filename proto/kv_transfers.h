#pragma once
/* Defines the messages about KV blocks that move from one replica to another
 * (docs/develop/protocol.md, "KV transfers"). They are a part of messages.h. */
#include <stdbool.h>

#include "common/base/status.h"
#include "common/base/str.h"
#include "proto/spans.h"

/* Orders a rank to send or receive blocks. The head sends one message to the rank that sends
 * blocks. It sends another message with the same id to the rank in the same rank slot of the
 * other replica. Each message has its own replica's epoch. Both ranks join a communicator of two
 * (rank 0 sends) and move the blocks in this order, beside their steps. Until both have
 * answered, no rank writes the blocks that are sent or reads the blocks that are received. The
 * end of an epoch ends its transfers before Aborted is sent. */
struct msg_kv_transfer {
    uint64_t term_epoch, id;
    bool sends;
    struct str from_address, to_address; /* KV cache addresses (kv_address) of both ranks */
    struct bytes comm_id;
    struct u32_span block_groups; /* KV group of each block, ascending; empty = all in group 0 */
    struct u32_span blocks;       /* ids of the blocks, at least one */
};
struct msg_kv_transferred {
    uint64_t term_epoch, id;
    enum status status;
    struct str text;
    uint64_t n_bytes, took_ns; /* bytes moved, and the time since the join */
};
