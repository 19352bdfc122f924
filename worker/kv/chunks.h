#pragma once
/* KV blocks as chunks on their way: both sides of a transfer cut alike, by the sizes of blocks and
 * not by where they lie. Small pieces go several in a chunk, large ones in parts of one. Pure. */
#include "common/base/status.h"
#include "worker/kv/view.h"

#define KV_CHUNK_BYTES    (1u << 20)
#define KV_CHUNK_SEGMENTS 512u
#define KV_PACK_BYTES     (64u << 10) /* pieces below are packed */

struct kv_segment {
    uint8_t *ptr;
    size_t n_bytes;
};
struct kv_chunk {
    struct kv_segment segments[KV_CHUNK_SEGMENTS];
    uint32_t n_segments;
    size_t n_bytes; /* at most KV_CHUNK_BYTES */
};

/* Blocks in the order of an order; groups none: all of group 0. */
struct kv_walk {
    const struct kv_view *view;
    struct u32_span groups, blocks;
    uint32_t i_block, i_piece;
    uint64_t at; /* in the piece */
};

/* Are they all here? n_blocks: of each group, as its own replica has agreed. STATUS_INVALID names
 * the one that is not. */
MUST_USE enum status kv_walk_check(const struct kv_walk *w, struct u32_span n_blocks,
                                   struct error *err);
uint64_t kv_walk_bytes(const struct kv_walk *w); /* of all blocks */
/* What moves them holds meanwhile (transfer.h), of the host. */
uint64_t kv_chunks_memory_bytes(void);
/* The next chunk; false: there is none left. */
bool kv_walk_next(struct kv_walk *w, struct kv_chunk *out);
