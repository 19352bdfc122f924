/* Computes attention of successive rows of one sequence over one KV head. The result has the
 * same bits as that of attention_impl.h for each row. The loop over the rows is inside the loop
 * over the splits: the keys and values of a split are read and converted to floats once for all
 * rows. A query is a (row, head) pair, ordered by row; four neighbouring queries are a tile. The
 * scores use transposed keys: a lane is a token, and one element of a query is broadcast to all
 * lanes. The 16 lanes of a dot product in attention_impl.h are 16 chains of FMAs here. These
 * chains are computed one by one and added up in the tree of vf_sum(). */
#include "kernels/cpu/vec/transpose_impl.h"

#ifdef __AVX512F__
enum { KEY_VECTORS = 2, VALUE_VECTORS = 4 };
#else
/* numbers of vectors in a tile; larger numbers would spill registers */
enum { KEY_VECTORS = 1, VALUE_VECTORS = 1 };
#endif
enum {
    KEY_TOKENS = KEY_VECTORS * ATT_LANES,
    QUERIES = 4,
    QUERY_KEYS = QUERIES * KEY_VECTORS,
    MAX_PARTS = 2
};
_Static_assert((uint32_t)KEY_TOKENS <= ATTENTION_ROWS_KEYS, "attention_rows_floats()");

/* `key_part` describes elements begin .. end of a key, whose products are summed separately.
 * Codes with two scales have two parts; all other keys have one part. `vector` is the number of
 * the part's first vector in a query. */
struct key_part {
    uint32_t begin, end, vector, n_vectors;
};

struct att_rows {
    const struct attention_params *p;
    const struct kv_row *rows;
    uint32_t i_kv_head, n_rows, n_heads, n_parts, k_width, v_width;
    struct key_part parts[MAX_PARTS];
    /* Each query has q [k_width], scores [ATTENTION_ROWS_SCORES], part and acc [v_width]. */
    float *q, *scores, *part, *acc;
    float *max, *sum, *acc_max, *acc_sum; /* array shape of all four: [query] */
    float *tokens;                        /* transposed keys, or values, as floats */
    uint32_t row_begin, row_end;          /* rows that see a position of the split */
    /* positions of the split that each row sees */
    uint32_t first[ATTENTION_ROWS], end[ATTENTION_ROWS];
    uint32_t *first_of, *end_of; /* shape [query]: `first` and `end` of the query's row */
};

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}
static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static struct att_rows rows_init(const struct attention_params *p, uint32_t i_row, uint32_t n_rows,
                                 uint32_t i_kv_head, float *scratch)
{
    const struct kv_cache *kv = p->kv;
    const struct attention_heads heads = attention_heads_of(p, i_kv_head);
    struct att_rows a = {.p = p,
                         .rows = &p->rows[i_row],
                         .i_kv_head = i_kv_head,
                         .n_rows = n_rows,
                         .n_heads = heads.end - heads.begin,
                         .v_width = attention_width(kv->v_dim)};
    uint32_t split = kv_has_scales(kv->dtype) ? kv_part_end(kv) : kv->head_dim;
    for (uint32_t begin = 0, end = split; begin < kv->head_dim; begin = end, end = kv->head_dim) {
        a.parts[a.n_parts++] = (struct key_part){begin, end, a.k_width / ATT_LANES,
                                                 attention_width(end - begin) / ATT_LANES};
        a.k_width += attention_width(end - begin);
    }
    size_t n = ((size_t)n_rows * a.n_heads + ATT_LANES - 1) / ATT_LANES * ATT_LANES;
    a.q = scratch;
    a.scores = a.q + n * a.k_width;
    a.part = a.scores + n * ATTENTION_ROWS_SCORES;
    a.acc = a.part + n * a.v_width;
    a.max = a.acc + n * a.v_width;
    a.sum = a.max + n;
    a.acc_max = a.sum + n;
    a.acc_sum = a.acc_max + n;
    a.first_of = (uint32_t *)(void *)(a.acc_sum + n);
    a.end_of = a.first_of + n;
    a.tokens = a.acc_sum + 3 * n;
    memset(a.q, 0, n * a.k_width * sizeof(float));
    memset(a.acc, 0, n * a.v_width * sizeof(float));
    for (size_t i = 0; i < n; i++) {
        a.acc_max[i] = -INFINITY;
        a.acc_sum[i] = 0;
    }
    for (uint32_t i = 0; i < n_rows * a.n_heads; i++)
        for (uint32_t k = 0; k < a.n_parts; k++) {
            const struct key_part *part = &a.parts[k];
            const float *q = (const float *)p->q.data +
                             (size_t)(i_row + i / a.n_heads) * p->q.stride +
                             (size_t)(heads.begin + i % a.n_heads) * kv->head_dim;
            memcpy(a.q + i * (size_t)a.k_width + (size_t)part->vector * ATT_LANES, q + part->begin,
                   (part->end - part->begin) * sizeof(float));
        }
    return a;
}

/* `token_places` holds the addresses of n tokens from pos on, and their scales. The scales of a
 * latent's second part begin at ATTENTION_ROWS_TOKENS. */
struct token_places {
    const uint8_t *ptr[ATTENTION_ROWS_TOKENS];
    float scales[MAX_PARTS * ATTENTION_ROWS_TOKENS];
};
static void tokens_find(const struct att_rows *a, uint32_t pos, uint32_t n, bool values,
                        struct token_places *out)
{
    const struct kv_cache *kv = a->p->kv;
    const size_t token_bytes = (size_t)kv->head_dim * kv_elem_bytes(kv->dtype);
    for (uint32_t i = 0; i < n;) {
        uint32_t at = (pos + i) % kv->block_tokens, left = kv->block_tokens - at;
        size_t block = a->rows->blocks[(pos + i) / kv->block_tokens - a->rows->n_dropped];
        const uint8_t *first = (const uint8_t *)(values ? kv->v : kv->k) +
                               block * kv->block_stride +
                               ((size_t)a->i_kv_head * kv->block_tokens + at) * token_bytes;
        const float *scales = kv->k_scales ? kv_scales(kv, values, block, a->i_kv_head) + at : NULL;
        for (uint32_t k = 0; k < left && i < n; k++, i++) {
            out->ptr[i] = first + k * token_bytes;
            for (uint32_t part = 0; scales && part < (values ? 1 : a->n_parts); part++)
                out->scales[part * ATTENTION_ROWS_TOKENS + i] = scales[part * kv->block_tokens + k];
        }
    }
}

/* Returns i with its four bits reversed. The tree of vf_sum() adds the chains in this order: 0 8
 * 4 12 2 ... 15. */
INLINE uint32_t chain_lane(uint32_t i)
{
    return (i & 1) << 3 | (i & 2) << 1 | (i & 4) >> 1 | (i & 8) >> 3;
}

/* Transposes keys into `to`: for each part, each chain and each vector of the part, one element
 * of KEY_TOKENS tokens. If n is smaller, the last token fills the rest. */
INLINE void keys_transpose(float *to, const struct att_rows *a, const struct token_places *from,
                           uint32_t n, enum dtype dtype)
{
    for (uint32_t first = 0; first < KEY_TOKENS; first += ATT_LANES)
        for (uint32_t k = 0; k < a->n_parts; k++) {
            const struct key_part part = a->parts[k];
            float *part_to = to + (size_t)part.vector * ATT_LANES * KEY_TOKENS + first;
            for (uint32_t j = 0; j < part.n_vectors; j++) {
                uint32_t i = part.begin + j * ATT_LANES;
                vf v[ATT_LANES];
                for (uint32_t t = 0; t < ATT_LANES; t++) {
                    const uint8_t *ptr = from->ptr[first + t < n ? first + t : n - 1];
                    v[t] = i + ATT_LANES <= part.end ? kv_load(ptr, dtype, i)
                                                     : kv_load_n(ptr, dtype, i, part.end - i);
                }
                vf_transpose16(v);
                for (uint32_t c = 0; c < ATT_LANES; c++)
                    vf_store(part_to + (size_t)(c * part.n_vectors + j) * KEY_TOKENS,
                             v[chain_lane(c)]);
            }
        }
}

INLINE void values_floats(float *to, const struct att_rows *a, const struct token_places *from,
                          uint32_t n, enum dtype dtype)
{
    const uint32_t dim = a->p->kv->v_dim;
    for (uint32_t t = 0; t < n; t++, to += a->v_width) {
        uint32_t i = 0;
        for (; i + ATT_LANES <= dim; i += ATT_LANES)
            vf_store(to + i, kv_load(from->ptr[t], dtype, i));
        if (i < dim)
            vf_store(to + i, kv_load_n(from->ptr[t], dtype, i, dim - i));
    }
}

INLINE void tokens_dtype(const struct att_rows *a, const struct token_places *from, uint32_t n,
                         bool values, enum dtype dtype)
{
    if (values)
        values_floats(a->tokens, a, from, n, dtype);
    else
        keys_transpose(a->tokens, a, from, n, dtype);
}

/* Converts n tokens from pos on to floats in a->tokens. */
static void tokens_load(const struct att_rows *a, uint32_t pos, uint32_t n, bool values,
                        struct token_places *places)
{
    tokens_find(a, pos, n, values, places);
    switch (a->p->kv->dtype) {
    case DTYPE_F16:
        tokens_dtype(a, places, n, values, DTYPE_F16);
        break;
    case DTYPE_BF16:
        tokens_dtype(a, places, n, values, DTYPE_BF16);
        break;
    case DTYPE_F8_E4M3:
        tokens_dtype(a, places, n, values, DTYPE_F8_E4M3);
        break;
    case DTYPE_I8:
        tokens_dtype(a, places, n, values, DTYPE_I8);
        break;
    default:
        tokens_dtype(a, places, n, values, DTYPE_F32);
    }
}

/* `ahead` spreads the prefetch of the data that is needed next over the work on the current
 * data. A core can request only a few cache lines at once (16 on many CPUs), and one more
 * prefetch would stall. */
struct ahead {
    const uint8_t *ptr[ATTENTION_ROWS_TOKENS];
    uint32_t n, at, step;
    size_t token_bytes;
};
/* Prepares the prefetch of n tokens from pos on in n_steps calls of ahead_ask(). */
static void ahead_find(const struct att_rows *a, uint32_t pos, uint32_t n, bool values,
                       uint32_t n_steps, struct ahead *out)
{
    struct token_places places;
    tokens_find(a, pos, n, values, &places);
    memcpy(out->ptr, places.ptr, n * sizeof *places.ptr);
    out->n = n;
    out->at = 0;
    out->step = (n + n_steps - 1) / n_steps;
    out->token_bytes = (size_t)a->p->kv->head_dim * kv_elem_bytes(a->p->kv->dtype);
}
INLINE void ahead_ask(struct ahead *x)
{
    for (uint32_t i = 0; x->at < x->n && i < x->step; i++, x->at++)
        for (size_t b = 0; b < x->token_bytes; b += 64)
            __builtin_prefetch(x->ptr[x->at] + b, 0, 2);
}

/* `key_tile` describes four queries from `q` on, `width` floats apart, and KEY_TOKENS transposed
 * keys with n vectors of 16 elements each. */
struct key_tile {
    const float *q, *keys;
    uint32_t width, n;
    struct ahead *ahead;
};
/* prefetch calls of a tile: the first part of the tile calls chains_2() 8 times */
enum { TILE_ASKS = 8 };
/* Adds the product of one element: sum[query * KEY_VECTORS + v] belongs to one chain. The
 * functions below this one add up 2, 4, 8 and 16 chains. */
INLINE void chain_step(vf *sum, const float *q, uint32_t width, const float *k, bool first)
{
    vf key[KEY_VECTORS];
    for (uint32_t v = 0; v < KEY_VECTORS; v++)
        key[v] = vf_load(k + v * ATT_LANES);
    for (uint32_t h = 0; h < QUERIES; h++) {
        const vf one = vf_set1(q[(size_t)h * width]);
        for (uint32_t v = 0; v < KEY_VECTORS; v++) {
            vf *s = &sum[h * KEY_VECTORS + v];
            *s = vf_fma(one, key[v], first ? vf_zero() : *s);
        }
    }
}
INLINE void chains_add(vf *sum, const vf *other)
{
    for (uint32_t s = 0; s < QUERY_KEYS; s++)
        sum[s] = vf_add(sum[s], other[s]);
}
/* Computes two chains and adds their sums. With enough registers the two chains run side by
 * side, because eight sums do not keep two FMA units busy. */
INLINE void chains_2(vf *sum, const struct key_tile *t, uint32_t i)
{
    const float *q = t->q + chain_lane(2 * i);
    const float *k0 = t->keys + (size_t)(2 * i) * t->n * KEY_TOKENS, *k1 = k0 + t->n * KEY_TOKENS;
    vf other[QUERY_KEYS];
    ahead_ask(t->ahead);
    chain_step(sum, q, t->width, k0, true);
    if (KEY_VECTORS > 1)
        chain_step(other, q + 8, t->width, k1, true);
    for (uint32_t j = 1; j < t->n; j++) {
        chain_step(sum, q + j * ATT_LANES, t->width, k0 + j * KEY_TOKENS, false);
        if (KEY_VECTORS > 1)
            chain_step(other, q + j * ATT_LANES + 8, t->width, k1 + j * KEY_TOKENS, false);
    }
    if (KEY_VECTORS == 1) {
        chain_step(other, q + 8, t->width, k1, true);
        for (uint32_t j = 1; j < t->n; j++)
            chain_step(other, q + j * ATT_LANES + 8, t->width, k1 + j * KEY_TOKENS, false);
    }
    chains_add(sum, other);
}
INLINE void chains_4(vf *sum, const struct key_tile *t, uint32_t i)
{
    vf other[QUERY_KEYS];
    chains_2(sum, t, 2 * i);
    chains_2(other, t, 2 * i + 1);
    chains_add(sum, other);
}
INLINE void chains_8(vf *sum, const struct key_tile *t, uint32_t i)
{
    vf other[QUERY_KEYS];
    chains_4(sum, t, 2 * i);
    chains_4(other, t, 2 * i + 1);
    chains_add(sum, other);
}
INLINE void chains_16(vf *sum, const struct key_tile *t)
{
    vf other[QUERY_KEYS];
    chains_8(sum, t, 0);
    chains_8(other, t, 1);
    chains_add(sum, other);
}

static float *scores_of(const struct att_rows *a, uint32_t i_query, uint32_t pos)
{
    uint32_t i = ATTENTION_ROWS + pos - a->first_of[i_query];
    return a->scores + (size_t)i_query * ATTENTION_ROWS_SCORES + i;
}

/* Computes the scores of four queries with the loaded keys, from pos on. Scores of positions
 * that a query does not see are stored in unused places: before the query's first score or
 * behind its last score. */
static void scores_four(const struct att_rows *a, uint32_t i_query, uint32_t end, uint32_t pos,
                        const float *scales, struct ahead *ahead)
{
    vf sum[QUERY_KEYS], other[QUERY_KEYS];
    const float *q = a->q + (size_t)i_query * a->k_width;
    for (uint32_t k = 0; k < a->n_parts; k++) {
        const struct key_part *part = &a->parts[k];
        vf *to = k == 0 ? sum : other;
        chains_16(to, &(struct key_tile){q + (size_t)part->vector * ATT_LANES,
                                         a->tokens + (size_t)part->vector * ATT_LANES * KEY_TOKENS,
                                         a->k_width, part->n_vectors, ahead});
        if (!kv_has_scales(a->p->kv->dtype))
            continue;
        for (uint32_t s = 0; s < QUERY_KEYS; s++)
            to[s] = vf_mul(
                to[s], vf_load(scales + k * ATTENTION_ROWS_TOKENS + s % KEY_VECTORS * ATT_LANES));
        if (k > 0)
            chains_add(sum, other);
    }
    float *to[QUERIES];
    for (uint32_t h = 0; h < QUERIES;
         h++) /* a missing query uses the place of the last query, which is stored later */
        to[h] = scores_of(a, min_u32(i_query + QUERIES - 1 - h, end - 1), pos);
    for (uint32_t h = 0; h < QUERIES; h++)
        for (uint32_t v = 0; v < KEY_VECTORS; v++)
            vf_store(to[h] + v * ATT_LANES, sum[(QUERIES - 1 - h) * KEY_VECTORS + v]);
}

/* Returns the largest number of tokens whose values are loaded together. */
static uint32_t values_most(const struct att_rows *a)
{
    return min_u32(ATTENTION_ROWS_TOKENS, max_u32(ATTENTION_ROWS_VALUES / a->v_width, 1));
}

static void rows_scores(const struct att_rows *a, uint32_t begin, uint32_t end)
{
    const uint32_t first = a->row_begin * a->n_heads, last = a->row_end * a->n_heads;
    const uint32_t n_asks = (last - first + QUERIES - 1) / QUERIES * TILE_ASKS;
    struct token_places places;
    struct ahead ahead;
    for (uint32_t pos = begin, n; pos < end; pos += n) {
        n = min_u32(end - pos, KEY_TOKENS);
        tokens_load(a, pos, n, false, &places);
        if (pos + n < end)
            ahead_find(a, pos + n, min_u32(end - pos - n, KEY_TOKENS), false, n_asks, &ahead);
        else
            ahead_find(a, begin, min_u32(end - begin, values_most(a)), true, n_asks, &ahead);
        for (uint32_t i = first; i < last; i += QUERIES) {
            uint32_t behind = min_u32(i + QUERIES, last);
            if (a->end_of[behind - 1] > pos && a->first_of[i] < pos + KEY_TOKENS)
                scores_four(a, i, last, pos, places.scales, &ahead);
        }
    }
}

/* `values_job` describes work on loaded values: positions begin .. end for rows row_begin ..
 * row_end. `loaded` is the position of the first loaded token. */
struct values_job {
    uint32_t loaded, begin, end, row_begin, row_end;
    struct ahead *ahead;
};
enum { VALUES_ASK = 8 }; /* tokens between two calls of ahead_ask() */
/* Adds for n queries: part[query][i ..] += sum over the job's tokens of score * value. */
INLINE void values_rows(const struct att_rows *a, const struct values_job *job, uint32_t i_query,
                        uint32_t n, uint32_t i, uint32_t n_vectors)
{
    const uint32_t n_tokens = job->end - job->begin;
    const float *values = a->tokens + (size_t)(job->begin - job->loaded) * a->v_width + i;
    float *part = a->part + (size_t)i_query * a->v_width + i;
    const float *scores[QUERIES];
    vf sum[QUERIES][VALUE_VECTORS];
    for (uint32_t h = 0; h < n; h++) {
        scores[h] = scores_of(a, i_query + h, job->begin);
        for (uint32_t c = 0; c < n_vectors; c++)
            sum[h][c] = vf_load(part + h * a->v_width + c * ATT_LANES);
    }
    for (uint32_t t = 0; t < n_tokens; t++, values += a->v_width) {
        vf v[VALUE_VECTORS];
        if (t % VALUES_ASK == 0)
            ahead_ask(job->ahead);
        for (uint32_t c = 0; c < n_vectors; c++)
            v[c] = vf_load(values + c * ATT_LANES);
        for (uint32_t h = 0; h < n; h++) {
            vf w = vf_set1(scores[h][t]);
            for (uint32_t c = 0; c < n_vectors; c++)
                sum[h][c] = vf_fma(w, v[c], sum[h][c]);
        }
    }
    for (uint32_t h = 0; h < n; h++)
        for (uint32_t c = 0; c < n_vectors; c++)
            vf_store(part + h * a->v_width + c * ATT_LANES, sum[h][c]);
}

/* Calls values_rows() for all queries of the job. */
INLINE void values_queries(const struct att_rows *a, const struct values_job *job, uint32_t i,
                           uint32_t n_vectors)
{
    const uint32_t end = job->row_end * a->n_heads;
    uint32_t query = job->row_begin * a->n_heads;
    for (; query + QUERIES <= end; query += QUERIES)
        values_rows(a, job, query, QUERIES, i, n_vectors);
    if (end - query == 3)
        values_rows(a, job, query, 3, i, n_vectors);
    else if (end - query == 2)
        values_rows(a, job, query, 2, i, n_vectors);
    else if (end - query == 1)
        values_rows(a, job, query, 1, i, n_vectors);
}

static void values_add(const struct att_rows *a, struct values_job job)
{
    uint32_t i = 0;
    if (job.begin >= job.end)
        return;
    for (; i + VALUE_VECTORS * ATT_LANES <= a->v_width; i += VALUE_VECTORS * ATT_LANES)
        values_queries(a, &job, i, VALUE_VECTORS);
    for (; i < a->v_width; i += ATT_LANES)
        values_queries(a, &job, i, 1);
}

/* Computes weight * (scale * code) as (weight * scale) * code, as scale_weights() does. */
static void rows_scale(const struct att_rows *a, uint32_t pos, uint32_t n, const float *scales)
{
    for (uint32_t i = a->row_begin * a->n_heads; i < a->row_end * a->n_heads; i++) {
        float *w = scores_of(a, i, pos);
        for (uint32_t t = 0; t < n; t++)
            w[t] *= scales[t];
    }
}

/* Prepares the prefetch for the work on n tokens of values from pos on: the next values, or the
 * first keys of the next split. */
static void values_ahead(const struct att_rows *a, uint32_t pos, uint32_t n, uint32_t end,
                         struct ahead *out)
{
    const uint32_t n_queries = (a->row_end - a->row_begin) * a->n_heads, next = pos + n;
    const uint32_t seen = a->rows[a->n_rows - 1].position + 1;
    const uint32_t n_asks = (n + VALUES_ASK - 1) / VALUES_ASK *
                            ((n_queries + QUERIES - 1) / QUERIES) *
                            max_u32(a->v_width / (VALUE_VECTORS * ATT_LANES), 1);
    if (next < end)
        ahead_find(a, next, min_u32(end - next, values_most(a)), true, n_asks, out);
    else
        ahead_find(a, next, next < seen ? min_u32(seen - next, KEY_TOKENS) : 0, false, n_asks, out);
}

/* Adds the weighted values of positions begin .. end. Positions that all rows see are added for
 * all rows together. Positions before and behind these are added for each row alone. */
static void rows_values(const struct att_rows *a, uint32_t begin, uint32_t end)
{
    uint32_t all = a->first[a->row_end - 1], all_end = a->end[a->row_begin];
    struct token_places places;
    struct ahead ahead;
    all_end = max_u32(all, all_end);
    for (uint32_t pos = begin, n; pos < end; pos += n) {
        n = min_u32(end - pos, values_most(a));
        tokens_load(a, pos, n, true, &places);
        values_ahead(a, pos, n, end, &ahead);
        if (kv_has_scales(a->p->kv->dtype))
            rows_scale(a, pos, n, places.scales);
        for (uint32_t r = a->row_begin; r < a->row_end; r++)
            values_add(a, (struct values_job){pos, max_u32(pos, a->first[r]),
                                              min_u32(pos + n, min_u32(all, a->end[r])), r, r + 1,
                                              &ahead});
        values_add(a, (struct values_job){pos, max_u32(pos, all), min_u32(pos + n, all_end),
                                          a->row_begin, a->row_end, &ahead});
        for (uint32_t r = a->row_begin; r < a->row_end; r++)
            values_add(a, (struct values_job){pos, max_u32(pos, max_u32(all_end, a->first[r])),
                                              min_u32(pos + n, a->end[r]), r, r + 1, &ahead});
    }
}

/* Merges parts as merge() does, for up to 16 queries at once. */
static void rows_merge(const struct att_rows *a, uint32_t i, uint32_t n)
{
    const vf max = vf_load(a->max + i), acc_max = vf_load(a->acc_max + i),
             both = vf_max(max, acc_max);
    const vf old = math_exp(vf_sub(acc_max, both)), fresh = math_exp(vf_sub(max, both));
    vf sum = vf_add(vf_mul(vf_load(a->acc_sum + i), old), vf_mul(vf_load(a->sum + i), fresh));
    float v_old[ATT_LANES], v_fresh[ATT_LANES], new_sum[ATT_LANES], new_max[ATT_LANES];
    vf_store(v_old, old);
    vf_store(v_fresh, fresh);
    vf_store(new_sum, sum);
    vf_store(new_max, both);
    memcpy(a->acc_sum + i, new_sum, n * sizeof(float));
    memcpy(a->acc_max + i, new_max, n * sizeof(float));
    for (uint32_t k = 0; k < n; k++) {
        float *acc = a->acc + (size_t)(i + k) * a->v_width;
        const float *part = a->part + (size_t)(i + k) * a->v_width;
        const vf w_old = vf_set1(v_old[k]), w_fresh = vf_set1(v_fresh[k]);
        for (uint32_t c = 0; c < a->v_width; c += ATT_LANES) {
            vf s = vf_mul(vf_load(acc + c), w_old);
            vf_store(acc + c, vf_add(s, vf_mul(vf_load(part + c), w_fresh)));
        }
    }
}

/* Computes split i_split into the parts of the queries that see a position of this split.
 * Returns these queries as *query_begin .. *query_end. */
static void rows_split(struct att_rows *a, uint32_t i_split, uint32_t *query_begin,
                       uint32_t *query_end)
{
    const uint32_t split = i_split * ATTENTION_SPLIT, split_end = split + ATTENTION_SPLIT;
    a->row_begin = a->n_rows;
    for (uint32_t r = 0; r < a->n_rows; r++) {
        uint32_t position = a->rows[r].position;
        a->first[r] = max_u32(split, attention_first(a->p, position));
        a->end[r] = min_u32(split_end, position + 1);
        if (a->first[r] >= a->end[r])
            continue;
        a->row_begin = min_u32(a->row_begin, r);
        a->row_end = r + 1;
    }
    const uint32_t begin = a->first[a->row_begin], end = a->end[a->row_end - 1];
    const uint32_t i_first = a->row_begin * a->n_heads, i_end = a->row_end * a->n_heads;
    for (uint32_t r = a->row_begin, i = i_first; r < a->row_end; r++)
        for (uint32_t h = 0; h < a->n_heads; h++, i++) {
            a->first_of[i] = a->first[r];
            a->end_of[i] = a->end[r];
        }
    rows_scores(a, begin, end);
    for (uint32_t i = i_first; i < i_end; i++)
        split_softmax(a->p, scores_of(a, i, a->first_of[i]), a->end_of[i] - a->first_of[i],
                      a->max + i, a->sum + i);
    memset(a->part + (size_t)i_first * a->v_width, 0,
           (size_t)(i_end - i_first) * a->v_width * sizeof(float));
    rows_values(a, begin, end);
    *query_begin = i_first;
    *query_end = i_end;
}

void ISA_FN(attention_rows)(const struct attention_params *p, uint32_t i_row, uint32_t n_rows,
                            uint32_t i_kv_head, float *scratch)
{
    struct att_rows a = rows_init(p, i_row, n_rows, i_kv_head, scratch);
    if (a.n_heads == 0)
        return;
    uint32_t first = attention_first(p, a.rows[0].position) / ATTENTION_SPLIT;
    for (uint32_t i = first; i <= a.rows[n_rows - 1].position / ATTENTION_SPLIT; i++) {
        uint32_t query, end;
        rows_split(&a, i, &query, &end);
        for (; query < end; query += ATT_LANES)
            rows_merge(&a, query, min_u32(end - query, ATT_LANES));
    }
    const uint32_t head = attention_heads_of(p, i_kv_head).begin;
    for (uint32_t i = 0; i < n_rows * a.n_heads; i++)
        finish(p, i_row + i / a.n_heads, head + i % a.n_heads, a.acc + (size_t)i * a.v_width,
               a.acc_max[i], a.acc_sum[i]);
}
