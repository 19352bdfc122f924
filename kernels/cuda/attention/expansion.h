#pragma once
/* Attention over a latent (MLA) in the model's own form: keys and values of every head are made out
 * of the cached latents, some positions at a time, and attention of these is an ordinary one of
 * nope + rope dimensions for keys and v for values. The C ABI behind backend/latent.c, which says
 * when that is done. Work is enqueued; pointers inside are the device's. */
#include "kernels/cuda/attention/tiles.h"
#include "kernels/cuda/device/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most that the kernel was made for; v is even, the others are multiples of 8. */
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
/* Elements of a head's key (without the rope's part, which all heads share) and value, with zeros
 * behind that up to whole pieces of 16 bytes. */
static inline uint32_t cuda_latent_value(const struct cuda_latent_shape *s)
{
    return (s->v + 7) / 8 * 8;
}
static inline uint32_t cuda_latent_head(const struct cuda_latent_shape *s)
{
    return s->nope + cuda_latent_value(s);
}

/* Keys of several sequences lie one behind the other: those of a run begin at first_key. Runs whose
 * keys are made at once are a batch, the first of which has first_key 0. */
struct cuda_latent_run {
    uint32_t first_row, first_key;
};

/* to[head][nope + value][kv_rank] of bfloat16, out of the matrices that heads_params name: of keys
 * [kv_rank][nope], of values [v][kv_rank]. */
MUST_USE enum status cuda_latent_weights(struct gpu_stream *s,
                                         const struct cuda_latent_shape *shape,
                                         const struct heads_params *keys,
                                         const struct heads_params *values, void *to,
                                         struct error *err);

/* Cached latents of a batch's keys first .. first + n - 1, as bfloat16: the first kv_rank elements
 * of key i to latents[i - first], the rest to ropes[i]. */
struct cuda_latent_keys {
    const struct kv_cache *kv;
    const struct kv_row *rows;
    const struct cuda_latent_run *runs;
    uint32_t n_runs, first, n;
    uint32_t key_begin; /* the position of each run's first key */
    void *latents, *ropes;
};
MUST_USE enum status cuda_latent_gather(struct gpu_stream *s, const struct cuda_latent_keys *p,
                                        struct error *err);

/* Attention of a batch's rows over the keys at positions key_begin .. key_end - 1 of each run.
 * Where a run has more of them than that there are n_chunks calls, one for each part in order; the
 * last one writes the result. All of them have the same scratch, which is theirs until then. */
struct cuda_latent_attention {
    struct cuda_latent_shape shape; /* n_heads: of this call */
    struct view q, out;             /* [row][head][nope + rope], [row][head][v]; q: 16 bytes */
    const struct kv_row *rows;
    const struct gpu_tile *tiles; /* [n_tiles], slots counted from the batch's first */
    const uint32_t *first_keys;   /* [n_tiles]: of the tile's run */
    uint32_t n_tiles, n_rows;
    const void *keys;  /* [key][head][nope + value] */
    const void *ropes; /* [key][rope] */
    uint32_t key_begin, key_end, i_chunk, n_chunks;
    float scale, softcap;
    const float *sinks; /* [head] or NULL */
    uint32_t n_multiprocessors;
    uint32_t n_splits; /* of a chunk; 0: choose */
    void *scratch;     /* for parts, aligned to 16 bytes */
    uint64_t n_scratch_bytes;
};
/* STATUS_INTERNAL: scratch has no room for n_chunks parts. */
MUST_USE enum status cuda_latent_attention(struct gpu_stream *s,
                                           const struct cuda_latent_attention *p,
                                           struct error *err);
/* Scratch for n_parts parts of the rows of all heads. */
uint64_t cuda_latent_parts_bytes(const struct cuda_latent_shape *s, uint64_t n_parts);
/* Parts that splits of a call's keys may make use of, in a pass of so many rows. */
uint64_t cuda_latent_most_parts(const struct cuda_latent_shape *s, uint32_t n_rows);

#ifdef __cplusplus
}
#endif
