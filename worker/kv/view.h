#pragma once
/* Where the blocks of a rank's KV cache lie, for whoever moves them whole (transfer.h). True
 * from a join to the abort that follows it: a rank that changes its rank slot gives the memory
 * back. */
#include "common/base/status.h"
#include "proto/limits.h"
#include "proto/shapes.h"

/* Block i lies at ptr + i * block_bytes. */
struct kv_piece {
    uint8_t *ptr;
    uint64_t block_bytes;
};

/* The target's block, and the draft model's twins of it. */
#define KV_VIEW_PIECES (1u + PROTO_MAX_KV_GROUPS)
struct kv_view_group {
    struct kv_piece pieces[KV_VIEW_PIECES];
    uint32_t n_pieces, n_blocks;
};

/* Memory that the host does not reach: what goes to and from it is enqueued, in order, and done
 * when sync has returned. Used by the thread that moves blocks alone. */
struct kv_copies {
    enum status (*to_host)(struct kv_copies *c, void *host, const void *device, uint64_t n_bytes,
                           struct error *err);
    enum status (*to_device)(struct kv_copies *c, void *device, const void *host, uint64_t n_bytes,
                             struct error *err);
    enum status (*sync)(struct kv_copies *c, struct error *err);
    void (*close)(struct kv_copies *c);
    uint8_t *buffers[2]; /* of the host, KV_CHUNK_BYTES each (chunks.h) */
};

struct kv_view {
    struct kv_view_group groups[PROTO_MAX_KV_GROUPS];
    uint32_t n_groups;
    struct kv_copies *copies; /* NULL: memory of the host */
    /* Ranks do not wait for each other in a step: what the head has a result of this rank may have
     * still to do. */
    bool lags;
};
