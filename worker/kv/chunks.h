#pragma once
/* Cuts KV blocks into chunks for a transfer. The two sides cut in the same way, since only the
 * sizes of blocks matter and not their addresses. Several small pieces share a chunk; a large
 * piece is cut into several chunks. The functions are pure and may run on any thread. */
#include "common/base/status.h"
#include "worker/kv/view.h"

#define KV_CHUNK_BYTES    (1u << 20)
#define KV_CHUNK_SEGMENTS 512u
#define KV_PACK_BYTES     (64u << 10) /* pieces below this size share a chunk */

struct kv_segment {
    uint8_t *ptr;
    size_t n_bytes;
};
struct kv_chunk {
    struct kv_segment segments[KV_CHUNK_SEGMENTS];
    uint32_t n_segments;
    size_t n_bytes; /* size of the chunk, at most KV_CHUNK_BYTES */
};

/* `kv_walk` is an iterator over the blocks of a transfer order, in the order's sequence. Without
 * `groups` all blocks belong to group 0. */
struct kv_walk {
    const struct kv_view *view;
    struct u32_span groups, blocks;
    uint32_t i_block, i_piece;
    uint64_t at; /* offset in the piece, in bytes */
};

/* Checks that all blocks exist. n_blocks holds the number of blocks per KV group, as the rank's
 * own replica has agreed. The text of STATUS_INVALID names the missing block. */
MUST_USE enum status kv_walk_check(const struct kv_walk *w, struct u32_span n_blocks,
                                   struct error *err);
uint64_t kv_walk_bytes(const struct kv_walk *w); /* returns the sum over all blocks */
/* Returns the host memory that a transfer uses (transfer.h). */
uint64_t kv_chunks_memory_bytes(void);
/* Makes the next chunk. Returns false at the end. */
bool kv_walk_next(struct kv_walk *w, struct kv_chunk *out);
