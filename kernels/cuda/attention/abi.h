#pragma once
/* Declares the kernels for attention and for writing the KV cache: the C ABI behind
 * backend/attention.c. Calls enqueue work. Pointers in the arguments are device pointers, except
 * `kv`, which is read before the call returns. Q, K, V and the result are bfloat16. Strides and
 * alignments may be any multiple of an element. */
#include "kernels/cuda/attention/tiles.h"
#include "kernels/cuda/device/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* CUDA_ATTENTION_MAX_SPLITS is the largest number of splits of the positions of one tile. */
#define CUDA_ATTENTION_MAX_SPLITS 32u

struct cuda_attention_params {
    struct attention_params p;
    const struct gpu_tile *tiles; /* tiles, as gpu_tiles_find wrote them */
    struct gpu_tile_counts counts;
    /* The number of splits follows from the device's number of multiprocessors. */
    uint32_t n_multiprocessors;
    uint32_t n_splits; /* fixed number of splits; 0 = choose automatically */
    /* `shared_bytes` limits a block's shared memory; 0 = the device's limit. */
    uint32_t shared_bytes;
    void *scratch;            /* scratch for the parts of splits; aligned to 16 bytes */
    uint64_t n_scratch_bytes; /* bytes of `scratch`; too few bytes lead to fewer splits */
};

/* Enqueues attention of all tiles. Returns STATUS_UNSUPPORTED for a head that no kernel
 * supports: more than 256 dimensions, or a latent of more than 576 with values of more than 512. */
MUST_USE enum status cuda_attention(struct gpu_stream *s, const struct cuda_attention_params *p,
                                    struct error *err);
/* Returns STATUS_UNSUPPORTED for heads that are too wide for every kernel. v_dim is the size of
 * a value. */
MUST_USE enum status cuda_attention_check(uint32_t head_dim, uint32_t v_dim, bool is_latent,
                                          struct error *err);
/* Returns the bytes of scratch that are enough for every pass of at most n_rows rows. */
uint64_t cuda_attention_parts_bytes(uint32_t n_rows, uint32_t n_heads, uint32_t v_dim);

/* Enqueues the writing of the rows' keys and values into their blocks (kv_write of
 * kernels/ops.h). */
MUST_USE enum status cuda_kv_write(struct gpu_stream *s, const struct kv_write_params *p,
                                   struct error *err);
/* Enqueues the ropes of Q (in place) and of K, then kv_write, in one launch with the bits of the
 * three operators. K itself stays unchanged. `k` must be a part of each of p's keys, with as
 * many heads and the same stride (cuda_rope_kv_fits). */
MUST_USE enum status cuda_rope_kv(struct gpu_stream *s, const struct rope_params *q,
                                  const struct rope_params *k, const struct kv_write_params *p,
                                  struct error *err);
bool cuda_rope_kv_fits(const struct rope_params *k, const struct kv_write_params *p);

#ifdef __cplusplus
}
#endif
