/* The inner loops of attention_impl.h: a vector of keys or values is loaded once for up to
 * TILE_HEADS query heads. Heads and dtype are constants of the inlined tiles, which makes the
 * accumulators registers; every element's chain of operations is the same in any tile. */
#include <string.h>

#include "kernels/cpu/row.h"
#include "kernels/kv_layout.h"

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

/* Tokens of one block: keys or values at ptr, scores at column i_score. scales: of codes, one a
 * token; those of a latent's second part are block_tokens further. */
struct att_run {
    const uint8_t *ptr;
    const float *scales;
    uint32_t n_tokens, i_score;
};

/* Codes without their scale. */
INLINE vf kv_load(const uint8_t *p, enum dtype dtype, uint32_t i)
{
    p += (size_t)i * kv_elem_bytes(dtype);
    switch (dtype) {
    case DTYPE_F16:
        return vf_load_f16((const uint16_t *)(const void *)p);
    case DTYPE_BF16:
        return vf_load_bf16((const uint16_t *)(const void *)p);
    case DTYPE_I8:
        return vf_from_i8(vb_load(p));
    case DTYPE_F8_E4M3:
        return vf_from_e4m3(vb_load(p));
    default:
        return vf_load((const float *)(const void *)p);
    }
}

/* The last n < 16 elements of a token, zeros behind them: what follows may be another token's, or
 * not memory at all. */
INLINE vf kv_load_n(const uint8_t *p, enum dtype dtype, uint32_t i, uint32_t n)
{
    if (dtype == DTYPE_F32)
        return vf_load_n((const float *)(const void *)p + i, n);
    _Alignas(16) uint8_t padded[2 * ATT_LANES] = {0};
    memcpy(padded, p + (size_t)i * kv_elem_bytes(dtype), n * kv_elem_bytes(dtype));
    return kv_load(padded, dtype, 0);
}

/* sum[h] = elements begin .. end of q[h] * k, lane by lane. */
struct att_part {
    const uint8_t *k;
    uint32_t begin, end;
};
INLINE void dot_tile(vf *sum, const float *q, uint32_t width, struct att_part part, uint32_t n,
                     enum dtype dtype)
{
    const uint8_t *k = part.k;
    const uint32_t end = part.end;
    uint32_t i = part.begin;
    for (uint32_t h = 0; h < n; h++)
        sum[h] = vf_zero();
    for (; i + ATT_LANES <= end; i += ATT_LANES) {
        vf v = kv_load(k, dtype, i);
        for (uint32_t h = 0; h < n; h++)
            sum[h] = vf_fma(vf_load(q + h * width + i), v, sum[h]);
    }
    if (i < end) {
        vf v = kv_load_n(k, dtype, i, end - i);
        for (uint32_t h = 0; h < n; h++)
            sum[h] = vf_fma(vf_load_n(q + h * width + i, end - i), v, sum[h]);
    }
}

/* scores[h][t] = q[h] . k[t] for n heads from q on and 16 / n tokens (of 3 heads 4), whose sums are
 * added up together: with heads of 64 elements that is most of the work. No codes. */
INLINE void scores_together(const struct att *a, const uint8_t *k, float *scores, const float *q,
                            uint32_t n, enum dtype dtype)
{
    const size_t stride = (size_t)a->dim * kv_elem_bytes(dtype);
    const uint32_t n_tokens = n == 3 ? 4 : 16 / n;
    vf sums[16];
    float out[16];
    for (uint32_t i = n * n_tokens; i < 16; i++)
        sums[i] = vf_zero();
    for (uint32_t t = 0; t < n_tokens; t++) {
        vf sum[TILE_HEADS];
        dot_tile(sum, q, a->width, (struct att_part){k + t * stride, 0, a->dim}, n, dtype);
        for (uint32_t h = 0; h < n; h++)
            sums[h * n_tokens + t] = sum[h];
    }
    vf_store(out, vf_sum16(sums));
    for (uint32_t h = 0; h < n; h++)
        memcpy(scores + h * ATTENTION_SPLIT, out + h * n_tokens, n_tokens * sizeof *out);
}

/* The same of any number of tokens. Of codes each part's sum is scaled. */
INLINE void scores_tile(const struct att *a, const struct att_run *run, uint32_t i_head, uint32_t n,
                        enum dtype dtype)
{
    const float *q = a->q + (size_t)i_head * a->width;
    float *scores = a->scores + (size_t)i_head * ATTENTION_SPLIT + run->i_score;
    const size_t stride = (size_t)a->dim * kv_elem_bytes(dtype);
    const bool codes = kv_has_scales(dtype);
    const uint32_t width = a->width, split = codes ? kv_part_end(a->p->kv) : a->dim;
    const uint32_t together = n == 3 ? 4 : 16 / n;
    uint32_t t = 0;
    for (; !codes && t + together <= run->n_tokens; t += together)
        scores_together(a, run->ptr + t * stride, scores + t, q, n, dtype);
    for (; t < run->n_tokens; t++) {
        const uint8_t *k = run->ptr + t * stride;
        vf sum[TILE_HEADS];
        dot_tile(sum, q, width, (struct att_part){k, 0, split}, n, dtype);
        for (uint32_t h = 0; h < n; h++)
            scores[h * ATTENTION_SPLIT + t] = vf_sum(sum[h]) * (codes ? run->scales[t] : 1.0f);
        if (!codes || split == a->dim)
            continue;
        const float scale = run->scales[a->p->kv->block_tokens + t];
        dot_tile(sum, q, width, (struct att_part){k, split, a->dim}, n, dtype);
        for (uint32_t h = 0; h < n; h++)
            scores[h * ATTENTION_SPLIT + t] += vf_sum(sum[h]) * scale;
    }
}

/* part[h][i ..] += sum over t of scores[h][t] * v[t][i ..] for n heads and n_whole vectors, or,
 * when that is 0, the last elements of the head. */
INLINE void values_tile(const struct att *a, const struct att_run *run, uint32_t i_head, uint32_t n,
                        uint32_t i, uint32_t n_whole, enum dtype dtype)
{
    const uint32_t n_vectors = n_whole ? n_whole : 1;
    const float *scores = a->scores + (size_t)i_head * ATTENTION_SPLIT + run->i_score;
    const size_t stride = (size_t)a->dim * kv_elem_bytes(dtype);
    float *part = a->part + (size_t)i_head * a->part_width + i;
    vf sum[TILE_HEADS][TILE_VECTORS];
    for (uint32_t h = 0; h < n; h++)
        for (uint32_t c = 0; c < n_vectors; c++)
            sum[h][c] = vf_load(part + h * a->part_width + c * ATT_LANES);
    for (uint32_t t = 0; t < run->n_tokens; t++) {
        const uint8_t *token = run->ptr + t * stride;
        vf v[TILE_VECTORS];
        for (uint32_t c = 0; c < n_vectors; c++)
            v[c] = n_whole ? kv_load(token, dtype, i + c * ATT_LANES)
                           : kv_load_n(token, dtype, i, a->v_dim - i);
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
                            uint32_t n, enum dtype dtype)
{
    uint32_t i = 0;
    for (; i + TILE_VECTORS * ATT_LANES <= a->v_dim; i += TILE_VECTORS * ATT_LANES)
        values_tile(a, run, i_head, n, i, TILE_VECTORS, dtype);
    if (TILE_VECTORS > 1 && i + ATT_LANES <= a->v_dim) {
        values_tile(a, run, i_head, n, i, 1, dtype);
        i += ATT_LANES;
    }
    if (i < a->v_dim)
        values_tile(a, run, i_head, n, i, 0, dtype);
}

INLINE void dtype_tile(const struct att *a, const struct att_run *run, uint32_t i_head, uint32_t n,
                       enum dtype dtype, bool values)
{
    if (values)
        values_tile_all(a, run, i_head, n, dtype);
    else
        scores_tile(a, run, i_head, n, dtype);
}

INLINE void run_tile(const struct att *a, const struct att_run *run, uint32_t i_head, uint32_t n,
                     bool values)
{
    switch (a->p->kv->dtype) {
    case DTYPE_F16:
        dtype_tile(a, run, i_head, n, DTYPE_F16, values);
        break;
    case DTYPE_BF16:
        dtype_tile(a, run, i_head, n, DTYPE_BF16, values);
        break;
    case DTYPE_F8_E4M3:
        dtype_tile(a, run, i_head, n, DTYPE_F8_E4M3, values);
        break;
    case DTYPE_I8:
        dtype_tile(a, run, i_head, n, DTYPE_I8, values);
        break;
    default:
        dtype_tile(a, run, i_head, n, DTYPE_F32, values);
    }
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
