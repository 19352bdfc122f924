#pragma once
/* Declares attention over a latent (MLA) in the model's own form. Keys and values of every head
 * are expanded from the cached latents, some positions at a time. Attention over the expanded
 * keys is ordinary, with nope + rope dimensions for keys and v for values. This is the C ABI
 * behind backend/latent.c, which explains when this form is used. Calls enqueue work, and
 * pointers in the arguments are device pointers. */
#include "kernels/cuda/attention/tiles.h"
#include "kernels/cuda/device/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* CUDA_LATENT_NOPE and the constants below are limits of the kernel. v must be even; the other
 * sizes must be multiples of 8. */
#define CUDA_LATENT_NOPE 128u
#define CUDA_LATENT_ROPE 64u
#define CUDA_LATENT_V    128u
#define CUDA_LATENT_RANK 512u
struct cuda_latent_shape {
    uint32_t n_heads, kv_rank, nope, rope, v;
};
static inline bool cuda_latent_fits(const struct cuda_latent_shape *s)
{
    return s->kv_rank <= CUDA_LATENT_RANK && s->nope <= CUDA_LATENT_NOPE &&
           s->rope <= CUDA_LATENT_ROPE && s->v <= CUDA_LATENT_V &&
           (s->kv_rank | s->nope | s->rope) % 8 == 0 && s->v % 2 == 0;
}
/* cuda_latent_value returns the number of elements of a head's value, with zeros up to whole
 * pieces of 16 bytes. cuda_latent_head adds the nope elements of the head's key. The rope
 * elements of keys are shared by all heads. */
static inline uint32_t cuda_latent_value(const struct cuda_latent_shape *s)
{
    return (s->v + 7) / 8 * 8;
}
static inline uint32_t cuda_latent_head(const struct cuda_latent_shape *s)
{
    return s->nope + cuda_latent_value(s);
}

/* The keys of several sequences (runs) are stored one after the other; the keys of a run begin
 * at first_key. Runs whose keys are expanded at once are a batch; the first run of a batch has
 * first_key 0. */
struct cuda_latent_run {
    uint32_t first_row, first_key;
};

/* Enqueues the computation of to[head][nope + value][kv_rank] in bfloat16, from the matrices in
 * heads_params: [kv_rank][nope] for keys, [v][kv_rank] for values. */
MUST_USE enum status cuda_latent_weights(struct gpu_stream *s,
                                         const struct cuda_latent_shape *shape,
                                         const struct heads_params *keys,
                                         const struct heads_params *values, void *to,
                                         struct error *err);

/* `cuda_latent_keys` names the cached latents of a batch's keys first .. first + n - 1, as
 * bfloat16. The first kv_rank elements of key i go to latents[i - first], the rest to ropes[i]. */
struct cuda_latent_keys {
    const struct kv_cache *kv;
    const struct kv_row *rows;
    const struct cuda_latent_run *runs;
    uint32_t n_runs, first, n;
    uint32_t key_begin; /* position of each run's first key */
    void *latents, *ropes;
};
MUST_USE enum status cuda_latent_gather(struct gpu_stream *s, const struct cuda_latent_keys *p,
                                        struct error *err);

/* `cuda_latent_attention` describes attention of a batch's rows over the keys at positions
 * key_begin .. key_end - 1 of each run. A run with more keys needs n_chunks calls, one for each
 * part in order, and the last call writes the result. All these calls must have the same
 * scratch, and no other work may use it meanwhile. */
struct cuda_latent_attention {
    struct cuda_latent_shape shape; /* n_heads is the number of heads of this call */
    /* shapes: q [row][head][nope + rope], out [row][head][v]; q is aligned to 16 bytes */
    struct view q, out;
    const struct kv_row *rows;
    const struct gpu_tile *tiles; /* shape [n_tiles]: slots count from the batch's first row */
    const uint32_t *first_keys;   /* shape [n_tiles]: first_key of the tile's run */
    uint32_t n_tiles, n_rows;
    const void *keys;  /* `keys` has the shape [key][head][nope + value] */
    const void *ropes; /* `ropes` has the shape [key][rope] */
    uint32_t key_begin, key_end, i_chunk, n_chunks;
    float scale, softcap;
    const float *sinks; /* `sinks` has the shape [head], or is NULL */
    uint32_t n_multiprocessors;
    uint32_t n_splits; /* number of splits of a chunk; 0 = choose automatically */
    void *scratch;     /* scratch for parts; aligned to 16 bytes */
    uint64_t n_scratch_bytes;
};
/* Returns STATUS_INTERNAL when the scratch is too small for the parts of n_chunks chunks. */
MUST_USE enum status cuda_latent_attention(struct gpu_stream *s,
                                           const struct cuda_latent_attention *p,
                                           struct error *err);
/* Returns the bytes of scratch for n_parts parts. A part belongs to one row and one head. */
uint64_t cuda_latent_parts_bytes(const struct cuda_latent_shape *s, uint64_t n_parts);
/* Returns the largest number of parts that the splits of one call can use in a pass of n_rows
 * rows. */
uint64_t cuda_latent_most_parts(const struct cuda_latent_shape *s, uint32_t n_rows);

#ifdef __cplusplus
}
#endif
