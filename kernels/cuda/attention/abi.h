#pragma once
/* Attention and the writing of the KV cache, as kernels: the C ABI behind backend/attention.c. Work
 * is enqueued; pointers inside are the device's, but for kv, which is read before the call returns.
 * Q, K, V and the result are bfloat16; any strides and alignments of whole elements. */
#include "kernels/cuda/attention/tiles.h"
#include "kernels/cuda/device/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Splits of the positions of one tile at most. */
#define CUDA_ATTENTION_MAX_SPLITS 32u

struct cuda_attention_params {
    struct attention_params p;
    const struct gpu_tile *tiles; /* as gpu_tiles_find wrote them */
    struct gpu_tile_counts counts;
    uint32_t n_multiprocessors; /* what the number of splits is made for */
    uint32_t n_splits;          /* in place of that number; 0: choose */
    uint32_t shared_bytes;      /* in place of what a block of the device may have; 0: that */
    void *scratch;              /* for the parts of splits, aligned to 16 bytes */
    uint64_t n_scratch_bytes;   /* with less than it takes, fewer splits are made */
};

/* Attention of all tiles. STATUS_UNSUPPORTED: a head that no kernel was made for (more than 256
 * dimensions, or a latent of more than 576 with values of more than 512). */
MUST_USE enum status cuda_attention(struct gpu_stream *s, const struct cuda_attention_params *p,
                                    struct error *err);
/* STATUS_UNSUPPORTED: heads too wide for every kernel; of a latent v_dim is its values'. */
MUST_USE enum status cuda_attention_check(uint32_t head_dim, uint32_t v_dim, bool is_latent,
                                          struct error *err);
/* Scratch that is never too little for passes of at most n_rows. */
uint64_t cuda_attention_parts_bytes(uint32_t n_rows, uint32_t n_heads, uint32_t v_dim);

/* Keys and values of the rows into their blocks (kv_write of kernels/ops.h). */
MUST_USE enum status cuda_kv_write(struct gpu_stream *s, const struct kv_write_params *p,
                                   struct error *err);
/* Ropes of Q, in place, and of K, then kv_write, in one launch and with the bits of the three
 * operators; K stays as it was. k has to be a part of each of p's keys: as many heads, and as far
 * apart (cuda_rope_kv_fits). */
MUST_USE enum status cuda_rope_kv(struct gpu_stream *s, const struct rope_params *q,
                                  const struct rope_params *k, const struct kv_write_params *p,
                                  struct error *err);
bool cuda_rope_kv_fits(const struct rope_params *k, const struct kv_write_params *p);

#ifdef __cplusplus
}
#endif
