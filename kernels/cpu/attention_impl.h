/* Attention of one row over one KV head, written once over vec.h; see row.h for how an ISA file
 * includes this. For each split of ATTENTION_SPLIT positions, in order: the scores of all query
 * heads that share the KV head, their maximum, exp and sum, and the weighted values from zero; then
 * the split is merged into the running result (online softmax: Milakov & Gimelshein 2018; splits:
 * Flash-Decoding, Dao et al. 2023). What a split gives depends on its positions alone. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/attention_tiles_impl.h"
#include "kernels/cpu/math_impl.h"

/* Positions begin .. end of a split, block by block. */
static void split_runs(const struct att *a, uint32_t begin, uint32_t end, bool values)
{
    const struct kv_cache *kv = a->p->kv;
    const size_t token_bytes = (size_t)a->dim * (kv->dtype == DTYPE_F16 ? 2 : 4);
    const uint8_t *base = values ? kv->v : kv->k;
    for (uint32_t pos = begin, n; pos < end; pos += n) {
        uint32_t at = pos % kv->block_tokens;
        n = kv->block_tokens - at < end - pos ? kv->block_tokens - at : end - pos;
        size_t block = a->row->blocks[pos / kv->block_tokens - a->row->n_dropped];
        size_t token = (block * kv->n_kv_heads + a->i_kv_head) * kv->block_tokens + at;
        run_heads(a, &(struct att_run){base + token * token_bytes, n, pos - begin}, values);
    }
}

/* n scores of a head, scaled and capped, become exp(score - their maximum), zeros up to a whole
 * vector. */
static void split_softmax(const struct att *a, float *scores, uint32_t n, float *max, float *sum)
{
    const vf scale = vf_set1(a->p->scale);
    const float cap = a->p->softcap;
    for (uint32_t i = n; i % ATT_LANES != 0; i++)
        scores[i] = 0;
    vf m = vf_set1(-INFINITY);
    for (uint32_t i = 0; i < n; i += ATT_LANES) {
        vf s = vf_mul(vf_load(scores + i), scale);
        if (cap > 0)
            s = math_softcap(s, cap);
        vf_store(scores + i, s);
        for (uint32_t l = n; l < i + ATT_LANES; l++)
            scores[l] = -INFINITY;
        m = vf_max(vf_load(scores + i), m); /* a NaN is passed over */
    }
    *max = vf_hmax(m);
    const vf minus_max = vf_set1(-*max);
    vf total = vf_zero();
    for (uint32_t i = 0; i < n; i += ATT_LANES) {
        vf e = math_exp(vf_add(vf_load(scores + i), minus_max));
        vf_store(scores + i, e);
        total = vf_add(total, e);
    }
    *sum = vf_sum(total);
}

static float exp_one(float x)
{
    float lanes[ATT_LANES];
    vf_store(lanes, math_exp(vf_set1(x)));
    return lanes[0];
}

static void merge(const struct att *a, uint32_t h)
{
    const float max = a->split_max[h], sum = a->split_sum[h];
    float *acc = a->acc + (size_t)h * a->width, *part = a->part + (size_t)h * a->width;
    float both = max > a->max[h] ? max : a->max[h];
    float old = exp_one(a->max[h] - both), fresh = exp_one(max - both);
    a->sum[h] = a->sum[h] * old + sum * fresh;
    a->max[h] = both;
    const vf v_old = vf_set1(old), v_fresh = vf_set1(fresh);
    for (uint32_t i = 0; i < a->width; i += ATT_LANES) {
        vf s = vf_mul(vf_load(acc + i), v_old);
        vf_store(acc + i, vf_add(s, vf_mul(vf_load(part + i), v_fresh)));
        vf_store(part + i, vf_zero());
    }
}

static struct att att_init(const struct attention_params *p, uint32_t i_row, uint32_t i_kv_head,
                           float *scratch)
{
    uint32_t n = p->n_heads / p->kv->n_kv_heads, dim = p->kv->head_dim;
    struct att a = {.p = p,
                    .row = &p->rows[i_row],
                    .i_kv_head = i_kv_head,
                    .n_heads = n,
                    .dim = dim,
                    .width = (dim + ATT_LANES - 1) & ~(ATT_LANES - 1u),
                    .scores = scratch};
    size_t n_floats = (size_t)n * a.width;
    a.q = a.scores + (size_t)n * ATTENTION_SPLIT;
    a.part = a.q + n_floats;
    a.acc = a.part + n_floats;
    a.max = a.acc + n_floats;
    a.sum = a.max + n;
    a.split_max = a.sum + n;
    a.split_sum = a.split_max + n;
    const float *q =
        (const float *)p->q.data + (size_t)i_row * p->q.stride + (size_t)i_kv_head * n * dim;
    memset(a.q, 0, 3 * n_floats * sizeof(float));
    for (uint32_t h = 0; h < n; h++) {
        memcpy(a.q + (size_t)h * a.width, q + (size_t)h * dim, dim * sizeof(float));
        a.max[h] = -INFINITY;
        a.sum[h] = 0;
    }
    return a;
}

void ISA_FN(attention)(const struct attention_params *p, uint32_t i_row, uint32_t i_kv_head,
                       float *scratch)
{
    const struct att a = att_init(p, i_row, i_kv_head, scratch);
    uint32_t end = a.row->position + 1;
    uint32_t first = p->window && end > p->window ? end - p->window : 0;
    for (uint32_t begin = first, stop; begin < end; begin = stop) {
        stop = (begin / ATTENTION_SPLIT + 1) * ATTENTION_SPLIT;
        stop = stop < end ? stop : end;
        split_runs(&a, begin, stop, false);
        for (uint32_t h = 0; h < a.n_heads; h++)
            split_softmax(&a, a.scores + (size_t)h * ATTENTION_SPLIT, stop - begin, &a.split_max[h],
                          &a.split_sum[h]);
        split_runs(&a, begin, stop, true);
        for (uint32_t h = 0; h < a.n_heads; h++)
            merge(&a, h);
    }
    float *out = (float *)p->out.data + (size_t)i_row * p->out.stride +
                 (size_t)i_kv_head * a.n_heads * a.dim;
    for (uint32_t h = 0; h < a.n_heads; h++)
        for (uint32_t i = 0; i < a.dim; i++)
            out[(size_t)h * a.dim + i] = a.acc[(size_t)h * a.width + i] / a.sum[h];
}

void ISA_FN(kv_store)(void *to, enum dtype dtype, const float *from, uint32_t dim)
{
    if (dtype == DTYPE_F32) {
        memcpy(to, from, dim * sizeof(float));
        return;
    }
    uint16_t *out = to;
    uint32_t i = 0;
    for (; i + ATT_LANES <= dim; i += ATT_LANES)
        vf_store_f16(out + i, vf_load(from + i));
    if (i < dim) {
        uint16_t padded[ATT_LANES];
        vf_store_f16(padded, vf_load_n(from + i, dim - i));
        memcpy(out + i, padded, (dim - i) * sizeof *padded);
    }
}
