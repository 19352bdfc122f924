/* Implements attention and writing to the KV cache on a CPU. This file cuts the operators into
 * tasks for the pool's threads.
 * The runner calls `cpu_kv_write`, `cpu_attention` and `cpu_copy_heads` through struct ops.
 * Tasks call the level's kernels (cpu/attention), which read the cache and write rows of `out`.
 * With many rows, a task is a tile of rows for one KV head. With few rows and long contexts,
 * each split of a row is a task, and a second pass merges the splits.
 * Splits begin at multiples of ATTENTION_SPLIT and are merged in order, so both methods give the
 * same bits. One thread calls the operators; scratch belongs to the device, and each task uses
 * the scratch of its own thread. */
#include "kernels/cpu/backend/attention.h"

#include <stdatomic.h>
#include <string.h>

#include "common/base/mem.h"
#include "kernels/cpu/backend/units.h"
#include "kernels/kv_layout.h"

/* `kv_place` is the place where one head's key or value of a token is stored. `to` and `scales`
 * begin at the head's first token in the block. */
struct kv_place {
    uint8_t *to;
    float *scales;
    uint32_t i_token;
};

static void store_token(const struct cpu_device *d, const struct kv_cache *kv,
                        const struct kv_place *at, const float *from)
{
    size_t elem = kv_elem_bytes(kv->dtype);
    uint8_t *to = at->to + (size_t)at->i_token * kv->head_dim * elem;
    float *scale = at->scales + (at->scales ? at->i_token : 0);
    uint32_t end = at->scales ? kv_part_end(kv) : kv->head_dim;
    d->kernels->kv_store(to, kv->dtype, scale, from, end);
    if (end < kv->head_dim)
        d->kernels->kv_store(to + end * elem, kv->dtype, scale + kv->block_tokens, from + end,
                             kv->head_dim - end);
}

static void kv_write_unit(struct cpu_device *d, const void *params, uint32_t i, uint32_t i_thread)
{
    const struct kv_write_params *p = params;
    const struct kv_cache *kv = p->kv;
    const struct kv_row *row = &p->rows[i];
    size_t block = row->blocks[row->position / kv->block_tokens - row->n_dropped];
    size_t head_bytes = (size_t)kv->block_tokens * kv->head_dim * kv_elem_bytes(kv->dtype);
    for (uint32_t h = 0; h < p->n_heads; h++)
        for (int values = 0; values <= !kv_is_latent(kv); values++) {
            struct kv_place at = {(uint8_t *)(values ? kv->v : kv->k) + block * kv->block_stride +
                                      h * head_bytes,
                                  kv->k_scales ? kv_scales(kv, values, block, h) : NULL,
                                  row->position % kv->block_tokens};
            store_token(d, kv, &at, row_of(values ? p->v : p->k, i) + (size_t)h * kv->head_dim);
        }
}
void cpu_kv_write(struct device *d, const struct kv_write_params *p)
{
    cpu_run_units(cpu_of(d), p->n_rows, 2 * (uint64_t)p->n_heads * p->kv->head_dim, kv_write_unit,
                  p);
}

void cpu_copy_heads(struct device *d, const struct copy_heads_params *p)
{
    for (uint32_t i = 0; i < p->n_rows; i++)
        for (uint32_t h = 0; h < p->n_heads; h++)
            memcpy(row_of(p->to, i) + (size_t)h * p->to_stride,
                   row_of(p->from, i) + (size_t)h * p->from_stride, p->n * sizeof(float));
}

/* Successive rows of one sequence form a tile, up to TILE_FLOATS of scratch, so that the tile's
 * queries, scores and results stay in the second-level cache. A tile is slower than single rows
 * with one row, or with fewer than TILE_QUERIES (row, head) pairs. */
enum { TILE_FLOATS = 160 << 10, TILE_QUERIES = 8, TILES_PER_THREAD = 4 };

struct tiles_job {
    const struct attention_params *p;
    const struct row_tile *tiles;
    uint32_t n_tiles;
};

/* Computes one tile for one KV head. The tiles of one KV head follow each other, because
 * neighbouring tiles often belong to one sequence and read the same keys. */
static void attention_unit(struct cpu_device *d, const void *ctx, uint32_t i, uint32_t i_thread)
{
    const struct tiles_job *job = ctx;
    const struct row_tile tile = job->tiles[i % job->n_tiles];
    const uint32_t i_kv_head = i / job->n_tiles;
    float *scratch = d->scratch[i_thread].floats;
    if (tile.n > 1 && tile.n * job->p->group >= TILE_QUERIES)
        d->kernels->attention_rows(job->p, tile.begin, tile.n, i_kv_head, scratch);
    else
        for (uint32_t r = 0; r < tile.n; r++)
            d->kernels->attention(job->p, tile.begin + r, i_kv_head, scratch);
}

static bool row_follows(const struct kv_row *row, const struct kv_row *before)
{
    return row->blocks == before->blocks && row->n_dropped == before->n_dropped &&
           row->position == before->position + 1;
}

/* Returns the number of tiles of at most `most` rows, and writes them to `out` if it is not
 * NULL. */
static uint32_t tiles_find(const struct attention_params *p, uint32_t most, struct row_tile *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0, end; i < p->n_rows; i = end, n++) {
        for (end = i + 1; end < p->n_rows && end - i < most;)
            if (row_follows(&p->rows[end], &p->rows[end - 1]))
                end++;
            else
                break;
        if (out)
            out[n] = (struct row_tile){i, end - i};
    }
    return n;
}

/* Returns the largest number of rows in a tile. The number is smaller when larger tiles would be
 * too few for the threads. */
static uint32_t tile_rows(const struct attention_params *p, uint32_t n_threads)
{
    uint32_t most = ATTENTION_ROWS;
    while (most > 1 && attention_rows_floats(most * p->group, p->kv) > TILE_FLOATS)
        most /= 2;
    while (most > 1 && n_threads > 1 &&
           (uint64_t)tiles_find(p, most, NULL) * attention_n_kv(p) < n_threads * TILES_PER_THREAD)
        most /= 2;
    return most;
}

static void attention_by_tiles(struct cpu_device *d, const struct attention_params *p,
                               uint64_t cost_row)
{
    struct tiles_job job = {.p = p};
    uint32_t most = tile_rows(p, pool_n_threads(d->pool));
    if (d->n_tiles < p->n_rows) {
        mem_free(d->tiles);
        d->tiles = mem_array(p->n_rows, sizeof *d->tiles);
        d->n_tiles = p->n_rows;
    }
    job.n_tiles = tiles_find(p, most, d->tiles);
    job.tiles = d->tiles;
    if (most > 1)
        cpu_scratch_reserve(d, attention_rows_floats(most * p->group, p->kv));
    cpu_run_units(d, job.n_tiles * attention_n_kv(p), cost_row * p->n_rows / job.n_tiles,
                  attention_unit, &job);
}

/* With few rows and long contexts, each split of a (row, KV head) unit is a task. The splits of
 * all units are computed in order, in waves that fill the buffer of parts. After each wave,
 * every head merges its parts in order. A thread chooses its next split before it computes the
 * current one, so that it can prefetch the next split's memory. */
enum { PARTS_PER_THREAD = 8, PARTS_FLOATS = 128 << 10, UNITS_PER_THREAD = 2 };
#define NO_SPLIT (UINT32_MAX / ATTENTION_SPLIT)

struct split_job {
    struct cpu_device *d;
    const struct attention_params *p;
    uint32_t n_units, per_kv;
    uint64_t part_floats;
    float *parts, *merged; /* array shapes: parts [n_parts], merged [n_units] */
    uint64_t begin, end;   /* splits of the current wave */
    atomic_uint_fast64_t next;
};

static uint32_t first_split(const struct attention_params *p, uint32_t i_unit)
{
    return attention_first(p, p->rows[i_unit % p->n_rows].position) / ATTENTION_SPLIT;
}
static uint32_t n_splits(const struct attention_params *p, uint32_t i_unit)
{
    uint32_t last = p->rows[i_unit % p->n_rows].position / ATTENTION_SPLIT;
    return last - first_split(p, i_unit) + 1;
}

/* `unit_split` is the i-th split of all units: the unit, and the split's number within the row. */
struct unit_split {
    uint32_t unit, split;
};
static struct unit_split split_find(const struct split_job *job, uint64_t i)
{
    uint32_t unit = 0;
    for (uint32_t n; unit < job->n_units && i >= (n = n_splits(job->p, unit)); unit++)
        i -= n;
    return (struct unit_split){unit, unit < job->n_units ? first_split(job->p, unit) + i : 0};
}

static void split_task(void *ctx, uint32_t i_task, uint32_t i_thread)
{
    struct split_job *job = ctx;
    const struct attention_params *p = job->p;
    uint64_t i = atomic_fetch_add(&job->next, 1);
    for (uint64_t next; i < job->end; i = next) {
        next = atomic_fetch_add(&job->next, 1);
        const struct unit_split now = split_find(job, i), then = split_find(job, next);
        job->d->kernels->attention_split(p, now.unit % p->n_rows, now.unit / p->n_rows, now.split,
                                         then.unit == now.unit ? then.split : NO_SPLIT,
                                         job->d->scratch[i_thread].floats,
                                         job->parts + (i - job->begin) * job->part_floats);
    }
}

static void merge_unit(struct cpu_device *d, const void *ctx, uint32_t i, uint32_t i_thread)
{
    const struct split_job *job = ctx;
    const struct attention_params *p = job->p;
    uint32_t unit = i / job->per_kv, head = i % job->per_kv;
    const struct attention_heads heads = attention_heads_of(p, unit / p->n_rows);
    if (head >= heads.end - heads.begin)
        return;
    float *merged = job->merged + unit * job->part_floats;
    uint64_t first = 0;
    for (uint32_t u = 0; u < unit; u++)
        first += n_splits(p, u);
    uint64_t end = first + n_splits(p, unit);
    for (uint64_t s = first > job->begin ? first : job->begin; s < end && s < job->end; s++)
        d->kernels->attention_merge(p, head, s == first, merged,
                                    job->parts + (s - job->begin) * job->part_floats);
    if (end > job->begin && end <= job->end)
        d->kernels->attention_finish(p, unit % p->n_rows, unit / p->n_rows, head, merged);
}

static void attention_by_splits(struct cpu_device *d, const struct attention_params *p)
{
    uint32_t n_threads = pool_n_threads(d->pool), per_kv = p->group;
    struct split_job job = {.d = d, .p = p, .per_kv = per_kv};
    job.n_units = p->n_rows * attention_n_kv(p);
    job.part_floats = attention_part_floats(per_kv, p->kv->v_dim);
    uint64_t n_parts = PARTS_FLOATS / job.part_floats, least = n_threads * PARTS_PER_THREAD;
    n_parts = n_parts > least ? n_parts : least;
    cpu_scratch_grow(&d->parts, job.part_floats * (n_parts + n_threads * UNITS_PER_THREAD));
    job.parts = d->parts.floats;
    job.merged = job.parts + n_parts * job.part_floats;
    uint64_t total = 0;
    for (uint32_t i = 0; i < job.n_units; i++)
        total += n_splits(p, i);
    for (; job.begin < total; job.begin = job.end) {
        job.end = total - job.begin < n_parts ? total : job.begin + n_parts;
        uint32_t n = (uint32_t)(job.end - job.begin);
        atomic_store(&job.next, job.begin);
        pool_run(d->pool, n < n_threads ? n : n_threads, split_task, &job);
        cpu_run_units(d, job.n_units * per_kv, n * job.part_floats / (job.n_units * per_kv),
                      merge_unit, &job);
    }
}

void cpu_attention(struct device *device, const struct attention_params *p)
{
    struct cpu_device *d = cpu_of(device);
    uint32_t per_kv = p->group, n_units = p->n_rows * attention_n_kv(p);
    uint32_t n_threads = pool_n_threads(d->pool);
    uint64_t n_positions = 0;
    if (p->n_rows == 0 || p->n_heads == 0)
        return;
    cpu_scratch_reserve(d, attention_scratch_floats(per_kv, p->kv));
    for (uint32_t i = 0; i < p->n_rows; i++)
        n_positions += p->rows[i].position - attention_first(p, p->rows[i].position) + 1;
    uint64_t cost = n_positions * per_kv * p->kv->head_dim / 8 / p->n_rows;
    if (n_threads > 1 && n_units < n_threads * UNITS_PER_THREAD &&
        cost * n_units > 2 * COST_PARALLEL)
        attention_by_splits(d, p);
    else
        attention_by_tiles(d, p, cost);
}
