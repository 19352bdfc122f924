/* Computes attention of one row over one KV head, written once with the operations of vec.h.
 * row.h explains how an ISA file includes this header. The splits of ATTENTION_SPLIT positions
 * are computed in order. Each split takes three steps. The first computes the scores of all
 * query heads that share the KV head. The second computes their maximum, exp and sum. The third
 * computes the weighted sum of the values, starting from zero. The split is then merged into the
 * running result (online softmax: Milakov & Gimelshein 2018; splits: Flash-Decoding, Dao et al.
 * 2023). The result of a split depends on its positions alone. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/attention/tiles_impl.h"
#include "kernels/cpu/vec/math_impl.h"

/* Computes weight * (scale * code) as (weight * scale) * code. That order takes one product for
 * each token instead of one for each element. */
static void scale_weights(const struct att *a, const struct att_run *run)
{
    for (uint32_t h = 0; h < a->n_heads; h++) {
        float *w = a->scores + (size_t)h * ATTENTION_SPLIT + run->i_score;
        for (uint32_t t = 0; t < run->n_tokens; t++)
            w[t] *= run->scales[t];
    }
}

/* `att_walk` is a cursor over the keys or values of successive positions. */
struct att_walk {
    const uint8_t *head; /* this KV head's data in block 0 */
    const uint32_t *blocks;
    uint32_t i_block, at; /* number of the block in the block table; token within that block */
};
static struct att_walk walk_from(const struct att *a, uint32_t pos, bool values)
{
    const struct kv_cache *kv = a->p->kv;
    const size_t head_bytes = (size_t)kv->block_tokens * a->dim * kv_elem_bytes(kv->dtype);
    const uint8_t *first = (const uint8_t *)(values ? kv->v : kv->k);
    return (struct att_walk){first + a->i_kv_head * head_bytes, a->row->blocks,
                             pos / kv->block_tokens - a->row->n_dropped, pos % kv->block_tokens};
}
INLINE const uint8_t *walk_at(const struct att_walk *w, const struct kv_cache *kv,
                              size_t token_bytes)
{
    return w->head + w->blocks[w->i_block] * kv->block_stride + w->at * token_bytes;
}
/* Moves the cursor forward by n tokens; n is at most the tokens of a block. */
INLINE void walk_on(struct att_walk *w, const struct kv_cache *kv, uint32_t n)
{
    w->at += n;
    if (w->at >= kv->block_tokens) {
        w->at -= kv->block_tokens;
        w->i_block++;
    }
}

/* Returns the number of prefetch calls, at least 1, while a run of n tokens is processed. */
static uint32_t run_asks(const struct att *a, uint32_t n, bool values)
{
    const uint32_t n_tiles = a->n_heads / TILE_HEADS, rest = a->n_heads % TILE_HEADS;
    uint32_t n_asks;
    if (values)
        n_asks = (n_tiles + (rest > 0)) * n * ((a->v_dim - 1) / (TILE_VECTORS * ATT_LANES) + 1);
    else
        n_asks =
            n_tiles * (n / tokens_together(TILE_HEADS)) + (rest ? n / tokens_together(rest) : 0);
    return n_asks > 0 ? n_asks : 1;
}

/* Processes positions begin .. end of a split, block by block. `next` is the first position of
 * the thread's next split. The work on keys prefetches the values of the same tokens. The work
 * on values prefetches as many keys of the next split, if the row sees those keys. */
static void split_runs(const struct att *a, uint32_t begin, uint32_t end, bool values,
                       uint32_t next)
{
    const struct kv_cache *kv = a->p->kv;
    const size_t token_bytes = (size_t)a->dim * kv_elem_bytes(kv->dtype);
    const bool asks = values ? next <= a->row->position : !kv_is_latent(kv);
    struct att_walk walk = walk_from(a, begin, values), ahead = walk;
    struct att_run runs[ATT_RUNS];
    uint32_t n_runs = 0, n_before = 0;
    size_t step = 0;
    if (asks)
        ahead = walk_from(a, values ? next : begin, !values);
    for (uint32_t pos = begin, n; pos < end; pos += n) {
        uint32_t ahead_pos = values ? next + (pos - begin) : pos;
        n = kv->block_tokens - walk.at < end - pos ? kv->block_tokens - walk.at : end - pos;
        struct att_run run = {
            .ptr = walk_at(&walk, kv, token_bytes), .n_tokens = n, .i_score = pos - begin};
        if (n != n_before)
            step = ahead_step(n * token_bytes, run_asks(a, n, values));
        n_before = n;
        if (asks && ahead_pos <= a->row->position)
            run.ahead = ahead_of(walk_at(&ahead, kv, token_bytes), n * token_bytes, step);
        if (kv->k_scales)
            run.scales = kv_scales(kv, values, walk.blocks[walk.i_block], a->i_kv_head) + walk.at;
        if (values && run.scales)
            scale_weights(a, &run);
        walk_on(&walk, kv, n);
        walk_on(&ahead, kv, n);
        runs[n_runs++] = run;
        if (n_runs == ATT_RUNS || pos + n == end) {
            runs_heads(a, (struct att_runs){runs, n_runs}, values);
            n_runs = 0;
        }
    }
}

/* Scales and caps n scores of a head and replaces them by exp(score - maximum), with zeros up to
 * a whole vector. */
static void split_softmax(const struct attention_params *p, float *scores, uint32_t n, float *max,
                          float *sum)
{
    const vf scale = vf_set1(p->scale);
    const float cap = p->softcap;
    for (uint32_t i = n; i % ATT_LANES != 0; i++)
        scores[i] = 0;
    vf m = vf_set1(-INFINITY);
    for (uint32_t i = 0; i < n; i += ATT_LANES) {
        vf s = vf_mul(vf_load(scores + i), scale);
        if (cap > 0)
            s = math_softcap(s, cap);
        vf_store(scores + i, s);
        if (i + ATT_LANES > n) {
            for (uint32_t l = n; l < i + ATT_LANES; l++)
                scores[l] = -INFINITY;
            s = vf_load(scores + i);
        }
        m = vf_max(s, m); /* the maximum ignores a NaN */
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

/* Merges `part` into `acc`. Each holds one head's result: `width` values, then the maximum and
 * the sum. */
static void merge(float *acc, const float *part, uint32_t width)
{
    float *acc_max = acc + width, *acc_sum = acc_max + 1;
    float max = part[width], sum = part[width + 1], both = max > *acc_max ? max : *acc_max;
    float old = exp_one(*acc_max - both), fresh = exp_one(max - both);
    *acc_sum = *acc_sum * old + sum * fresh;
    *acc_max = both;
    const vf v_old = vf_set1(old), v_fresh = vf_set1(fresh);
    for (uint32_t i = 0; i < width; i += ATT_LANES) {
        vf s = vf_mul(vf_load(acc + i), v_old);
        vf_store(acc + i, vf_add(s, vf_mul(vf_load(part + i), v_fresh)));
    }
}

static struct att att_init(const struct attention_params *p, uint32_t i_row, uint32_t i_kv_head,
                           float *scratch)
{
    const struct attention_heads heads = attention_heads_of(p, i_kv_head);
    uint32_t n = heads.end - heads.begin, dim = p->kv->head_dim;
    struct att a = {.p = p,
                    .row = &p->rows[i_row],
                    .i_kv_head = i_kv_head,
                    .n_heads = n,
                    .dim = dim,
                    .width = attention_width(dim),
                    .v_dim = p->kv->v_dim,
                    .scores = scratch};
    a.part_width = attention_width(a.v_dim) + ATTENTION_PART_EXTRA;
    a.q = a.scores + (size_t)n * ATTENTION_SPLIT;
    a.part = a.q + (size_t)n * a.width;
    const float *q =
        (const float *)p->q.data + (size_t)i_row * p->q.stride + (size_t)heads.begin * dim;
    memset(a.q, 0, (size_t)n * a.width * sizeof(float));
    for (uint32_t h = 0; h < n; h++)
        memcpy(a.q + (size_t)h * a.width, q + (size_t)h * dim, dim * sizeof(float));
    return a;
}

/* Computes split i_split into a->part. The row sees at least one position of this split. */
static void split(const struct att *a, uint32_t i_split, uint32_t i_next)
{
    uint32_t begin = i_split * ATTENTION_SPLIT, end = begin + ATTENTION_SPLIT;
    uint32_t first = attention_first(a->p, a->row->position), next = i_next * ATTENTION_SPLIT;
    begin = begin > first ? begin : first;
    end = end < a->row->position + 1 ? end : a->row->position + 1;
    memset(a->part, 0, (size_t)a->n_heads * a->part_width * sizeof(float));
    split_runs(a, begin, end, false, next);
    for (uint32_t h = 0; h < a->n_heads; h++) {
        float *max = a->part + (size_t)(h + 1) * a->part_width - ATTENTION_PART_EXTRA;
        split_softmax(a->p, a->scores + (size_t)h * ATTENTION_SPLIT, end - begin, max, max + 1);
    }
    split_runs(a, begin, end, true, next);
}

void ISA_FN(attention_split)(const struct attention_params *p, uint32_t i_row, uint32_t i_kv_head,
                             uint32_t i_split, uint32_t i_next, float *scratch, float *part)
{
    struct att a = att_init(p, i_row, i_kv_head, scratch);
    a.part = part;
    split(&a, i_split, i_next);
}

void ISA_FN(attention_merge)(const struct attention_params *p, uint32_t i_head, bool first,
                             float *acc, const float *part)
{
    uint32_t width = attention_width(p->kv->v_dim);
    acc += (size_t)i_head * (width + ATTENTION_PART_EXTRA);
    if (first) {
        memset(acc, 0, (width + ATTENTION_PART_EXTRA) * sizeof(float));
        acc[width] = -INFINITY;
    }
    merge(acc, part + (size_t)i_head * (width + ATTENTION_PART_EXTRA), width);
}

/* Writes the output of one head; `acc` holds its merged values, maximum and sum. */
static void finish(const struct attention_params *p, uint32_t i_row, uint32_t head,
                   const float *acc, float max, float sum)
{
    uint32_t dim = p->kv->v_dim;
    float *out = (float *)p->out.data + (size_t)i_row * p->out.stride + (size_t)head * dim;
    float old = 1.0f;
    if (p->sinks) {
        float sink = p->sinks[head], both = sink > max ? sink : max;
        old = exp_one(max - both);
        sum = sum * old + exp_one(sink - both);
    }
    for (uint32_t i = 0; i < dim; i++)
        out[i] = acc[i] * old / sum;
}

void ISA_FN(attention_finish)(const struct attention_params *p, uint32_t i_row, uint32_t i_kv_head,
                              uint32_t i_head, const float *acc)
{
    uint32_t width = attention_width(p->kv->v_dim);
    acc += (size_t)i_head * (width + ATTENTION_PART_EXTRA);
    finish(p, i_row, attention_heads_of(p, i_kv_head).begin + i_head, acc, acc[width],
           acc[width + 1]);
}

void ISA_FN(attention)(const struct attention_params *p, uint32_t i_row, uint32_t i_kv_head,
                       float *scratch)
{
    const struct att a = att_init(p, i_row, i_kv_head, scratch);
    float *acc = a.part + (size_t)a.n_heads * a.part_width;
    uint32_t begin = attention_first(p, a.row->position) / ATTENTION_SPLIT;
    for (uint32_t i = begin; i <= a.row->position / ATTENTION_SPLIT; i++) {
        split(&a, i, i + 1);
        for (uint32_t h = 0; h < a.n_heads; h++)
            ISA_FN(attention_merge)(p, h, i == begin, acc, a.part);
    }
    for (uint32_t h = 0; h < a.n_heads; h++)
        ISA_FN(attention_finish)(p, i_row, i_kv_head, h, acc);
}

#include "kernels/cpu/attention/rows_impl.h"
