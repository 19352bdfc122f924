/* Implements MLA's attention, in one of two forms for each sequence of a pass.
 *
 * Absorbed: queries are projected into the latents' space, and attention reads the cache
 * directly. Keys need no extra work, but a pair of a query and a key costs 2 kv_rank + rope
 * products for each head, instead of nope + rope + v. Decode, draft tokens and the last few rows
 * of a prompt use this form.
 *
 * Expanded: the keys and values of each head are computed from the latents and dropped after the
 * operator. That costs kv_rank * (nope + v) products for each key and head, as many as an
 * absorbed query costs. Prompts use this form.
 *
 * A sequence whose n rows follow `position` computed ones is expanded if that is less work:
 *
 *   (position + n) * e + pairs * (nope + rope + v)  <=  n * e + pairs * (2 kv_rank + rope),
 *   e = kv_rank * (nope + v),  pairs = n * position + n (n + 1) / 2
 *
 * This is position * e <= pairs * (2 kv_rank - nope - v). The condition is never true if the
 * latents are so short that 2 kv_rank < nope + v. Otherwise it is always true at position 0. At a
 * large position it is then true from n = e / (2 kv_rank - nope - v) on (171 rows with
 * DeepSeek's shapes). Below LEAST_ROWS, one tile, the launches would be too small to save time.
 *
 * The host chooses the form by the rows that it uploaded. A pass that may be recorded is never
 * expanded, since its launches would depend on the sequences of its rows.
 *
 * The operator's scratch holds the projections of all heads as one matrix, and the keys and
 * values of one turn. A turn has as many heads as fit into EXPANDED_BYTES with all keys of a
 * batch of sequences. If one head's keys do not fit, a turn is one head and a part of one
 * sequence's keys, and the results are merged like splits. */
#include "kernels/cuda/backend/latent.h"

#include "common/base/arena.h"
#include "common/base/mem.h"
#include "kernels/cuda/attention/abi.h"
#include "kernels/cuda/backend/enqueue.h"
#include "kernels/cuda/backend/staging.h"
#include "kernels/cuda/linear/abi.h"

enum { ALIGN = 256, LEAST_ROWS = GPU_TILE_ROWS, PIECE_KEYS = 8192, KEYS_UNIT = 32 };
#define EXPANDED_BYTES ((uint64_t)64 << 20) /* most bytes of a turn's keys and values */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- the scratch ---- */

/* `turn` names the heads and keys that are expanded at once. */
struct turn {
    /* `n_keys` counts the keys of all sequences. With several chunks, it is a multiple of 32. */
    uint32_t n_heads, n_keys;
    uint32_t n_chunks; /* number of parts of one sequence's keys */
};

/* Returns the bytes of scratch that all turns share: the products' workspace and, behind it, the
 * weights. */
static uint64_t shared_bytes(const struct cuda_latent_shape *s)
{
    return GPU_BLAS_WORKSPACE +
           align_up((uint64_t)s->n_heads * cuda_latent_head(s) * s->kv_rank * sizeof(uint16_t),
                    ALIGN);
}

static uint64_t latents_bytes(const struct cuda_latent_shape *s, uint64_t n_keys)
{
    return align_up(least(n_keys, PIECE_KEYS) * s->kv_rank * sizeof(uint16_t), ALIGN);
}
static uint64_t ropes_bytes(const struct cuda_latent_shape *s, uint64_t n_keys)
{
    return align_up(n_keys * s->rope * sizeof(uint16_t), ALIGN);
}
static uint64_t expanded_bytes(const struct cuda_latent_shape *s, uint64_t n_keys, uint64_t n_heads)
{
    return align_up(n_keys * n_heads * cuda_latent_head(s) * sizeof(uint16_t), ALIGN);
}

/* Returns the most keys of one head that fit into a turn. */
static uint32_t most_keys(const struct cuda_latent_shape *s)
{
    const uint64_t n = EXPANDED_BYTES / (cuda_latent_head(s) * sizeof(uint16_t));
    return (uint32_t)(n / KEYS_UNIT * KEYS_UNIT);
}

static bool turn_fits(const struct cuda_latent_shape *s, const struct turn *t, uint32_t n_rows,
                      uint64_t n_bytes)
{
    const uint64_t expanded = expanded_bytes(s, t->n_keys, t->n_heads);
    const uint64_t parts = t->n_chunks > 1 ? (uint64_t)n_rows * t->n_heads * t->n_chunks : 0;
    return expanded <= EXPANDED_BYTES && shared_bytes(s) + latents_bytes(s, t->n_keys) +
                                                 ropes_bytes(s, t->n_keys) + expanded +
                                                 cuda_latent_parts_bytes(s, parts) <=
                                             n_bytes;
}

/* Chooses the largest turn that fits: all keys and as many heads as possible, or one head and a
 * chunk of its keys. Returns false when none fits. */
static bool turn_choose(const struct cuda_latent_shape *s, uint32_t n_keys, uint32_t n_rows,
                        uint64_t n_bytes, struct turn *t)
{
    for (uint32_t n = 1; n <= s->n_heads; n++) {
        *t = (struct turn){(s->n_heads + n - 1) / n, n_keys, 1};
        if (turn_fits(s, t, n_rows, n_bytes))
            return true;
    }
    for (uint32_t n = 2; n <= CUDA_ATTENTION_MAX_SPLITS; n++) {
        const uint32_t even = (n_keys + n - 1) / n;
        const uint32_t each = (even + KEYS_UNIT - 1) / KEYS_UNIT * KEYS_UNIT;
        *t = (struct turn){1, each, (n_keys + each - 1) / each};
        if (turn_fits(s, t, n_rows, n_bytes))
            return true;
    }
    return false;
}

static uint32_t least_rows(const struct cuda_device *x)
{
    return x->expand_rows ? x->expand_rows : LEAST_ROWS;
}

/* Returns whether a pair of a query and a key costs less in the expanded form. */
static bool is_worth_it(const struct cuda_device *x, const struct cuda_latent_shape *s)
{
    return x->expand_rows != 0 || 2 * s->kv_rank > cuda_latent_head(s);
}

/* Returns a number of bytes of scratch that is enough for turn_choose with any sequences in a
 * pass. */
uint64_t cuda_latent_scratch_bytes(const struct cuda_device *x, const struct scratch_shape *s)
{
    const struct cuda_latent_shape shape = {.n_heads = s->n_heads,
                                            .kv_rank = s->v_dim,
                                            .nope = s->head_nope,
                                            .rope = s->head_dim - s->v_dim,
                                            .v = s->head_v};
    if (!s->is_latent || s->n_heads == 0 || !cuda_latent_fits(&shape) || !is_worth_it(x, &shape) ||
        s->n_rows < least_rows(x))
        return 0;
    const uint64_t tokens = s->max_len > s->n_rows ? s->max_len : s->n_rows;
    const uint64_t keys = least(tokens, most_keys(&shape)), n_chunks = (tokens + keys - 1) / keys;
    const uint64_t splits = cuda_latent_most_parts(&shape, s->n_rows);
    const uint64_t chunks = n_chunks > 1 ? s->n_rows * n_chunks : 0;
    return shared_bytes(&shape) + latents_bytes(&shape, tokens) + ropes_bytes(&shape, keys) +
           least(EXPANDED_BYTES, expanded_bytes(&shape, tokens, s->n_heads)) +
           align_up(cuda_latent_parts_bytes(&shape, splits > chunks ? splits : chunks), ALIGN);
}

/* ---- choosing the rows ---- */

static struct cuda_latent_shape shape_of(const struct latent_params *p)
{
    const struct kv_cache *kv = p->attention.kv;
    return (struct cuda_latent_shape){.n_heads = p->attention.n_heads,
                                      .kv_rank = kv->v_dim,
                                      .nope = p->keys.first->k,
                                      .rope = kv->head_dim - kv->v_dim,
                                      .v = p->values.first->n};
}

/* Returns whether the expanded form is possible. The two parts of Q of each head, and the
 * results, must be side by side in whole pieces of 16 bytes. */
static bool is_expandable(const struct cuda_device *x, const struct latent_params *p,
                          const struct cuda_latent_shape *s)
{
    const uint16_t *q = p->keys.x.data;
    return !x->may_be_recorded && x->expand_rows != UINT32_MAX && p->attention.window == 0 &&
           cuda_latent_fits(s) && is_worth_it(x, s) && p->keys.in_stride == s->nope + s->rope &&
           p->rope.from.data == q + s->nope && p->rope.from_stride == p->keys.in_stride &&
           p->values.out_stride == s->v && (uintptr_t)q % 16 == 0 && p->keys.x.stride % 8 == 0 &&
           shared_bytes(s) <= x->scratch.n_bytes;
}

static struct gpu_run_rule rule_of(const struct cuda_device *x, const struct cuda_latent_shape *s)
{
    struct gpu_run_rule rule = {.least_rows = least_rows(x)};
    if (x->expand_rows == 0) {
        rule.of_key = (uint64_t)s->kv_rank * cuda_latent_head(s);
        rule.of_pair = 2 * s->kv_rank - cuda_latent_head(s);
    }
    return rule;
}

static uint32_t run_keys(const struct gpu_run *r)
{
    return r->position + r->n_rows;
}

static uint32_t run_tiles(const struct gpu_run *r)
{
    return (r->n_rows + GPU_TILE_ROWS - 1) / GPU_TILE_ROWS;
}

/* Sets the place of each run's keys. A batch has as many runs as fit with all heads in one turn. */
static void place_keys(const struct cuda_device *x, const struct cuda_latent_shape *s)
{
    const struct gpu_expanded *e = &x->expanded;
    uint64_t n_keys = 0;
    for (uint32_t i = 0; i < e->n_runs; i++) {
        const uint64_t all = n_keys + run_keys(&e->runs[i]);
        struct turn t = {s->n_heads, (uint32_t)all, 1};
        if (all > UINT32_MAX || !turn_fits(s, &t, 0, x->scratch.n_bytes))
            n_keys = 0;
        e->at[i] = (struct cuda_latent_run){e->runs[i].first_row, (uint32_t)n_keys};
        n_keys += run_keys(&e->runs[i]);
    }
}

static uint32_t write_tiles(const struct gpu_expanded *e, struct gpu_tile *tiles,
                            uint32_t *first_keys)
{
    uint32_t n = 0, slot = 0;
    for (uint32_t i = 0; i < e->n_runs; i++) {
        const struct gpu_run *r = &e->runs[i];
        if (e->at[i].first_key == 0)
            slot = 0;
        for (uint32_t row = 0; row < r->n_rows; row += GPU_TILE_ROWS) {
            const uint32_t left = r->n_rows - row;
            const uint32_t n_rows = left < GPU_TILE_ROWS ? left : GPU_TILE_ROWS;
            tiles[n] = (struct gpu_tile){r->first_row + row, n_rows, slot, 0};
            first_keys[n++] = e->at[i].first_key;
            slot += n_rows;
        }
    }
    return n;
}

static void upload_runs(struct cuda_device *x, const struct gpu_rows *rows)
{
    struct gpu_expanded *e = &x->expanded;
    struct gpu_tile *tiles = mem_array(rows->n_rows, sizeof *tiles);
    uint32_t *first_keys = mem_array(rows->n_rows, sizeof *first_keys);
    const uint32_t n = write_tiles(e, tiles, first_keys);
    e->d_at = cuda_backend_upload(&x->base, e->at, e->n_runs * sizeof *e->at);
    e->tiles = cuda_backend_upload(&x->base, tiles, n * sizeof *tiles);
    e->first_keys = cuda_backend_upload(&x->base, first_keys, n * sizeof *first_keys);
    e->beside_counts =
        gpu_tiles_find_beside(rows->on_host, rows->n_rows, e->runs, e->n_runs, tiles);
    const uint32_t n_beside = e->beside_counts.n_few + e->beside_counts.n_many_tiles;
    e->beside = cuda_backend_upload(&x->base, tiles, n_beside * sizeof *tiles);
    mem_free(tiles);
    mem_free(first_keys);
}

/* Finds the runs once for each pass, since all layers of the pass have one shape. */
static void find_runs(struct cuda_device *x, const struct latent_params *p,
                      const struct cuda_latent_shape *s)
{
    struct gpu_expanded *e = &x->expanded;
    const struct gpu_rows *rows = cuda_rows(x, p->attention.rows);
    const struct gpu_run_rule rule = rule_of(x, s);
    if (e->is_found || !rows)
        return;
    cuda_latent_free(x);
    e->is_found = true;
    e->runs = mem_array(rows->n_rows / rule.least_rows + 1, sizeof *e->runs);
    e->n_runs = gpu_runs_find(rows->on_host, rows->n_rows, &rule, e->runs);
    e->at = mem_array(e->n_runs + 1, sizeof *e->at);
    place_keys(x, s);
    if (e->n_runs > 0)
        upload_runs(x, rows);
}

void cuda_latent_begin(struct cuda_device *x)
{
    x->expanded.is_found = false;
    x->expanded.n_runs = 0;
}

void cuda_latent_free(struct cuda_device *x)
{
    mem_free(x->expanded.runs);
    mem_free(x->expanded.at);
    x->expanded = (struct gpu_expanded){0};
}

/* ---- the expanded form ---- */

/* `batch` names runs whose keys are expanded at once, and their tiles. */
struct batch {
    uint32_t first, n_runs, first_tile, n_tiles, n_rows, n_keys;
};

static void batch_next(const struct gpu_expanded *e, struct batch *b)
{
    *b = (struct batch){.first = b->first + b->n_runs, .first_tile = b->first_tile + b->n_tiles};
    for (uint32_t i = b->first; i < e->n_runs && (i == b->first || e->at[i].first_key > 0); i++) {
        b->n_runs++;
        b->n_tiles += run_tiles(&e->runs[i]);
        b->n_rows += e->runs[i].n_rows;
        b->n_keys = e->at[i].first_key + run_keys(&e->runs[i]);
    }
}

/* `work` holds one call of the operator, and the parts of its scratch. */
struct work {
    struct cuda_device *x;
    const struct latent_params *p;
    struct cuda_latent_shape shape;
    struct batch batch;
    struct turn turn;
    uint8_t *blas, *weights, *latents, *ropes, *expanded, *parts, *end;
};

static void lay_out(struct work *w)
{
    w->blas = w->x->scratch.ptr;
    w->end = w->blas + w->x->scratch.n_bytes;
    w->weights = w->blas + GPU_BLAS_WORKSPACE;
    w->latents = w->blas + shared_bytes(&w->shape);
    w->ropes = w->latents + latents_bytes(&w->shape, w->turn.n_keys);
    w->expanded = w->ropes + ropes_bytes(&w->shape, w->turn.n_keys);
    w->parts = w->expanded + expanded_bytes(&w->shape, w->turn.n_keys, w->turn.n_heads);
}

/* Computes keys and values of some heads for n keys from `first` on. The latents of these keys
 * must be in the scratch. */
static enum status make_keys(const struct work *w, uint32_t head, uint32_t n_heads, uint32_t first,
                             uint32_t n, struct error *err)
{
    const uint32_t head_rows = cuda_latent_head(&w->shape), width = n_heads * head_rows;
    uint16_t *weights = (uint16_t *)(void *)w->weights;
    uint16_t *expanded = (uint16_t *)(void *)w->expanded;
    struct gpu_products p = {.x = {w->latents, w->shape.kv_rank},
                             .n_rows = n,
                             .n_parts = 1,
                             .scratch = w->blas,
                             .scratch_bytes = GPU_BLAS_WORKSPACE};
    p.parts[0].out = (struct view){expanded + (size_t)first * width, width};
    if (!gpu_matrix_of(DTYPE_BF16, width, w->shape.kv_rank, 0,
                       weights + (size_t)head * head_rows * w->shape.kv_rank, &p.parts[0].w))
        return error_set(
            err, STATUS_INTERNAL,
            "a latent has %u keys and values, which the kernels do not support. Report this bug",
            width);
    return cuda_linear_many(w->x->linear, &p, err);
}

/* Computes all keys of a chunk from the cache. If the latents fit into one piece, they stay in
 * the scratch for the next heads. */
static enum status expand(const struct work *w, uint32_t head, uint32_t n_heads, uint32_t key_begin,
                          uint32_t n_keys, struct error *err)
{
    const struct gpu_expanded *e = &w->x->expanded;
    struct cuda_latent_keys g = {.kv = w->p->attention.kv,
                                 .rows = w->p->attention.rows,
                                 .runs = e->d_at + w->batch.first,
                                 .n_runs = w->batch.n_runs,
                                 .key_begin = key_begin,
                                 .latents = w->latents,
                                 .ropes = w->ropes};
    const bool is_there = head > 0 && w->turn.n_chunks == 1 && n_keys <= PIECE_KEYS;
    for (uint32_t first = 0; first < n_keys; first += g.n) {
        g.first = first;
        g.n = n_keys - first < PIECE_KEYS ? n_keys - first : PIECE_KEYS;
        if (!is_there)
            TRY(cuda_latent_gather(w->x->stream, &g, err));
        TRY(make_keys(w, head, n_heads, first, g.n, err));
    }
    return STATUS_OK;
}

static enum status attend(const struct work *w, uint32_t head, uint32_t n_heads, uint32_t i_chunk,
                          struct error *err)
{
    const struct gpu_expanded *e = &w->x->expanded;
    const struct attention_params *p = &w->p->attention;
    struct cuda_latent_attention a = {.shape = w->shape,
                                      .q = w->p->keys.x,
                                      .out = w->p->values.out,
                                      .rows = p->rows,
                                      .tiles = e->tiles + w->batch.first_tile,
                                      .first_keys = e->first_keys + w->batch.first_tile,
                                      .n_tiles = w->batch.n_tiles,
                                      .n_rows = w->batch.n_rows,
                                      .keys = w->expanded,
                                      .ropes = w->ropes,
                                      .key_begin = i_chunk * w->turn.n_keys,
                                      .key_end = UINT32_MAX,
                                      .i_chunk = i_chunk,
                                      .n_chunks = w->turn.n_chunks,
                                      .scale = p->scale,
                                      .softcap = p->softcap,
                                      .sinks = p->sinks ? p->sinks + head : NULL,
                                      .n_multiprocessors = w->x->info.n_multiprocessors,
                                      .scratch = w->parts,
                                      .n_scratch_bytes = (uint64_t)(w->end - w->parts)};
    a.shape.n_heads = n_heads;
    a.q.data = (uint16_t *)a.q.data + (size_t)head * w->p->keys.in_stride;
    a.out.data = (uint16_t *)a.out.data + (size_t)head * w->shape.v;
    if (i_chunk + 1 < w->turn.n_chunks)
        a.key_end = a.key_begin + w->turn.n_keys;
    return cuda_latent_attention(w->x->stream, &a, err);
}

static enum status run_batch(struct work *w, struct error *err)
{
    const struct batch *b = &w->batch;
    if (!turn_choose(&w->shape, b->n_keys, b->n_rows, w->x->scratch.n_bytes, &w->turn))
        return error_set(
            err, STATUS_INTERNAL,
            "%llu bytes of scratch memory are too few for %u uncompressed latents. Report this bug",
            (unsigned long long)w->x->scratch.n_bytes, b->n_keys);
    lay_out(w);
    for (uint32_t head = 0, n; head < w->shape.n_heads; head += n) {
        const uint32_t left = w->shape.n_heads - head;
        n = left < w->turn.n_heads ? left : w->turn.n_heads;
        for (uint32_t i = 0; i < w->turn.n_chunks; i++) {
            const uint32_t begin = i * w->turn.n_keys;
            const uint32_t end = begin + w->turn.n_keys;
            TRY(expand(w, head, n, begin, (end < b->n_keys ? end : b->n_keys) - begin, err));
            TRY(attend(w, head, n, i, err));
        }
    }
    return STATUS_OK;
}

static enum status run_expanded(struct cuda_device *x, const struct latent_params *p,
                                const struct cuda_latent_shape *s, struct error *err)
{
    struct work w = {.x = x, .p = p, .shape = *s};
    lay_out(&w);
    TRY(cuda_latent_weights(x->stream, s, &p->keys, &p->values, w.weights, err));
    for (batch_next(&x->expanded, &w.batch); w.batch.n_runs > 0; batch_next(&x->expanded, &w.batch))
        TRY(run_batch(&w, err));
    return STATUS_OK;
}

/* ---- the absorbed form ---- */

static struct view rows_from(struct view v, uint32_t first)
{
    v.data = (uint16_t *)v.data + (size_t)first * v.stride;
    return v;
}

/* Projects rows first .. end - 1 into the latents' space, or back out of it. */
static void run_heads(struct device *d, const struct latent_params *p, bool into, uint32_t first,
                      uint32_t end)
{
    struct heads_params heads = into ? p->keys : p->values;
    struct copy_heads_params rope = p->rope;
    if (first == end)
        return;
    heads.x = rows_from(heads.x, first), heads.out = rows_from(heads.out, first);
    rope.from = rows_from(rope.from, first), rope.to = rows_from(rope.to, first);
    heads.n_rows = rope.n_rows = end - first;
    d->ops->math.heads(d, &heads);
    if (into)
        d->ops->math.copy_heads(d, &rope);
}

static void run_heads_beside(struct device *d, const struct latent_params *p, bool into)
{
    const struct gpu_expanded *e = &cuda_of(d)->expanded;
    uint32_t first = 0;
    for (uint32_t i = 0; i < e->n_runs; i++) {
        run_heads(d, p, into, first, e->runs[i].first_row);
        first = e->runs[i].first_row + e->runs[i].n_rows;
    }
    run_heads(d, p, into, first, p->attention.n_rows);
}

/* Computes the rows that are in no run. */
static void run_absorbed(struct device *d, const struct latent_params *p)
{
    struct cuda_device *x = cuda_of(d);
    struct error err;
    const struct gpu_expanded *e = &x->expanded;
    const struct cuda_attention_params params = {.p = p->attention,
                                                 .tiles = e->beside,
                                                 .counts = e->beside_counts,
                                                 .n_multiprocessors = x->info.n_multiprocessors,
                                                 .scratch = x->scratch.ptr,
                                                 .n_scratch_bytes = x->scratch.n_bytes};
    run_heads_beside(d, p, true);
    if (cuda_goes_on(x))
        cuda_note(x, cuda_attention(x->stream, &params, &err), &err);
    run_heads_beside(d, p, false);
}

/* Computes all rows in the absorbed form. */
static void run_one_by_one(struct device *d, const struct latent_params *p)
{
    d->ops->math.heads(d, &p->keys);
    d->ops->math.copy_heads(d, &p->rope);
    d->ops->math.kv_write(d, &p->write);
    d->ops->math.attention(d, &p->attention);
    d->ops->math.heads(d, &p->values);
}

void cuda_backend_latent(struct device *d, const struct latent_params *p)
{
    struct cuda_device *x = cuda_of(d);
    const struct cuda_latent_shape shape = shape_of(p);
    struct error err;
    const bool may = is_expandable(x, p, &shape);
    if (may)
        find_runs(x, p, &shape);
    if (!may || x->expanded.n_runs == 0) {
        run_one_by_one(d, p);
        return;
    }
    d->ops->math.kv_write(d, &p->write);
    run_absorbed(d, p);
    if (cuda_goes_on(x))
        cuda_note(x, run_expanded(x, p, &shape, &err), &err);
}
