#pragma once
/* Describes the addresses of the blocks of a rank's KV cache, for code that moves whole blocks
 * (transfer.h). A view is valid from a join to the abort that follows it, since a rank that
 * changes its rank slot frees the memory. */
#include "common/base/status.h"
#include "proto/limits.h"
#include "proto/shapes.h"

/* `kv_piece` is a part of each block: block i is at ptr + i * block_bytes. */
struct kv_piece {
    uint8_t *ptr;
    uint64_t block_bytes;
};

/* KV_VIEW_PIECES is the most pieces of a view: those of the target's blocks, and those of their
 * twins in the draft model. */
#define KV_VIEW_PIECES (1u + PROTO_MAX_KV_GROUPS)
struct kv_view_group {
    struct kv_piece pieces[KV_VIEW_PIECES];
    uint32_t n_pieces, n_blocks;
};

/* `kv_copies` makes copies for memory that the host cannot access. They are enqueued, run in
 * order, and are done when `sync` has returned. Only the transfer thread uses them. */
struct kv_copies {
    enum status (*to_host)(struct kv_copies *c, void *host, const void *device, uint64_t n_bytes,
                           struct error *err);
    enum status (*to_device)(struct kv_copies *c, void *device, const void *host, uint64_t n_bytes,
                             struct error *err);
    enum status (*sync)(struct kv_copies *c, struct error *err);
    void (*close)(struct kv_copies *c);
    uint8_t *buffers[2]; /* buffers in host memory, KV_CHUNK_BYTES each (chunks.h) */
};

struct kv_view {
    struct kv_view_group groups[PROTO_MAX_KV_GROUPS];
    uint32_t n_groups;
    struct kv_copies *copies; /* NULL = the host can access the memory */
    /* True when ranks do not wait for each other in a step. The head may then already have the
     * result of a step that this rank must still run. */
    bool lags;
};
