/* Holds the inner loops of attention_impl.h. A vector of keys or values is loaded once for up to
 * TILE_HEADS query heads. The number of heads and the dtype are constants of each inlined tile,
 * so that the accumulators stay in registers. The chain of operations for an element is the same
 * in every tile. */
#include <string.h>

#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/isa_names.h"
#include "kernels/kv_layout.h"

#ifdef __AVX512F__
enum { TILE_VECTORS = 4 };
#else
enum { TILE_VECTORS = 1 }; /* one vector takes two or four registers; more vectors would spill */
#endif
enum { ATT_LANES = 16, TILE_HEADS = 4 };
#define INLINE static inline __attribute__((always_inline))

/* `att` describes one row and KV head, with its parts of the thread's scratch memory. `dim` is
 * the size of a key, and `width` is `dim` rounded up to a whole vector with zeros. `v_dim` is
 * the size of a value; values lie `dim` elements apart, like keys. */
struct att {
    const struct attention_params *p;
    const struct kv_row *row;
    uint32_t i_kv_head, n_heads, dim, width, v_dim;
    float *q, *scores; /* array shapes: q [n_heads][width], scores [n_heads][ATTENTION_SPLIT] */
    float *part;       /* shape [n_heads][part_width]: values, maximum and sum of the split */
    uint32_t part_width;
};

/* `att_ahead` spreads the prefetch of data that is needed later over the work on the current
 * data. A core can request only a few cache lines at once (16 on many CPUs), and one more
 * prefetch would stall. */
struct att_ahead {
    const uint8_t *at, *end;
    size_t step;
};
/* Returns how many bytes of n_bytes each of n_asks calls of run_ask() prefetches, in whole cache
 * lines. */
static inline size_t ahead_step(size_t n_bytes, uint32_t n_asks)
{
    return (n_bytes + n_asks * 64 - 1) / (n_asks * 64) * 64;
}
static inline struct att_ahead ahead_of(const uint8_t *at, size_t n_bytes, size_t step)
{
    return (struct att_ahead){at, at + n_bytes, step};
}
INLINE void run_ask(struct att_ahead *x)
{
    if (x->at >= x->end)
        return;
    const uint8_t *end = x->at + x->step;
    for (; x->at < end; x->at += 64)
        __builtin_prefetch(x->at);
}

/* A run holds tokens of one block, with keys or values at `ptr` and scores from column `i_score`
 * on. When the cache holds codes, `scales` has one scale for each token; the scales of a
 * latent's second part are block_tokens further. A tile covers up to ATT_RUNS runs, because a
 * run of 16 tokens alone is too short to be efficient. */
enum { ATT_RUNS = 4 };
struct att_run {
    const uint8_t *ptr;
    const float *scales;
    uint32_t n_tokens, i_score;
    struct att_ahead ahead;
};
struct att_runs {
    struct att_run *run;
    uint32_t n;
};

/* Loads a vector of elements; codes are not scaled. */
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

/* Loads the last n < 16 elements of a token, with zeros behind them. It never reads beyond the
 * token, because another token or unmapped memory may follow. */
INLINE vf kv_load_n(const uint8_t *p, enum dtype dtype, uint32_t i, uint32_t n)
{
    if (dtype == DTYPE_F32)
        return vf_load_n((const float *)(const void *)p + i, n);
    _Alignas(16) uint8_t padded[2 * ATT_LANES] = {0};
    memcpy(padded, p + (size_t)i * kv_elem_bytes(dtype), n * kv_elem_bytes(dtype));
    return kv_load(padded, dtype, 0);
}

/* `att_part` describes elements begin .. end of keys that lie token_bytes apart. */
struct att_part {
    const uint8_t *k;
    size_t token_bytes;
    uint32_t begin, end;
};

/* Computes sum[h * n_tokens + t] = q[h] * k[t] lane by lane, for whole vectors. */
INLINE void dot_tile(vf *sum, const float *q, size_t width, struct att_part part, uint32_t n,
                     uint32_t n_tokens, enum dtype dtype)
{
    for (uint32_t s = 0; s < n * n_tokens; s++)
        sum[s] = vf_zero();
    const size_t vector_bytes = ATT_LANES * kv_elem_bytes(dtype);
    const uint8_t *k = part.k + part.begin * kv_elem_bytes(dtype);
    const float *end = q + part.end;
    for (q += part.begin; q < end; q += ATT_LANES, k += vector_bytes) {
        vf query[TILE_HEADS];
        for (uint32_t h = 0; h < n; h++)
            query[h] = vf_load(q + h * width);
        for (uint32_t t = 0; t < n_tokens; t++) {
            const vf v = kv_load(k + t * part.token_bytes, dtype, 0);
            for (uint32_t h = 0; h < n; h++)
                sum[h * n_tokens + t] = vf_fma(query[h], v, sum[h * n_tokens + t]);
        }
    }
}

/* Computes one head times one key lane by lane, for any number of elements. */
INLINE vf dot_any(const float *q, const uint8_t *k, struct att_part part, enum dtype dtype)
{
    vf sum = vf_zero();
    uint32_t i = part.begin;
    for (; i + ATT_LANES <= part.end; i += ATT_LANES)
        sum = vf_fma(vf_load(q + i), kv_load(k, dtype, i), sum);
    if (i < part.end)
        sum = vf_fma(vf_load_n(q + i, part.end - i), kv_load_n(k, dtype, i, part.end - i), sum);
    return sum;
}

/* Returns the dot products of n heads from q on with n_tokens keys: lane h * n_tokens + t, with
 * n * n_tokens <= 16. The lanes of all sums are added up together; with heads of 64 elements,
 * these additions are much of the work. Keys are processed side by side when there are registers
 * for their sums. */
INLINE vf dots(const float *q, size_t width, struct att_part part, uint32_t n, uint32_t n_tokens,
               enum dtype dtype)
{
    vf sums[16];
    for (uint32_t i = n * n_tokens; i < 16; i++)
        sums[i] = vf_zero();
    if ((part.end - part.begin) % ATT_LANES != 0) {
        for (uint32_t h = 0; h < n; h++)
            for (uint32_t t = 0; t < n_tokens; t++)
                sums[h * n_tokens + t] =
                    dot_any(q + h * width, part.k + t * part.token_bytes, part, dtype);
        return vf_sum16(sums);
    }
#ifdef __AVX512F__
    vf sum[16];
    for (uint32_t i = n * n_tokens; i < 16; i++)
        sum[i] = vf_zero();
    dot_tile(sum, q, width, part, n, n_tokens, dtype);
    return vf_sum16(sum);
#else
    for (uint32_t t = 0; t < n_tokens; t++, part.k += part.token_bytes) {
        vf sum[TILE_HEADS];
        dot_tile(sum, q, width, part, n, 1, dtype);
        for (uint32_t h = 0; h < n; h++)
            sums[h * n_tokens + t] = sum[h];
    }
    return vf_sum16(sums);
#endif
}

/* Returns the scales of n_tokens tokens, repeated for n heads. */
INLINE vf scales_spread(const float *scales, uint32_t n, uint32_t n_tokens)
{
    float spread[16] = {0};
    for (uint32_t h = 0; h < n; h++)
        memcpy(spread + h * n_tokens, scales, n_tokens * sizeof *scales);
    return vf_load(spread);
}

/* Computes scores[h][t] = q[h] . k[t] for n heads and n_tokens tokens of the run from t on. When
 * the cache holds codes, the sum of each part is scaled. */
INLINE void scores_together(const struct att *a, const struct att_run *run, uint32_t i_head,
                            uint32_t n, uint32_t t, uint32_t n_tokens, enum dtype dtype)
{
    const size_t token_bytes = (size_t)a->dim * kv_elem_bytes(dtype);
    const float *q = a->q + (size_t)i_head * a->width;
    const uint8_t *k = run->ptr + t * token_bytes;
    const bool codes = kv_has_scales(dtype);
    const uint32_t split = codes ? kv_part_end(a->p->kv) : a->dim;
    vf sum = dots(q, a->width, (struct att_part){k, token_bytes, 0, split}, n, n_tokens, dtype);
    if (codes)
        sum = vf_mul(sum, scales_spread(run->scales + t, n, n_tokens));
    if (codes && split < a->dim) {
        const float *scales = run->scales + a->p->kv->block_tokens + t;
        const vf other =
            dots(q, a->width, (struct att_part){k, token_bytes, split, a->dim}, n, n_tokens, dtype);
        sum = vf_add(sum, vf_mul(other, scales_spread(scales, n, n_tokens)));
    }
    float out[16];
    vf_store(out, sum);
    for (uint32_t h = 0; h < n; h++)
        memcpy(a->scores + (size_t)(i_head + h) * ATTENTION_SPLIT + run->i_score + t,
               out + h * n_tokens, n_tokens * sizeof *out);
}

/* Returns the number of tokens whose products with n heads are added up together. */
INLINE uint32_t tokens_together(uint32_t n)
{
    return n == 3 ? 4 : 16 / n;
}
INLINE void scores_tile(const struct att *a, struct att_run *run, uint32_t i_head, uint32_t n,
                        enum dtype dtype)
{
    const uint32_t together = tokens_together(n);
    uint32_t t = 0;
    for (; t + together <= run->n_tokens; t += together) {
        run_ask(&run->ahead);
        scores_together(a, run, i_head, n, t, together, dtype);
    }
    for (; t < run->n_tokens; t++)
        scores_together(a, run, i_head, n, t, 1, dtype);
}

/* Adds part[h][i ..] += sum over t of scores[h][t] * v[t][i ..] for n heads and n_whole vectors.
 * If n_whole is 0, it adds the last elements of the head. */
INLINE void values_tile(const struct att *a, struct att_runs runs, uint32_t i_head, uint32_t n,
                        uint32_t i, uint32_t n_whole, enum dtype dtype)
{
    const uint32_t n_vectors = n_whole ? n_whole : 1;
    const size_t token_bytes = (size_t)a->dim * kv_elem_bytes(dtype), part_width = a->part_width;
    float *part = a->part + i_head * part_width + i;
    vf sum[TILE_HEADS][TILE_VECTORS];
    for (uint32_t h = 0; h < n; h++)
        for (uint32_t c = 0; c < n_vectors; c++)
            sum[h][c] = vf_load(part + h * part_width + c * ATT_LANES);
    for (struct att_run *run = runs.run, *end = run + runs.n; run < end; run++) {
        const float *scores = a->scores + (size_t)i_head * ATTENTION_SPLIT + run->i_score;
        const float *last = scores + run->n_tokens;
        const uint8_t *token = run->ptr + i * kv_elem_bytes(dtype);
        struct att_ahead ahead = run->ahead;
        for (; scores < last; scores++, token += token_bytes) {
            vf v[TILE_VECTORS];
            run_ask(&ahead);
            for (uint32_t c = 0; c < n_vectors; c++)
                v[c] = n_whole ? kv_load(token, dtype, c * ATT_LANES)
                               : kv_load_n(token, dtype, 0, a->v_dim - i);
            for (uint32_t h = 0; h < n; h++) {
                vf w = vf_set1(scores[h * ATTENTION_SPLIT]);
                for (uint32_t c = 0; c < n_vectors; c++)
                    sum[h][c] = vf_fma(w, v[c], sum[h][c]);
            }
        }
        run->ahead = ahead;
    }
    for (uint32_t h = 0; h < n; h++)
        for (uint32_t c = 0; c < n_vectors; c++)
            vf_store(part + h * part_width + c * ATT_LANES, sum[h][c]);
}

INLINE void values_tile_all(const struct att *a, struct att_runs runs, uint32_t i_head, uint32_t n,
                            enum dtype dtype)
{
    uint32_t i = 0;
    for (; i + TILE_VECTORS * ATT_LANES <= a->v_dim; i += TILE_VECTORS * ATT_LANES)
        values_tile(a, runs, i_head, n, i, TILE_VECTORS, dtype);
    for (; TILE_VECTORS > 1 && i + ATT_LANES <= a->v_dim; i += ATT_LANES)
        values_tile(a, runs, i_head, n, i, 1, dtype);
    if (i < a->v_dim)
        values_tile(a, runs, i_head, n, i, 0, dtype);
}

INLINE void dtype_tile(const struct att *a, struct att_runs runs, uint32_t i_head, uint32_t n,
                       enum dtype dtype, bool values)
{
    if (values)
        values_tile_all(a, runs, i_head, n, dtype);
    else
        for (uint32_t r = 0; r < runs.n; r++)
            scores_tile(a, &runs.run[r], i_head, n, dtype);
}

INLINE void runs_tile(const struct att *a, struct att_runs runs, uint32_t i_head, uint32_t n,
                      bool values)
{
    switch (a->p->kv->dtype) {
    case DTYPE_F16:
        dtype_tile(a, runs, i_head, n, DTYPE_F16, values);
        break;
    case DTYPE_BF16:
        dtype_tile(a, runs, i_head, n, DTYPE_BF16, values);
        break;
    case DTYPE_F8_E4M3:
        dtype_tile(a, runs, i_head, n, DTYPE_F8_E4M3, values);
        break;
    case DTYPE_I8:
        dtype_tile(a, runs, i_head, n, DTYPE_I8, values);
        break;
    default:
        dtype_tile(a, runs, i_head, n, DTYPE_F32, values);
    }
}

static void runs_heads(const struct att *a, struct att_runs runs, bool values)
{
    uint32_t h = 0;
    for (; h + TILE_HEADS <= a->n_heads; h += TILE_HEADS)
        runs_tile(a, runs, h, TILE_HEADS, values);
    uint32_t n = a->n_heads - h;
    if (n == 3)
        runs_tile(a, runs, h, 3, values);
    else if (n == 2)
        runs_tile(a, runs, h, 2, values);
    else if (n == 1)
        runs_tile(a, runs, h, 1, values);
}
