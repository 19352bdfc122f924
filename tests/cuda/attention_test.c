/* Tests the attention of kernels/cuda and its writing of the KV cache against the CPU backend,
 * which is the specification. Keys and values of many sequences go through cuda_kv_write (or
 * cuda_rope_kv) and through the CPU's operators, from the same bfloat16 numbers: the caches must
 * be equal to the byte. Then both backends compute attention over that cache.
 * Unwritten memory is NaN, block tables end where their sequence ends, and positions that a row
 * must not see have values 16 times as large. One key too many or too few therefore causes a
 * larger error than rounding, which is bounded for each element by the sum of |weight * value|.
 *   attention_test           all shapes; exit status 0 passed, 1 failures, 77 no device
 *   attention_test --small   the shapes that the emulation runs in a few seconds */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/attention/abi.h"
#include "kernels/kv_layout.h"
#include "tests/cuda/rig/gpu_open.h"

#define MAX_SEQUENCES 8u
#define POISON        0xabcdu
#define SPIKE         16.0f

/* `sequence` is n rows behind `before` computed positions. n 0 is a row of padding. If `before`
 * is 0 too, the entry ends the list. */
struct sequence {
    uint32_t before, n;
};
#define PADDING                                                                                    \
    {                                                                                              \
        KV_ROW_NONE, 0                                                                             \
    }

/* PAIRED means that the pairs of a rope are neighbours. TIGHT means that the device has as
 * little shared memory as a device of capability 8.9. */
enum { SINKS = 1, ROPE = 2, PAIRED = 4, TIGHT = 8 };
#define TIGHT_BYTES (99u << 10)
struct att_case {
    uint32_t n_heads, group, first_in_group;
    uint32_t head_dim, v_dim; /* v_dim: value size of a latent; 0 = no latent */
    enum dtype dtype;
    uint32_t block_tokens, window;
    float softcap;
    uint32_t flags;
    uint32_t n_splits, pad; /* pad: number of elements between rows */
    uint32_t n_shared;      /* number of positions whose blocks all sequences share */
    struct sequence sequences[MAX_SEQUENCES];
};

#define BF16 DTYPE_BF16
#define FP8  DTYPE_F8_E4M3
static const struct att_case small_cases[] = {
    /* decode with different groups, dimensions and splits. */
    {8, 4, 0, 64, 0, BF16, 16, 0, 0, 0, 1, 0, 0, {{70, 1}, {0, 1}, {63, 1}}},
    {8, 4, 0, 128, 0, BF16, 16, 0, 0, SINKS | ROPE, 3, 0, 32, {{300, 1}, {64, 1}, PADDING}},
    {3, 1, 0, 96, 0, BF16, 32, 0, 0, ROPE | PAIRED, 5, 1, 0, {{129, 1}, {15, 1}}},
    {16, 16, 0, 256, 0, BF16, 16, 40, 30, 0, 2, 0, 0, {{100, 1}, {39, 1}}},
    {2, 2, 0, 256, 0, BF16, 16, 0, 0, SINKS, 37, 0, 0, {{1300, 1}}},
    /* heads that begin and end inside a group, and dimensions that are not a multiple of 8. */
    {5, 3, 2, 48, 0, BF16, 12, 7, 0, SINKS, 2, 3, 0, {{30, 1}, {3, 2}}},
    {7, 5, 1, 18, 0, BF16, 4, 0, 5, ROPE, 1, 1, 0, {{21, 3}}},
    {24, 24, 0, 80, 0, BF16, 16, 0, 0, ROPE, 4, 0, 0, {{65, 1}, PADDING, {31, 2}}},
    /* draft tokens and small prompts, which become tiles of few rows */
    {8, 4, 0, 64, 0, BF16, 16, 0, 0, SINKS, 2, 0, 16, {{60, 5}, {33, 16}, {0, 20}}},
    /* prefill with tiles of many rows, alone and among others. */
    {4, 2, 0, 128, 0, BF16, 16, 0, 0, ROPE, 1, 0, 0, {{0, 70}}},
    {2, 1, 0, 64, 0, BF16, 16, 50, 0, SINKS, 2, 0, 0, {{45, 130}, {80, 1}, {0, 3}}},
    {3, 3, 0, 96, 0, BF16, 8, 0, 20, 0, 3, 2, 40, {{41, 65}, PADDING, {70, 1}}},
    {2, 2, 0, 256, 0, BF16, 16, 0, 0, ROPE | PAIRED, 1, 0, 0, {{20, 66}}},
    {2, 2, 0, 256, 0, BF16, 16, 0, 0, TIGHT, 2, 0, 0, {{20, 66}}},
    /* the other types of the cache */
    {4, 2, 0, 64, 0, DTYPE_F16, 16, 0, 0, ROPE, 2, 0, 0, {{70, 1}, {5, 3}}},
    {4, 2, 0, 64, 0, DTYPE_F32, 16, 0, 0, 0, 2, 0, 0, {{70, 1}, {5, 3}}},
    {8, 4, 0, 128, 0, FP8, 16, 0, 0, ROPE, 2, 0, 0, {{150, 1}, {5, 3}}},
    {8, 4, 0, 128, 0, DTYPE_I8, 16, 60, 0, SINKS | ROPE, 1, 0, 0, {{150, 1}, {5, 3}}},
    {4, 2, 0, 128, 0, FP8, 16, 0, 0, TIGHT, 2, 0, 0, {{70, 1}, {5, 3}}},
    {4, 2, 0, 20, 0, DTYPE_I8, 4, 0, 0, 0, 3, 0, 0, {{50, 1}, {5, 3}}},
    {2, 2, 0, 96, 0, FP8, 16, 0, 0, 0, 1, 0, 0, {{30, 70}}},
    /* latents */
    {16, 16, 0, 576, 512, BF16, 16, 0, 0, ROPE | PAIRED, 2, 0, 0, {{90, 1}, {0, 1}, PADDING}},
    {20, 20, 0, 576, 512, BF16, 16, 0, 0, 0, 1, 0, 0, {{40, 2}}},
    {16, 16, 0, 48, 32, BF16, 16, 0, 0, ROPE, 3, 0, 0, {{70, 1}, {9, 4}}},
    {4, 4, 0, 300, 260, BF16, 16, 30, 10, SINKS, 2, 0, 0, {{40, 66}}},
    {20, 20, 0, 576, 512, BF16, 16, 0, 0, TIGHT, 1, 0, 0, {{40, 2}}},
    {3, 3, 0, 576, 512, FP8, 16, 0, 0, ROPE, 1, 0, 0, {{70, 1}}},
    {3, 3, 0, 40, 36, DTYPE_I8, 8, 0, 0, ROPE | PAIRED, 2, 0, 0, {{70, 1}}},
    /* merges of splits. They have up to the most splits and more, all splits full or most of
     * them empty, and contexts of very different lengths. They also have value sizes of 4 n and
     * other sizes, and rows of a tile of many rows. */
    {8, 4, 0, 128, 0, BF16, 16, 0, 0, SINKS, 32, 0, 0, {{2500, 1}, {40, 1}, PADDING, {700, 1}}},
    {4, 4, 0, 64, 0, BF16, 16, 0, 0, 0, 40, 1, 0, {{1000, 1}, {0, 1}, {63, 2}}},
    {7, 5, 1, 18, 0, BF16, 4, 0, 5, SINKS, 31, 1, 0, {{421, 3}, {2, 1}}},
    {5, 5, 0, 108, 0, BF16, 16, 30, 0, SINKS | ROPE, 5, 3, 0, {{290, 1}, PADDING, {13, 4}}},
    {16, 16, 0, 576, 512, BF16, 16, 0, 0, SINKS, 32, 0, 0, {{1100, 1}, {5, 1}, PADDING}},
    {4, 4, 0, 300, 258, BF16, 16, 0, 0, SINKS, 9, 2, 0, {{270, 1}, {60, 2}}},
    {2, 1, 0, 64, 0, BF16, 16, 0, 0, SINKS, 7, 0, 0, {{300, 130}, {80, 20}, {0, 40}}},
    {3, 3, 0, 18, 0, BF16, 8, 0, 0, 0, 3, 1, 0, {{90, 70}}},
    /* the launch chooses the number of splits */
    {8, 4, 0, 64, 0, BF16, 16, 0, 0, 0, 0, 0, 0, {{900, 1}, {64, 1}}},
    {16, 16, 0, 576, 512, BF16, 16, 0, 0, 0, 0, 0, 0, {{700, 1}}},
};
#define N_SMALL (sizeof small_cases / sizeof small_cases[0])

struct rig {
    struct gpu_device *device;
    struct gpu_stream *stream;
    struct device *cpu;
    struct rng rng;
    unsigned n_failures, n_cases;
    double worst; /* largest error as a fraction of its bound */
};

/* `scene` is one case on the host; the device's copies are named d_*. */
struct scene {
    const struct att_case *c;
    struct kv_cache kv;    /* cache of the CPU */
    struct kv_cache d_kv;  /* cache of the device */
    struct kv_cache bound; /* cache of the CPU with the magnitudes of the values */
    uint64_t cache_bytes;
    uint8_t *cache, *bound_cache;
    uint32_t n_tables, max_blocks;
    uint32_t *tables[MAX_SEQUENCES];
    void *d_tables[MAX_SEQUENCES], *d_cache;
    uint32_t n_dropped[MAX_SEQUENCES];
};

/* Returns a bfloat16 number in [-scale, scale). */
static float next_float(struct rig *r, float scale)
{
    return from_bf16(to_bf16(random_unit(&r->rng) * scale));
}

static void fail(struct rig *r, const struct att_case *c, const char *what, double got, double want)
{
    if (r->n_failures++ < 20)
        fprintf(stderr,
                "FAILED %u heads of %u (%u, group %u from %u) %s, window %u, splits %u, first "
                "sequence %u + %u: %s: %g, want %g\n",
                c->n_heads, c->head_dim, c->v_dim, c->group, c->first_in_group,
                dtype_traits(c->dtype).name, c->window, c->n_splits, c->sequences[0].before,
                c->sequences[0].n, what, got, want);
}

static void *to_device(struct rig *r, const void *host, uint64_t n_bytes)
{
    struct error err = {0};
    void *ptr;
    must(gpu_alloc(r->device, n_bytes ? n_bytes : 1, &ptr, &err), &err, "alloc");
    must(gpu_copy_to_device(r->stream, ptr, host, n_bytes, &err), &err, "copy");
    must(gpu_stream_sync(r->stream, &err), &err, "sync");
    return ptr;
}

static void from_device(struct rig *r, void *host, const void *ptr, uint64_t n_bytes)
{
    struct error err = {0};
    must(gpu_copy_from_device(r->stream, host, ptr, n_bytes, &err), &err, "copy back");
    must(gpu_stream_sync(r->stream, &err), &err, "sync");
}

static uint16_t *narrow(const float *x, uint64_t n)
{
    uint16_t *out = mem_array(n ? n : 1, sizeof *out);
    for (uint64_t i = 0; i < n; i++)
        out[i] = to_bf16(x[i]);
    return out;
}

static uint32_t value_dim(const struct att_case *c)
{
    return c->v_dim ? c->v_dim : c->head_dim;
}

static uint32_t n_kv_heads(const struct att_case *c)
{
    return (c->first_in_group + c->n_heads + c->group - 1) / c->group;
}

static uint32_t n_sequences(const struct att_case *c)
{
    uint32_t n = 0;
    while (n < MAX_SEQUENCES && (c->sequences[n].n || c->sequences[n].before))
        n++;
    return n;
}

/* Returns the number of blocks that sequence i shares with the first sequence. */
static uint32_t n_shared_blocks(const struct att_case *c, uint32_t i)
{
    const bool shares =
        i > 0 && c->sequences[0].before >= c->n_shared && c->sequences[i].before >= c->n_shared;
    return shares ? c->n_shared / c->block_tokens : 0;
}

static void scene_open(struct rig *r, const struct att_case *c, struct scene *s)
{
    const uint32_t n = n_sequences(c), bt = c->block_tokens, n_spare = 3;
    uint32_t n_blocks = n_spare;
    *s = (struct scene){.c = c, .n_tables = n};
    for (uint32_t i = 0; i < n; i++)
        n_blocks += c->sequences[i].n ? (c->sequences[i].before + c->sequences[i].n) / bt + 1 : 0;
    s->kv = (struct kv_cache){.dtype = c->dtype,
                              .n_kv_heads = n_kv_heads(c),
                              .head_dim = c->head_dim,
                              .v_dim = value_dim(c),
                              .block_tokens = bt};
    s->kv.block_stride = (c->v_dim ? 1 : 2) * kv_keys_bytes(c->dtype, s->kv.n_kv_heads, c->head_dim,
                                                            bt, c->v_dim != 0) +
                         48; /* the stride leaves space for other layers */
    s->cache_bytes = n_blocks * s->kv.block_stride;
    s->cache = mem_array(s->cache_bytes, 1);
    s->bound_cache = mem_array(s->cache_bytes, 1);
    memset(s->cache, 0xff, s->cache_bytes);
    memset(s->bound_cache, 0xff, s->cache_bytes);
    s->d_cache = to_device(r, s->cache, s->cache_bytes);
    s->d_kv = s->bound = s->kv;
    kv_layout(&s->kv, s->cache, c->v_dim != 0);
    kv_layout(&s->bound, s->bound_cache, c->v_dim != 0);
    kv_layout(&s->d_kv, s->d_cache, c->v_dim != 0);
    uint32_t *free_blocks = mem_array(n_blocks, sizeof *free_blocks);
    for (uint32_t i = 0; i < n_blocks; i++)
        free_blocks[i] = i;
    for (uint32_t i = n_blocks - 1; i > 0; i--) {
        const uint32_t j = random_u32(&r->rng) % (i + 1), t = free_blocks[i];
        free_blocks[i] = free_blocks[j], free_blocks[j] = t;
    }
    for (uint32_t i = 0, next = 0; i < n; i++) {
        const struct sequence *q = &c->sequences[i];
        const uint32_t first = c->window && q->before >= c->window ? q->before - c->window + 1 : 0;
        const uint32_t n_table = q->n ? (q->before + q->n - 1) / bt + 1 : 0;
        const uint32_t n_shared = n_shared_blocks(c, i);
        s->n_dropped[i] = q->n ? first / bt : 0;
        s->tables[i] = mem_array(n_table + 1, sizeof *s->tables[i]);
        for (uint32_t b = s->n_dropped[i]; b < n_table; b++)
            s->tables[i][b - s->n_dropped[i]] = b < n_shared && b >= s->n_dropped[0]
                                                    ? s->tables[0][b - s->n_dropped[0]]
                                                    : free_blocks[next++];
        s->d_tables[i] =
            to_device(r, s->tables[i], (n_table - s->n_dropped[i]) * sizeof *s->tables[i]);
    }
    mem_free(free_blocks);
}

static void scene_close(struct rig *r, struct scene *s)
{
    for (uint32_t i = 0; i < s->n_tables; i++) {
        gpu_release(r->device, s->d_tables[i]);
        mem_free(s->tables[i]);
    }
    gpu_release(r->device, s->d_cache);
    mem_free(s->cache);
    mem_free(s->bound_cache);
}

static struct kv_row row_of(const struct scene *s, uint32_t i, uint32_t position, bool device)
{
    return (struct kv_row){device ? s->d_tables[i] : s->tables[i], s->n_dropped[i], position};
}

/* Returns the cosine and the sine of n_rot / 2 pairs, for each row. */
static float *angles(uint32_t n_rows, uint32_t n_rot, const struct kv_row *rows)
{
    float *cs = mem_array((uint64_t)n_rows * n_rot + 1, sizeof *cs);
    for (uint32_t i = 0; i < n_rows; i++)
        for (uint32_t k = 0; k < n_rot / 2; k++) {
            const double a = (double)rows[i].position * pow(100.0, -2.0 * k / n_rot);
            cs[(uint64_t)i * n_rot + 2 * k] = (float)cos(a);
            cs[(uint64_t)i * n_rot + 2 * k + 1] = (float)sin(a);
        }
    return cs;
}

/* `written` holds the inputs from which positions first .. first + n - 1 of one sequence are
 * written. */
struct written {
    uint32_t n, width, stride, n_rot, rope_first;
    struct kv_row *rows, *d_rows;
    float *k, *v, *q, *cs;
};

static void written_make(struct rig *r, const struct scene *s, uint32_t i_sequence, uint32_t first,
                         struct written *w)
{
    const struct att_case *c = s->c;
    const struct sequence *q = &c->sequences[i_sequence];
    w->width = s->kv.n_kv_heads * c->head_dim;
    w->stride = w->width + c->pad;
    w->rope_first = c->v_dim;
    w->n_rot = (c->v_dim ? c->head_dim - c->v_dim : c->head_dim) / (c->head_dim % 3 ? 2 : 1) & ~1u;
    w->rows = mem_array(w->n + 1, sizeof *w->rows);
    w->d_rows = mem_array(w->n + 1, sizeof *w->d_rows);
    w->k = mem_array((uint64_t)w->n * w->stride + 1, sizeof *w->k);
    w->v = mem_array((uint64_t)w->n * w->stride + 1, sizeof *w->v);
    w->q = mem_array((uint64_t)w->n * w->stride + 1, sizeof *w->q);
    for (uint32_t i = 0; i < w->n; i++) {
        const uint32_t position = first + i;
        /* is_edge is true for positions at the ends of the range that rows see: the rows of this
         * pass, and positions around the window's far end. */
        const bool is_edge =
            position >= q->before || (c->window && position + c->window + 2 >= q->before &&
                                      position + c->window <= q->before + q->n);
        w->rows[i] = row_of(s, i_sequence, position, false);
        w->d_rows[i] = row_of(s, i_sequence, position, true);
        for (uint32_t e = 0; e < w->stride; e++) {
            const uint64_t at = (uint64_t)i * w->stride + e;
            w->k[at] = next_float(r, c->v_dim ? 0.5f : 1.0f);
            w->v[at] = next_float(r, is_edge ? SPIKE : 1.0f);
            w->q[at] = next_float(r, 1.0f);
        }
    }
    w->cs = angles(w->n, w->n_rot, w->rows);
}

static void written_free(struct written *w)
{
    mem_free(w->rows);
    mem_free(w->d_rows);
    mem_free(w->k);
    mem_free(w->v);
    mem_free(w->q);
    mem_free(w->cs);
}

/* Writes the positions on the device. With a rope, Q (with as many heads as K here) is rotated
 * on both sides and compared. */
static void write_device(struct rig *r, const struct scene *s, const struct written *w,
                         uint16_t *q_out)
{
    const struct att_case *c = s->c;
    const uint64_t n = (uint64_t)w->n * w->stride, n_bytes = n * sizeof(uint16_t);
    uint16_t *k = narrow(w->k, n), *v = narrow(w->v, n), *q = narrow(w->q, n);
    void *d_k = to_device(r, k, n_bytes), *d_v = to_device(r, v, n_bytes);
    void *d_q = to_device(r, q, n_bytes);
    void *d_rows = to_device(r, w->d_rows, w->n * sizeof *w->d_rows);
    void *d_cs = to_device(r, w->cs, (uint64_t)w->n * w->n_rot * sizeof(float));
    struct error err = {0};
    const struct kv_write_params p = {.k = {d_k, w->stride},
                                      .v = {d_v, w->stride},
                                      .rows = d_rows,
                                      .n_rows = w->n,
                                      .n_heads = s->kv.n_kv_heads,
                                      .kv = &s->d_kv};
    const struct rope_params rq = {.x = {d_q, w->stride},
                                   .n_rows = w->n,
                                   .n_heads = s->kv.n_kv_heads,
                                   .head_dim = c->head_dim,
                                   .n_rot = w->n_rot,
                                   .interleaved = (c->flags & PAIRED) != 0,
                                   .cos_sin = d_cs};
    struct rope_params rk = rq;
    rk.x.data = (uint16_t *)d_k + w->rope_first;
    if ((c->flags & ROPE) && !cuda_rope_kv_fits(&rk, &p))
        fail(r, c, "rope_kv does not fit", 0, 1);
    must(c->flags & ROPE ? cuda_rope_kv(r->stream, &rq, &rk, &p, &err)
                         : cuda_kv_write(r->stream, &p, &err),
         &err, "kv_write");
    from_device(r, q_out, d_q, n_bytes);
    void *const device[] = {d_k, d_v, d_q, d_rows, d_cs};
    for (size_t i = 0; i < sizeof device / sizeof device[0]; i++)
        gpu_release(r->device, device[i]);
    mem_free(k);
    mem_free(v);
    mem_free(q);
}

static void round_all(float *x, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        x[i] = from_bf16(to_bf16(x[i]));
}

/* Runs the CPU's operators one after the other. The result of a rope is rounded like the
 * device's result. */
static void write_cpu(struct rig *r, struct scene *s, struct written *w, const uint16_t *q_device)
{
    const struct att_case *c = s->c;
    const uint64_t n = (uint64_t)w->n * w->stride;
    struct kv_write_params p = {.k = {w->k, w->stride},
                                .v = {w->v, w->stride},
                                .rows = w->rows,
                                .n_rows = w->n,
                                .n_heads = s->kv.n_kv_heads,
                                .kv = &s->kv};
    struct rope_params rope = {.x = {w->q, w->stride},
                               .n_rows = w->n,
                               .n_heads = s->kv.n_kv_heads,
                               .head_dim = c->head_dim,
                               .n_rot = w->n_rot,
                               .interleaved = (c->flags & PAIRED) != 0,
                               .cos_sin = w->cs};
    if (c->flags & ROPE) {
        r->cpu->ops->math.rope(r->cpu, &rope);
        rope.x.data = w->k + w->rope_first;
        r->cpu->ops->math.rope(r->cpu, &rope);
        round_all(w->k, n);
    }
    for (uint64_t i = 0; i < n; i++)
        if (to_bf16(w->q[i]) != q_device[i]) {
            fail(r, c, "Q behind its rope", (double)from_bf16(q_device[i]), (double)w->q[i]);
            break;
        }
    r->cpu->ops->math.kv_write(r->cpu, &p);
    for (uint64_t i = 0; i < n; i++)
        w->v[i] = fabsf(w->v[i]);
    p.kv = &s->bound;
    r->cpu->ops->math.kv_write(r->cpu, &p);
}

/* Writes the computed positions and the positions of the pass. */
static void scene_write(struct rig *r, struct scene *s)
{
    const struct att_case *c = s->c;
    for (uint32_t i = 0; i < s->n_tables; i++) {
        const struct sequence *q = &c->sequences[i];
        const uint32_t dropped = s->n_dropped[i] * c->block_tokens;
        const uint32_t shared = n_shared_blocks(c, i) * c->block_tokens;
        const uint32_t first = dropped > shared ? dropped : shared;
        struct written w = {.n = q->before + q->n - first};
        if (q->n == 0)
            continue;
        written_make(r, s, i, first, &w);
        uint16_t *q_device = mem_array((uint64_t)w.n * w.stride + 1, sizeof *q_device);
        write_device(r, s, &w, q_device);
        write_cpu(r, s, &w, q_device);
        mem_free(q_device);
        written_free(&w);
    }
    uint8_t *copy = mem_array(s->cache_bytes, 1);
    from_device(r, copy, s->d_cache, s->cache_bytes);
    for (uint64_t i = 0; i < s->cache_bytes; i++)
        if (copy[i] != s->cache[i]) {
            fail(r, c, "a byte of the cache", copy[i], s->cache[i]);
            break;
        }
    mem_free(copy);
}

/* `pass` holds the rows of a pass on the host and on the device. It also holds the rows of the
 * CPU backend, which have no padding. */
struct pass {
    uint32_t n, n_cpu, q_width, out_width;
    struct kv_row *rows, *d_rows, *cpu_rows;
    float *q, *cpu_q, *want, *bound, *sinks;
};

static void pass_make(struct rig *r, const struct scene *s, struct pass *p)
{
    const struct att_case *c = s->c;
    p->q_width = c->n_heads * c->head_dim + c->pad;
    p->out_width = c->n_heads * value_dim(c) + c->pad;
    for (uint32_t i = 0; i < s->n_tables; i++)
        p->n += c->sequences[i].n ? c->sequences[i].n : 1;
    p->rows = mem_array(p->n, sizeof *p->rows);
    p->d_rows = mem_array(p->n, sizeof *p->d_rows);
    p->cpu_rows = mem_array(p->n, sizeof *p->cpu_rows);
    p->q = mem_array((uint64_t)p->n * p->q_width, sizeof *p->q);
    p->cpu_q = mem_array((uint64_t)p->n * p->q_width, sizeof *p->cpu_q);
    p->want = mem_array((uint64_t)p->n * p->out_width, sizeof *p->want);
    p->bound = mem_array((uint64_t)p->n * p->out_width, sizeof *p->bound);
    p->sinks = mem_array(c->n_heads, sizeof *p->sinks);
    for (uint64_t i = 0; i < (uint64_t)p->n * p->q_width; i++)
        p->q[i] = next_float(r, 2.0f);
    for (uint32_t i = 0; i < c->n_heads; i++)
        p->sinks[i] = next_float(r, 4.0f);
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_tables; i++) {
        const struct sequence *q = &c->sequences[i];
        for (uint32_t k = 0; k < (q->n ? q->n : 1); k++, n++) {
            const uint32_t position = q->n ? q->before + k : KV_ROW_NONE;
            p->rows[n] = row_of(s, i, position, false);
            p->d_rows[n] = row_of(s, i, position, true);
            if (!q->n)
                continue;
            p->cpu_rows[p->n_cpu] = p->rows[n];
            memcpy(p->cpu_q + (uint64_t)p->n_cpu++ * p->q_width, p->q + (uint64_t)n * p->q_width,
                   p->q_width * sizeof *p->q);
        }
    }
}

static void pass_free(struct pass *p)
{
    void *const all[] = {p->rows,  p->d_rows, p->cpu_rows, p->q,
                         p->cpu_q, p->want,   p->bound,    p->sinks};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        mem_free(all[i]);
}

static struct attention_params params_of(const struct scene *s, const struct pass *p)
{
    const struct att_case *c = s->c;
    return (struct attention_params){.q = {p->cpu_q, p->q_width},
                                     .out = {p->want, p->out_width},
                                     .rows = p->cpu_rows,
                                     .n_rows = p->n_cpu,
                                     .n_heads = c->n_heads,
                                     .group = c->group,
                                     .first_in_group = c->first_in_group,
                                     .window = c->window,
                                     .scale = 2.0f / sqrtf((float)c->head_dim),
                                     .softcap = c->softcap,
                                     .sinks = c->flags & SINKS ? p->sinks : NULL,
                                     .kv = &s->kv};
}

/* Returns the exact bytes of the parts of the case's splits, so that reads beyond them are
 * found. If the launch chooses the number of splits, the function returns the largest possible
 * size. */
static uint64_t scratch_bytes(const struct att_case *c, const struct gpu_tile_counts *n)
{
    const uint64_t n_splits =
        c->n_splits < CUDA_ATTENTION_MAX_SPLITS ? c->n_splits : CUDA_ATTENTION_MAX_SPLITS;
    const uint64_t n_rows = n->n_few > n->n_many_rows ? n->n_few : n->n_many_rows;
    const uint64_t row_bytes = (value_dim(c) + 2) * sizeof(float);
    const uint64_t most =
        cuda_attention_parts_bytes(n->n_few + n->n_many_rows, c->n_heads, value_dim(c));
    const uint64_t n_bytes = n_rows * c->n_heads * n_splits * row_bytes;
    return c->n_splits && n_bytes < most ? n_bytes : most;
}

/* Runs attention on the device. `fill` is the value of each byte of the scratch before the
 * launch. */
static void attend_device(struct rig *r, const struct scene *s, const struct pass *p,
                          unsigned char fill, uint16_t *out)
{
    const struct att_case *c = s->c;
    const uint64_t n_out = (uint64_t)p->n * p->out_width;
    struct gpu_tile *tiles = mem_array(p->n, sizeof *tiles);
    struct error err = {0};
    struct cuda_attention_params g = {.p = params_of(s, p), .n_multiprocessors = 4};
    uint16_t *q = narrow(p->q, (uint64_t)p->n * p->q_width);
    g.counts = gpu_tiles_find(p->rows, p->n, tiles);
    for (uint64_t i = 0; i < n_out; i++)
        out[i] = POISON;
    void *d_tiles = to_device(r, tiles, (g.counts.n_few + g.counts.n_many_tiles) * sizeof *tiles);
    void *d_rows = to_device(r, p->d_rows, p->n * sizeof *p->d_rows);
    void *d_q = to_device(r, q, (uint64_t)p->n * p->q_width * sizeof *q);
    void *d_out = to_device(r, out, n_out * sizeof *out);
    void *d_sinks = to_device(r, p->sinks, c->n_heads * sizeof *p->sinks);
    g.tiles = d_tiles;
    g.p.q.data = d_q, g.p.out.data = d_out;
    g.p.rows = d_rows, g.p.n_rows = p->n;
    g.p.sinks = c->flags & SINKS ? d_sinks : NULL;
    g.p.kv = &s->d_kv;
    g.n_splits = c->n_splits;
    g.shared_bytes = c->flags & TIGHT ? TIGHT_BYTES : 0;
    g.n_scratch_bytes = scratch_bytes(c, &g.counts);
    uint8_t *scratch = mem_array(g.n_scratch_bytes, 1);
    memset(scratch, fill, g.n_scratch_bytes);
    g.scratch = to_device(r, scratch, g.n_scratch_bytes);
    must(cuda_attention(r->stream, &g, &err), &err, "attention");
    from_device(r, out, d_out, n_out * sizeof *out);
    void *const device[] = {d_tiles, d_rows, d_q, d_out, d_sinks, g.scratch};
    for (size_t i = 0; i < sizeof device / sizeof device[0]; i++)
        gpu_release(r->device, device[i]);
    mem_free(scratch);
    mem_free(tiles);
    mem_free(q);
}

/* Runs the launch twice over scratch with other contents: unwritten parts are NaN, then numbers.
 * These contents must not change a bit of the result. */
static void attend_twice(struct rig *r, const struct scene *s, const struct pass *p, uint16_t *out)
{
    const uint64_t n_out = (uint64_t)p->n * p->out_width;
    uint16_t *again = mem_array(n_out, sizeof *again);
    attend_device(r, s, p, 0xff, out);
    attend_device(r, s, p, 0x3f, again);
    if (memcmp(out, again, n_out * sizeof *out) != 0)
        fail(r, s->c, "bits that follow from the scratch", 1, 0);
    mem_free(again);
}

/* Returns the error bound of an element. Weights are rounded to bfloat16 before they are
 * multiplied by the values (half a unit of the eighth bit of each product), and the result is
 * rounded. A latent's magnitudes are known only through its keys (at most 0.5 before a rope),
 * and its codes are rounded once more. */
static double error_bound(const struct att_case *c, double want, double magnitudes)
{
    if (c->v_dim)
        magnitudes = kv_has_scales(c->dtype) ? 2.0 : 0.5;
    return fabs(want) * 0x1p-8 + magnitudes * 0x1.1p-8 + 1e-6;
}

static void compare(struct rig *r, const struct scene *s, const struct pass *p, const uint16_t *out)
{
    const struct att_case *c = s->c;
    const uint32_t width = c->n_heads * value_dim(c);
    for (uint32_t row = 0, i_cpu = 0; row < p->n; row++) {
        const bool is_padding = p->rows[row].position == KV_ROW_NONE;
        const uint64_t at = (uint64_t)i_cpu * p->out_width;
        for (uint32_t i = 0; i < p->out_width; i++) {
            const uint16_t bits = out[(uint64_t)row * p->out_width + i];
            const double got = (double)from_bf16(bits);
            if (i >= width) {
                if (bits != POISON)
                    return fail(r, c, "written beside a row", bits, POISON);
                continue;
            }
            const double want = is_padding ? 0 : (double)p->want[at + i];
            const double bound =
                is_padding ? 1e-30 : error_bound(c, want, (double)p->bound[at + i]);
            const double part = fabs(got - want) / bound;
            if (!(part <= 1))
                return fail(r, c, "result", got, want);
            r->worst = part > r->worst ? part : r->worst;
        }
        i_cpu += !is_padding;
    }
}

static void run_case(struct rig *r, const struct att_case *c)
{
    struct scene s;
    struct pass p = {0};
    scene_open(r, c, &s);
    scene_write(r, &s);
    pass_make(r, &s, &p);
    struct attention_params cpu = params_of(&s, &p);
    r->cpu->ops->math.attention(r->cpu, &cpu);
    cpu.out.data = p.bound;
    cpu.kv = &s.bound;
    r->cpu->ops->math.attention(r->cpu, &cpu);
    uint16_t *out = mem_array((uint64_t)p.n * p.out_width, sizeof *out);
    attend_twice(r, &s, &p, out);
    compare(r, &s, &p, out);
    mem_free(out);
    pass_free(&p);
    scene_close(r, &s);
    r->n_cases++;
}

/* Each row must be in one tile, each tile must have rows of one sequence, and small passes must
 * have an entry for each row. */
static void run_tiles(struct rig *r)
{
    static const uint32_t table_a[1], table_b[1];
    const struct att_case c = {0};
    struct kv_row rows[300];
    struct gpu_tile tiles[300];
    for (uint32_t n_rows = 1; n_rows <= 300; n_rows += n_rows < 70 ? 1 : 46) {
        uint32_t seen = 0, position = 0, i_tile;
        /* a sequence has this many rows on average */
        const uint32_t run = random_u32(&r->rng) % 2 ? 40 : 4;
        for (uint32_t i = 0; i < n_rows; i++) {
            if (random_u32(&r->rng) % run == 0)
                position += 5;
            rows[i] = (struct kv_row){random_u32(&r->rng) % 30 ? table_a : table_b, 0, position++};
            if (random_u32(&r->rng) % 20 == 0)
                rows[i].position = KV_ROW_NONE;
        }
        const struct gpu_tile_counts n = gpu_tiles_find(rows, n_rows, tiles);
        if (n_rows <= GPU_FEW_PASS_ROWS && (n.n_few != n_rows || n.n_many_tiles))
            fail(r, &c, "entries of a small pass", n.n_few, n_rows);
        if (gpu_tiles_are_few(rows, n_rows) != (n.n_many_tiles == 0))
            fail(r, &c, "whether tiles are of few rows", n.n_many_tiles, 0);
        for (i_tile = 0; i_tile < n.n_few + n.n_many_tiles; i_tile++) {
            const struct gpu_tile *t = &tiles[i_tile];
            const bool many = i_tile >= n.n_few;
            if (t->n_rows > (many ? GPU_TILE_ROWS : GPU_TILE_FEW_ROWS) ||
                (many && t->n_rows <= GPU_TILE_FEW_ROWS) || t->first_row + t->n_rows > n_rows)
                fail(r, &c, "rows of a tile", t->n_rows, GPU_TILE_ROWS);
            for (uint32_t i = 1; i < t->n_rows; i++)
                if (rows[t->first_row + i].blocks != rows[t->first_row].blocks ||
                    rows[t->first_row + i].position != rows[t->first_row].position + i)
                    fail(r, &c, "position in a tile", rows[t->first_row + i].position, i);
            seen += many ? t->n_rows : 1;
        }
        if (seen != n_rows || n.n_few + n.n_many_rows != n_rows)
            fail(r, &c, "rows in tiles", seen, n_rows);
    }
}

static void run_refused(struct rig *r)
{
    struct error err = {0};
    struct kv_cache kv = {.dtype = DTYPE_BF16,
                          .n_kv_heads = 1,
                          .head_dim = 512,
                          .v_dim = 512,
                          .block_tokens = 16,
                          .block_stride = 32768};
    struct cuda_attention_params p = {.p = {.n_rows = 1, .n_heads = 1, .group = 1, .kv = &kv}};
    const struct att_case c = {.head_dim = 512};
    kv_layout(&kv, (uint8_t *)64, false);
    if (cuda_attention(r->stream, &p, &err) != STATUS_UNSUPPORTED)
        fail(r, &c, "heads of 512 dimensions were taken", 0, 1);
    p.p.n_rows = 0;
    kv.head_dim = kv.v_dim = 64;
    must(cuda_attention(r->stream, &p, &err), &err, "no rows");
}

/* Tests decode, draft tokens, prefill and mixtures with the shapes of models, at random. */
static void run_large(struct rig *r)
{
    static const uint32_t dims[] = {64, 96, 128, 256, 80, 32, 576, 112};
    static const enum dtype types[] = {DTYPE_BF16, DTYPE_F8_E4M3, DTYPE_I8, DTYPE_F16};
    static const uint32_t rows[] = {1, 1, 2, 5, 17, 70, 200};
    for (uint32_t i = 0; i < 200; i++) {
        const uint32_t dim = dims[random_u32(&r->rng) % 8], group = 1u << random_u32(&r->rng) % 5;
        const bool latent = dim == 576;
        struct att_case c = {.group = group,
                             .n_heads = latent ? group : group * (1 + random_u32(&r->rng) % 3),
                             .head_dim = dim,
                             .v_dim = latent ? 512 : 0,
                             .dtype =
                                 types[random_u32(&r->rng) % 8 > 3 ? 0 : random_u32(&r->rng) % 4],
                             .block_tokens = random_u32(&r->rng) % 4 ? 16 : 20,
                             .window = random_u32(&r->rng) % 3 ? 0 : 1 + random_u32(&r->rng) % 200,
                             .softcap = random_u32(&r->rng) % 4 ? 0 : 20,
                             .flags = random_u32(&r->rng) % 16,
                             .n_splits = random_u32(&r->rng) % 9,
                             .pad = random_u32(&r->rng) % 3 ? 0 : random_u32(&r->rng) % 9,
                             .n_shared = random_u32(&r->rng) % 2 ? 64 : 0};
        const uint32_t n = 1 + random_u32(&r->rng) % MAX_SEQUENCES;
        for (uint32_t k = 0; k < n; k++) {
            c.sequences[k].before = random_u32(&r->rng) % 2 ? random_u32(&r->rng) % 700 : 0;
            c.sequences[k].n = rows[random_u32(&r->rng) % 7];
        }
        if (c.window)
            c.n_shared = 0;
        run_case(r, &c);
    }
}

int main(int argc, char **argv)
{
    const bool is_small = argc > 1 && !strcmp(argv[1], "--small");
    const struct cpu_device_options cpu = {.n_threads = 1, .isa_level = -1};
    struct rig r = {.rng = {.state = 88172645463325252ull}};
    struct gpu_info info;
    struct error err = {0};
    if (gpu_open(&r.device, &r.stream, &info) != 0)
        return 77;
    must(cpu_device_open(&cpu, &r.cpu, &err), &err, "CPU");
    run_tiles(&r);
    run_refused(&r);
    for (size_t i = 0; i < N_SMALL; i++)
        run_case(&r, &small_cases[i]);
    if (!is_small)
        run_large(&r);
    printf("attention_test: %u cases on %s, largest error %.2f of its bound, %u failures\n",
           r.n_cases, info.name, r.worst, r.n_failures);
    r.cpu->ops->close(r.cpu);
    gpu_close(r.device, r.stream);
    return r.n_failures ? 1 : 0;
}
