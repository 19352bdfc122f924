/* The inner loops of attention_impl.h: a vector of keys or values is loaded once for up to
 * TILE_HEADS query heads. Heads and dtype are constants of the inlined tiles, which makes the
 * accumulators registers; every element's chain of operations is the same in any tile. */
#include <string.h>

#include "kernels/cpu/row.h"

#ifdef __AVX512F__
enum { TILE_VECTORS = 2 };
#else
enum { TILE_VECTORS = 1 }; /* a vector is two registers, or four: more would spill */
#endif
enum { ATT_LANES = 16, TILE_HEADS = 4 };
#define INLINE static inline __attribute__((always_inline))

/* What a row and KV head need, and the pieces of the thread's scratch. dim: of keys, width the same
 * with zeros up to a whole vector; v_dim: of values, which lie dim apart like the keys. */
struct att {
    const struct attention_params *p;
    const struct kv_row *row;
    uint32_t i_kv_head, n_heads, dim, width, v_dim;
    float *q, *scores; /* [n_heads][width], [n_heads][ATTENTION_SPLIT] */
    float *part;       /* [n_heads][part_width]: the split's values, maximum, sum */
    uint32_t part_width;
};

/* Tokens of one block: keys or values at ptr, scores at column i_score. */
struct att_run {
    const uint8_t *ptr;
    uint32_t n_tokens, i_score;
};

INLINE vf kv_load(const void *p, bool half, uint32_t i)
{
    return half ? vf_load_f16((const uint16_t *)p + i) : vf_load((const float *)p + i);
}

/* The last n < 16 elements of a token, zeros behind them: what follows may be another token's, or
 * not memory at all. */
INLINE vf kv_load_n(const void *p, bool half, uint32_t i, uint32_t n)
{
    if (!half)
        return vf_load_n((const float *)p + i, n);
    uint16_t padded[ATT_LANES] = {0};
    memcpy(padded, (const uint16_t *)p + i, n * sizeof *padded);
    return vf_load_f16(padded);
}

/* scores[h][t] = q[h] . k[t] for n heads from q on. */
INLINE void scores_tile(const struct att *a, const struct att_run *run, uint32_t i_head, uint32_t n,
                        bool half)
{
    const float *q = a->q + (size_t)i_head * a->width;
    float *scores = a->scores + (size_t)i_head * ATTENTION_SPLIT + run->i_score;
    const size_t stride = (size_t)a->dim * (half ? 2 : 4);
    const uint32_t width = a->width, whole = a->dim & ~(ATT_LANES - 1u);
    for (uint32_t t = 0; t < run->n_tokens; t++) {
        const uint8_t *k = run->ptr + t * stride;
        vf sum[TILE_HEADS];
        for (uint32_t h = 0; h < n; h++)
            sum[h] = vf_zero();
        for (uint32_t i = 0; i < whole; i += ATT_LANES) {
            vf v = kv_load(k, half, i);
            for (uint32_t h = 0; h < n; h++)
                sum[h] = vf_fma(vf_load(q + h * width + i), v, sum[h]);
        }
        if (whole < a->dim) {
            vf v = kv_load_n(k, half, whole, a->dim - whole);
            for (uint32_t h = 0; h < n; h++)
                sum[h] = vf_fma(vf_load(q + h * width + whole), v, sum[h]);
        }
        for (uint32_t h = 0; h < n; h++)
            scores[h * ATTENTION_SPLIT + t] = vf_sum(sum[h]);
    }
}

/* part[h][i ..] += sum over t of scores[h][t] * v[t][i ..] for n heads and n_whole vectors, or,
 * when that is 0, the last elements of the head. */
INLINE void values_tile(const struct att *a, const struct att_run *run, uint32_t i_head, uint32_t n,
                        uint32_t i, uint32_t n_whole, bool half)
{
    const uint32_t n_vectors = n_whole ? n_whole : 1;
    const float *scores = a->scores + (size_t)i_head * ATTENTION_SPLIT + run->i_score;
    const size_t stride = (size_t)a->dim * (half ? 2 : 4);
    float *part = a->part + (size_t)i_head * a->part_width + i;
    vf sum[TILE_HEADS][TILE_VECTORS];
    for (uint32_t h = 0; h < n; h++)
        for (uint32_t c = 0; c < n_vectors; c++)
            sum[h][c] = vf_load(part + h * a->part_width + c * ATT_LANES);
    for (uint32_t t = 0; t < run->n_tokens; t++) {
        const uint8_t *token = run->ptr + t * stride;
        vf v[TILE_VECTORS];
        for (uint32_t c = 0; c < n_vectors; c++)
            v[c] = n_whole ? kv_load(token, half, i + c * ATT_LANES)
                           : kv_load_n(token, half, i, a->v_dim - i);
        for (uint32_t h = 0; h < n; h++) {
            vf w = vf_set1(scores[h * ATTENTION_SPLIT + t]);
            for (uint32_t c = 0; c < n_vectors; c++)
                sum[h][c] = vf_fma(w, v[c], sum[h][c]);
        }
    }
    for (uint32_t h = 0; h < n; h++)
        for (uint32_t c = 0; c < n_vectors; c++)
            vf_store(part + h * a->part_width + c * ATT_LANES, sum[h][c]);
}

INLINE void values_tile_all(const struct att *a, const struct att_run *run, uint32_t i_head,
                            uint32_t n, bool half)
{
    uint32_t i = 0;
    for (; i + TILE_VECTORS * ATT_LANES <= a->v_dim; i += TILE_VECTORS * ATT_LANES)
        values_tile(a, run, i_head, n, i, TILE_VECTORS, half);
    if (TILE_VECTORS > 1 && i + ATT_LANES <= a->v_dim) {
        values_tile(a, run, i_head, n, i, 1, half);
        i += ATT_LANES;
    }
    if (i < a->v_dim)
        values_tile(a, run, i_head, n, i, 0, half);
}

INLINE void run_tile(const struct att *a, const struct att_run *run, uint32_t i_head, uint32_t n,
                     bool values)
{
    bool half = a->p->kv->dtype == DTYPE_F16;
    if (values && half)
        values_tile_all(a, run, i_head, n, true);
    else if (values)
        values_tile_all(a, run, i_head, n, false);
    else if (half)
        scores_tile(a, run, i_head, n, true);
    else
        scores_tile(a, run, i_head, n, false);
}

static void run_heads(const struct att *a, const struct att_run *run, bool values)
{
    uint32_t h = 0;
    for (; h + TILE_HEADS <= a->n_heads; h += TILE_HEADS)
        run_tile(a, run, h, TILE_HEADS, values);
    uint32_t n = a->n_heads - h;
    if (n == 3)
        run_tile(a, run, h, 3, values);
    else if (n == 2)
        run_tile(a, run, h, 2, values);
    else if (n == 1)
        run_tile(a, run, h, 1, values);
}
