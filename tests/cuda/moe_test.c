/* Tests cuda_moe, cuda_heads and cuda_adapters against the CPU backend with the same bfloat16
 * numbers. Cases: every format, odd shapes, experts without a row and one with all rows, experts
 * of other ranks, and a scratch that is too small for all rows at once. The operators may not
 * write outside of the rows. The test runs on a device and over the emulation. Exit status 77
 * means that there is no device.
 *   moe_test          all shapes
 *   moe_test --small  the shapes that the emulation runs in seconds */
#include "tests/cuda/rig/moe_rig.h"

enum spread { SPREAD_ANY, SPREAD_ONE, SPREAD_FEW };

struct moe_case {
    const char *name;
    enum dtype gate, up, down;
    uint32_t group, n_rows, n_experts, n_chosen, first, n, dim, width;
    enum activation act;
    enum spread spread;
    bool has_bias;
    /* max_rows: number of rows that fit into the scratch; 0 = all */
    uint32_t pad, offset, max_rows;
};
#define ALIKE(dtype) dtype, dtype, dtype

static const struct moe_case small_cases[] = {
    {"one row", ALIKE(DTYPE_BF16), 0, 1, 8, 2, 0, 8, 128, 96, ACT_SILU, 0, false, 0, 0, 0},
    {"few rows", ALIKE(DTYPE_BF16), 0, 8, 8, 3, 0, 8, 72, 40, ACT_GELU_TANH, 0, true, 8, 8, 0},
    {"askew", ALIKE(DTYPE_BF16), 0, 5, 4, 2, 0, 4, 75, 33, ACT_SILU, 0, true, 3, 1, 0},
    {"small tiles", ALIKE(DTYPE_BF16), 0, 37, 8, 2, 0, 8, 136, 50, ACT_SILU, 0, false, 0, 0, 0},
    {"another rank's", ALIKE(DTYPE_BF16), 0, 6, 9, 3, 3, 4, 64, 48, ACT_SILU, 0, false, 0, 0, 0},
    {"none are here", ALIKE(DTYPE_BF16), 0, 4, 9, 3, 9, 0, 64, 48, ACT_SILU, 0, false, 1, 0, 0},
    {"one has all", ALIKE(DTYPE_BF16), 0, 40, 4, 1, 0, 4, 64, 48, ACT_SILU, SPREAD_ONE, true, 0, 0,
     0},
    {"more than a chunk", ALIKE(DTYPE_BF16), 0, 3, 16, 11, 2, 12, 68, 48, ACT_SILU, 0, false, 0, 0,
     0},
    {"more than a list", ALIKE(DTYPE_BF16), 0, 2, 41, 35, 0, 40, 36, 16, ACT_SILU, 0, false, 2, 1,
     0},
    {"one row, a list", ALIKE(DTYPE_BF16), 0, 1, 36, 33, 1, 34, 1028, 16, ACT_SILU, 0, false, 0, 0,
     0},
    {"in turns", ALIKE(DTYPE_BF16), 0, 19, 4, 2, 0, 4, 64, 48, ACT_SILU, 0, false, 0, 0, 7},
    {"wide", ALIKE(DTYPE_BF16), 0, 2, 2, 1, 0, 2, 2176, 32, ACT_SILU, 0, false, 0, 0, 0},
    {"large tiles", ALIKE(DTYPE_BF16), 0, 70, 3, 2, 0, 3, 200, 152, ACT_SWIGLU_LIMITED, 0, true, 0,
     0, 0},
    {"large, one has all", ALIKE(DTYPE_BF16), 0, 150, 4, 2, 1, 2, 64, 40, ACT_SILU, SPREAD_FEW,
     false, 0, 0, 0},
    {"Q4_0", ALIKE(DTYPE_Q4_0), 0, 3, 4, 2, 0, 4, 160, 96, ACT_SILU, 0, false, 0, 0, 0},
    {"Q4_1", ALIKE(DTYPE_Q4_1), 0, 12, 4, 2, 0, 4, 160, 96, ACT_SILU, 0, false, 0, 0, 0},
    {"Q5_0", ALIKE(DTYPE_Q5_0), 0, 3, 4, 2, 0, 4, 160, 96, ACT_SILU, 0, false, 0, 0, 0},
    {"Q5_1", ALIKE(DTYPE_Q5_1), 0, 12, 4, 2, 0, 4, 160, 96, ACT_SILU, 0, false, 0, 0, 0},
    {"Q8_0", ALIKE(DTYPE_Q8_0), 0, 12, 4, 2, 0, 4, 160, 96, ACT_SILU, 0, false, 0, 0, 0},
    {"Q2_K", ALIKE(DTYPE_Q2_K), 0, 3, 2, 1, 0, 2, 256, 256, ACT_SILU, 0, false, 0, 0, 0},
    {"Q3_K", ALIKE(DTYPE_Q3_K), 0, 3, 2, 1, 0, 2, 256, 256, ACT_SILU, 0, false, 0, 0, 0},
    {"Q4_K, Q6_K", DTYPE_Q4_K, DTYPE_Q4_K, DTYPE_Q6_K, 0, 3, 2, 1, 0, 2, 256, 256, ACT_SILU, 0,
     false, 0, 0, 0},
    {"Q5_K", ALIKE(DTYPE_Q5_K), 0, 3, 2, 1, 0, 2, 256, 256, ACT_SILU, 0, false, 0, 0, 0},
    {"gate and up differ", DTYPE_Q4_0, DTYPE_Q8_0, DTYPE_BF16, 0, 3, 3, 2, 0, 3, 160, 64, ACT_SILU,
     0, true, 0, 0, 0},
    {"one is plain", DTYPE_BF16, DTYPE_INT8, DTYPE_Q4_1, 0, 3, 3, 2, 0, 3, 160, 64, ACT_SILU, 0,
     true, 0, 0, 0},
    {"IQ4_NL", ALIKE(DTYPE_IQ4_NL), 0, 3, 4, 2, 0, 4, 96, 64, ACT_SILU, 0, false, 0, 0, 0},
    {"INT4 of 128", ALIKE(DTYPE_INT4), 128, 3, 4, 2, 0, 4, 256, 128, ACT_SILU, 0, false, 0, 0, 0},
    {"INT8 of 64", ALIKE(DTYPE_INT8), 64, 3, 4, 2, 0, 4, 192, 128, ACT_SILU, 0, false, 0, 0, 0},
    {"FP8 of all", ALIKE(DTYPE_FP8), 4096, 3, 4, 2, 0, 4, 192, 96, ACT_SILU, 0, false, 0, 0, 0},
    {"MXFP4", ALIKE(DTYPE_MXFP4), 0, 12, 4, 2, 0, 4, 96, 64, ACT_SWIGLU_LIMITED, 0, true, 0, 0, 0},
    {"large Q4_0", ALIKE(DTYPE_Q4_0), 0, 40, 2, 1, 0, 2, 160, 96, ACT_SILU, 0, true, 0, 0, 0},
    {"large Q4_1", ALIKE(DTYPE_Q4_1), 0, 40, 2, 1, 0, 2, 96, 64, ACT_SILU, 0, false, 0, 0, 0},
    {"large Q6_K", ALIKE(DTYPE_Q6_K), 0, 40, 2, 1, 0, 2, 256, 256, ACT_SILU, 0, false, 0, 0, 0},
    {"large INT8", ALIKE(DTYPE_INT8), 0, 40, 2, 1, 0, 2, 160, 96, ACT_SILU, 0, false, 0, 0, 0},
    {"large FP8", ALIKE(DTYPE_FP8), 64, 40, 2, 1, 0, 2, 192, 64, ACT_SILU, 0, false, 0, 0, 0},
    {"large MXFP4", ALIKE(DTYPE_MXFP4), 0, 40, 2, 1, 0, 2, 96, 64, ACT_SILU, 0, false, 0, 0, 0},
    {"large, they differ", DTYPE_BF16, DTYPE_Q5_1, DTYPE_INT4, 0, 40, 2, 1, 0, 2, 96, 96, ACT_SILU,
     0, false, 0, 0, 0},
};

/* `large_cases` have the shapes of models, or similar shapes. */
static const struct moe_case large_cases[] = {
    {"decode", ALIKE(DTYPE_BF16), 0, 1, 64, 6, 0, 64, 2048, 1408, ACT_SILU, 0, false, 0, 0, 0},
    {"batch", ALIKE(DTYPE_BF16), 0, 64, 64, 6, 0, 64, 512, 352, ACT_SILU, 0, false, 0, 0, 0},
    {"batch INT4", ALIKE(DTYPE_INT4), 128, 64, 64, 6, 16, 32, 512, 384, ACT_SILU, 0, false, 0, 0,
     0},
    {"prefill", ALIKE(DTYPE_BF16), 0, 700, 16, 4, 0, 16, 320, 288, ACT_SILU, 0, true, 0, 0, 0},
    {"prefill INT4", ALIKE(DTYPE_INT4), 128, 700, 16, 4, 0, 16, 384, 256, ACT_SILU, 0, false, 0, 0,
     0},
    {"prefill, one has all", ALIKE(DTYPE_Q8_0), 0, 600, 8, 1, 0, 8, 256, 256, ACT_SILU, SPREAD_ONE,
     false, 0, 0, 0},
    {"all chosen", ALIKE(DTYPE_BF16), 0, 33, 16, 16, 0, 16, 264, 80, ACT_SILU, 0, false, 0, 0, 0},
};

struct moe_arrays {
    struct both_weight *weights; /* gate, up and down of each expert on this rank */
    float *biases;               /* shape [n][3][most]: 0 beyond the outputs of a narrower matrix */
    struct moe_expert *cpu, *gpu;
    uint32_t *ids;
    float *shares;
    void *d_biases, *d_table, *d_ids, *d_shares;
};

static void make_choice(struct rig *r, const struct moe_case *c, uint32_t *ids, float *shares)
{
    for (uint32_t i = 0; i < c->n_rows; i++) {
        const uint32_t n = c->spread == SPREAD_FEW ? c->n_chosen + 1 : c->n_experts;
        uint32_t left = c->n_chosen, *row = ids + (size_t)i * c->n_chosen;
        for (uint32_t e = c->spread == SPREAD_ONE ? 1 : 0; left > 0; e++)
            if (c->spread == SPREAD_ONE || rng_below(&r->rng, n - e) < left) {
                *row++ = e;
                left--;
            }
        for (uint32_t k = 0; k < c->n_chosen; k++)
            shares[i * c->n_chosen + k] = 0.5f + random_float(&r->rng) * 0.4f;
    }
}

static void make_experts(struct rig *r, const struct moe_case *c, struct moe_arrays *m)
{
    const uint32_t most = c->dim > c->width ? c->dim : c->width;
    const uint64_t n_biases = 3ull * c->n * most;
    struct error err = {0};
    m->weights = mem_array(3 * c->n + 1, sizeof *m->weights);
    m->biases = mem_array(n_biases + 1, sizeof *m->biases);
    m->cpu = mem_array(c->n + 1, sizeof *m->cpu);
    m->gpu = mem_array(c->n + 1, sizeof *m->gpu);
    for (uint64_t i = 0; i < n_biases; i++)
        m->biases[i] = random_float(&r->rng);
    m->d_biases = on_device(r, m->biases, n_biases * sizeof *m->biases);
    for (uint32_t e = 0; e < c->n; e++) {
        struct both_weight *w = m->weights + (size_t)3 * e;
        w[0] = weight_new(r, c->gate, c->width, c->dim, c->group);
        w[1] = weight_new(r, c->up, c->width, c->dim, c->group);
        w[2] = weight_new(r, c->down, c->dim, c->width, c->group);
        const float *b = m->biases + 3ull * e * most;
        const float *d = (const float *)m->d_biases + 3ull * e * most;
        const size_t step = c->has_bias ? most : 0;
        m->cpu[e] =
            (struct moe_expert){&w[0].cpu.w, &w[1].cpu.w, &w[2].cpu.w, b, b + step, b + 2 * step};
        m->gpu[e] = (struct moe_expert){&w[0].gpu, &w[1].gpu, &w[2].gpu, d, d + step, d + 2 * step};
        if (!c->has_bias)
            for (int side = 0; side < 2; side++) {
                struct moe_expert *x = side ? &m->gpu[e] : &m->cpu[e];
                x->gate_bias = x->up_bias = x->down_bias = NULL;
            }
    }
    const uint64_t n_bytes = cuda_expert_table_bytes(c->n);
    void *table = mem_array(n_bytes + 1, 1);
    must(cuda_expert_table_fill(m->gpu, c->n, table, &err), &err, c->name);
    m->d_table = on_device(r, table, n_bytes);
    mem_free(table);
}

static void free_arrays(struct rig *r, const struct moe_case *c, struct moe_arrays *m)
{
    for (uint32_t i = 0; i < 3 * c->n; i++)
        weight_free(r, &m->weights[i]);
    void *host[] = {m->weights, m->biases, m->cpu, m->gpu, m->ids, m->shares};
    void *device[] = {m->d_biases, m->d_table, m->d_ids, m->d_shares};
    for (size_t i = 0; i < sizeof host / sizeof *host; i++)
        mem_free(host[i]);
    for (size_t i = 0; i < sizeof device / sizeof *device; i++)
        gpu_release(r->gpu, device[i]);
}

/* Runs the CPU's operator with separate scratch. */
static void run_cpu(struct rig *r, const struct moe_case *c, struct moe_params *p)
{
    float *rooms[4];
    const uint32_t widths[4] = {c->dim, c->width, c->width, c->dim};
    struct view *views[4] = {&p->gathered, &p->gate, &p->up, &p->result};
    for (int i = 0; i < 4; i++) {
        rooms[i] = mem_array((uint64_t)c->n_rows * widths[i], sizeof **rooms);
        *views[i] = (struct view){rooms[i], widths[i]};
    }
    p->list = mem_array(c->n_rows, sizeof *p->list);
    r->cpu->ops->math.moe(r->cpu, p);
    for (int i = 0; i < 4; i++)
        mem_free(rooms[i]);
    mem_free(p->list);
}

static void run_moe(struct rig *r, const struct moe_case *c)
{
    struct error err = {0};
    struct moe_arrays m = {0};
    const uint64_t n_pairs = (uint64_t)c->n_rows * c->n_chosen;
    r->name = c->name;
    make_experts(r, c, &m);
    m.ids = mem_array(n_pairs, sizeof *m.ids);
    m.shares = mem_array(n_pairs, sizeof *m.shares);
    make_choice(r, c, m.ids, m.shares);
    m.d_ids = on_device(r, m.ids, n_pairs * sizeof *m.ids);
    m.d_shares = on_device(r, m.shares, n_pairs * sizeof *m.shares);
    struct both x = both_new(r, c->n_rows, c->dim, c->pad, c->offset);
    struct both out = both_new(r, c->n_rows, c->dim, c->pad, c->offset);
    struct moe_params p = {.x = x.cpu,
                           .out = out.cpu,
                           .n_rows = c->n_rows,
                           .dim = c->dim,
                           .n_chosen = c->n_chosen,
                           .first = c->first,
                           .n = c->n,
                           .ids = m.ids,
                           .shares = m.shares,
                           .experts = m.cpu,
                           .act = c->act,
                           .limit = 2};
    run_cpu(r, c, &p);
    struct moe_params q = p;
    q.x = x.gpu;
    q.out = out.gpu;
    q.ids = m.d_ids;
    q.shares = m.d_shares;
    q.experts = m.gpu;
    q.table = m.d_table;
    const uint32_t n_rows = c->max_rows ? c->max_rows : c->n_rows;
    const struct cuda_room room =
        room_new(r, cuda_moe_scratch(n_rows, c->n_chosen, c->dim, c->width, c->n));
    must(cuda_moe(r->stream, &q, &room, r->info.n_multiprocessors, &err), &err, c->name);
    both_compare(r, &out);
    gpu_release(r->gpu, room.ptr);
    both_free(r, &x);
    both_free(r, &out);
    free_arrays(r, c, &m);
    r->n_cases++;
}

/* ---- heads ---- */

struct heads_case {
    const char *name;
    enum dtype dtype;
    uint32_t n_rows, n_heads, n, k, in_gap, out_gap, offset;
};
static const struct heads_case heads_cases[] = {
    {"heads, one row", DTYPE_BF16, 1, 3, 64, 128, 64, 8, 0},
    {"heads, few rows", DTYPE_BF16, 7, 5, 72, 40, 0, 0, 0},
    {"heads, askew", DTYPE_BF16, 19, 2, 33, 21, 5, 3, 1},
    {"heads, many rows", DTYPE_BF16, 140, 2, 100, 72, 8, 1, 0},
    {"heads, quantised", DTYPE_Q8_0, 20, 3, 48, 96, 8, 0, 0},
    {"heads, many quantised rows", DTYPE_Q4_K, 35, 1, 40, 256, 0, 0, 0},
};

static void run_heads(struct rig *r, const struct heads_case *c)
{
    struct error err = {0};
    struct both_weight w[8];
    const struct weight *gpu[8];
    const uint32_t in = c->k + c->in_gap, out = c->n + c->out_gap;
    r->name = c->name;
    struct both x = both_new(r, c->n_rows, c->n_heads * in, 0, c->offset);
    struct both y = both_new(r, c->n_rows, c->n_heads * out, 0, c->offset);
    for (uint32_t h = 0; h < c->n_heads; h++) {
        w[h] = weight_new(r, c->dtype, c->n, c->k, 0);
        gpu[h] = &w[h].gpu;
        const struct linear_params p = {
            .x = {(float *)x.cpu.data + (size_t)h * in, x.stride},
            .n_rows = c->n_rows,
            .n_parts = 1,
            .parts = {
                {.w = &w[h].cpu.w, .out = {(float *)y.cpu.data + (size_t)h * out, y.stride}}}};
        r->cpu->ops->math.linear(r->cpu, &p);
    }
    const uint64_t n_bytes = cuda_head_table_bytes(c->n_heads);
    void *table = mem_array(n_bytes, 1);
    must(cuda_head_table_fill(gpu, c->n_heads, table, &err), &err, c->name);
    void *d_table = on_device(r, table, n_bytes);
    const struct cuda_room room = room_new(r, cuda_heads_scratch(c->n_rows, c->n_heads, c->k));
    const struct heads_params p = {.x = x.gpu,
                                   .out = y.gpu,
                                   .n_rows = c->n_rows,
                                   .n_heads = c->n_heads,
                                   .in_stride = in,
                                   .out_stride = out,
                                   .first = gpu[0],
                                   .table = d_table};
    must(cuda_heads(r->stream, &p, &room, r->info.n_multiprocessors, &err), &err, c->name);
    both_compare(r, &y);
    for (uint32_t h = 0; h < c->n_heads; h++)
        weight_free(r, &w[h]);
    gpu_release(r->gpu, room.ptr);
    gpu_release(r->gpu, d_table);
    mem_free(table);
    both_free(r, &x);
    both_free(r, &y);
    r->n_cases++;
}

/* ---- adapters ---- */

struct lora_case {
    const char *name;
    uint32_t n_rows, n_adapters, most_rank, k, n, pad, offset;
    bool to_float;      /* the sums are added to floats */
    uint32_t n_parts;   /* number of matrices side by side */
    uint32_t room_rows; /* number of rows that fit into the scratch; 0 = the requested size */
};
static const struct lora_case lora_cases[] = {
    {"one adapter", 1, 1, 16, 128, 72, 0, 0, false, 1, 0},
    {"ranks of a few", 20, 3, 24, 72, 48, 0, 0, false, 1, 0},
    {"adapters, askew", 11, 2, 7, 37, 21, 3, 1, false, 2, 0},
    {"a tile each", 60, 20, 8, 64, 40, 0, 0, false, 1, 0},
    {"more adapters than rows", 5, 20, 8, 64, 40, 0, 0, false, 3, 0},
    {"no row has one", 6, 0, 8, 64, 40, 0, 0, false, 1, 0},
    {"three matrices", 8, 3, 16, 136, 72, 0, 0, false, 3, 0},
    {"many rows", 300, 2, 16, 64, 136, 0, 0, false, 2, 0},
    {"a large rank", 150, 1, 80, 64, 40, 8, 0, false, 1, 0},
    {"in turns", 150, 2, 16, 64, 72, 0, 0, false, 2, 20},
    {"in turns, askew", 90, 3, 8, 37, 40, 0, 0, false, 2, 7},
    {"to float", 21, 2, 16, 64, 40, 3, 1, true, 1, 0},
};
enum { MAX_ADAPTERS = 20 };

/* Compares all `n` floats of the device with the CPU's result `want`, including those between
 * rows. */
static void compare_floats(struct rig *r, const struct both *want, const void *device, uint64_t n)
{
    float *got = mem_array(n, sizeof *got);
    from_device(r, got, device, n * sizeof *got);
    for (uint64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want->host[i]) <=
              0.1 + 0.02 * fabs((double)want->host[i])))
            failed(r, "float", (double)got[i], (double)want->host[i], i);
    mem_free(got);
}

struct lora_arrays {
    struct both_weight w[MAX_ADAPTERS][LINEAR_MAX_PARTS][2];
    struct lora_group groups[LINEAR_MAX_PARTS][MAX_ADAPTERS]; /* groups of the CPU, by part */
    uint32_t n_groups[LINEAR_MAX_PARTS];
    struct lora_pair pairs[MAX_ADAPTERS][LINEAR_MAX_PARTS]; /* pairs of the device */
    uint32_t first[MAX_ADAPTERS + 1], *list;
};

/* Makes the adapters. Some adapters lack pairs for some matrices, and some rows have no adapter. */
static void make_adapters(struct rig *r, const struct lora_case *c, struct lora_arrays *m)
{
    uint32_t n = 0;
    m->list = mem_array(c->n_rows, sizeof *m->list);
    for (uint32_t a = 0; a < c->n_adapters; a++) {
        m->first[a] = n;
        for (uint32_t row = 0; row < c->n_rows; row++)
            if (row % (c->n_adapters + (c->n_rows > 1)) == a)
                m->list[n++] = row;
        m->first[a + 1] = n;
        for (uint32_t i = 0; i < c->n_parts; i++) {
            const uint32_t rank =
                a == 0 ? c->most_rank : 1 + (uint32_t)rng_below(&r->rng, c->most_rank);
            struct both_weight *w = m->w[a][i];
            if ((a + i) % 4 == 3)
                continue;
            w[0] = weight_new(r, DTYPE_BF16, rank, c->k, 0);
            w[1] = weight_new(r, DTYPE_BF16, c->n + 8 * i, rank, 0);
            const float scale = 0.5f + (float)a;
            m->pairs[a][i] = (struct lora_pair){w[0].gpu, w[1].gpu, scale};
            m->groups[i][m->n_groups[i]++] =
                (struct lora_group){&w[0].cpu.w, &w[1].cpu.w, scale, m->first[a], n - m->first[a]};
        }
    }
}

static void free_adapters(struct rig *r, const struct lora_case *c, struct lora_arrays *m)
{
    for (uint32_t a = 0; a < c->n_adapters; a++)
        for (uint32_t i = 0; i < c->n_parts; i++)
            for (int k = 0; k < 2 && m->pairs[a][i].a.n > 0; k++)
                weight_free(r, &m->w[a][i][k]);
    mem_free(m->list);
}

static void run_lora_cpu(struct rig *r, const struct lora_case *c, const struct lora_arrays *m,
                         uint32_t part, struct view x, struct view out)
{
    const uint32_t n = c->n + 8 * part;
    float *rooms = mem_array((uint64_t)LORA_CHUNK_ROWS * (c->k + c->most_rank + n), sizeof *rooms);
    const uint32_t low = LORA_CHUNK_ROWS * c->k, high = low + LORA_CHUNK_ROWS * c->most_rank;
    r->cpu->ops->adapters.lora(r->cpu, &(struct lora_params){.x = x,
                                                             .out = out,
                                                             .rows = m->list,
                                                             .n_groups = m->n_groups[part],
                                                             .groups = m->groups[part],
                                                             .gathered = {rooms, c->k},
                                                             .low = {rooms + low, c->most_rank},
                                                             .high = {rooms + high, n}});
    mem_free(rooms);
}

/* Runs the device's operator, with tables and rows as the backend sends them. */
static void run_lora_gpu(struct rig *r, const struct lora_case *c, const struct lora_arrays *m,
                         struct adapters_params *p)
{
    struct error err = {0};
    const uint64_t n_entries = c->n_parts + 1, bytes = n_entries * cuda_adapter_bytes();
    uint8_t *table = mem_array(MAX_ADAPTERS, bytes);
    /* the parts are entry 1 and the entries after it */
    for (uint32_t a = 0; a < c->n_adapters; a++)
        must(cuda_adapter_table_fill(m->pairs[a], c->n_parts,
                                     table + a * bytes + cuda_adapter_bytes(), &err),
             &err, c->name);
    const uint64_t n_bytes = cuda_adapter_rows_bytes(c->n_rows, c->n_adapters);
    uint8_t *host = mem_array(n_bytes, 1);
    void *d_table = on_device(r, table, MAX_ADAPTERS * bytes),
         *d_rows = on_device(r, NULL, n_bytes);
    struct cuda_adapter_rows rows;
    cuda_adapter_rows_fill(&(struct adapter_rows){m->list, m->first, c->n_adapters, c->n_rows},
                           false, host, d_rows, &rows);
    must(gpu_copy_to_device(r->stream, d_rows, host, n_bytes, &err), &err, c->name);
    const struct cuda_room room =
        room_new(r, cuda_adapters_scratch(c->room_rows ? c->room_rows : c->n_rows, c->most_rank,
                                          c->room_rows ? 1 : c->k));
    p->k = c->k;
    p->rows = rows.list;
    p->table = d_table;
    p->stride = bytes;
    p->first = 1;
    p->n_parts = c->n_parts;
    p->most_rank = c->most_rank;
    must(cuda_adapters(r->stream, p, &rows, &room, r->info.n_multiprocessors, &err), &err, c->name);
    must(gpu_stream_sync(r->stream, &err), &err, c->name);
    gpu_release(r->gpu, room.ptr);
    gpu_release(r->gpu, d_table);
    gpu_release(r->gpu, d_rows);
    mem_free(table);
    mem_free(host);
}

static void run_lora(struct rig *r, const struct lora_case *c)
{
    struct lora_arrays m = {0};
    struct both out[LINEAR_MAX_PARTS];
    r->name = c->name;
    make_adapters(r, c, &m);
    struct both x = both_new(r, c->n_rows, c->k, c->pad, c->offset);
    struct adapters_params p = {.x = x.gpu, .to_float = c->to_float};
    float *floats = NULL;
    uint64_t n_floats = 0;
    for (uint32_t i = 0; i < c->n_parts; i++) {
        out[i] = both_new(r, c->n_rows, c->n + 8 * i, c->pad, c->offset);
        p.parts[i] = (struct adapters_part){out[i].gpu, c->n + 8 * i};
        if (c->to_float) {
            n_floats = (uint64_t)c->n_rows * out[i].stride + c->offset;
            floats = on_device(r, out[i].host, n_floats * sizeof *floats);
            p.parts[i].out = (struct view){floats + c->offset, out[i].stride};
        }
        run_lora_cpu(r, c, &m, i, x.cpu, out[i].cpu);
    }
    run_lora_gpu(r, c, &m, &p);
    for (uint32_t i = 0; i < c->n_parts; i++) {
        if (c->to_float)
            compare_floats(r, &out[i], floats, n_floats);
        else
            both_compare(r, &out[i]);
        both_free(r, &out[i]);
    }
    gpu_release(r->gpu, floats);
    free_adapters(r, c, &m);
    both_free(r, &x);
    r->n_cases++;
}

int main(int argc, char **argv)
{
    const bool is_small = argc > 1 && !strcmp(argv[1], "--small");
    struct rig r = {.name = "moe"};
    const int rc = rig_open(&r);
    if (rc)
        return rc;
    for (size_t i = 0; i < sizeof small_cases / sizeof *small_cases; i++)
        run_moe(&r, &small_cases[i]);
    for (size_t i = 0; i < sizeof large_cases / sizeof *large_cases && !is_small; i++)
        run_moe(&r, &large_cases[i]);
    for (size_t i = 0; i < sizeof heads_cases / sizeof *heads_cases; i++)
        run_heads(&r, &heads_cases[i]);
    for (size_t i = 0; i < sizeof lora_cases / sizeof *lora_cases; i++)
        run_lora(&r, &lora_cases[i]);
    printf("moe_test: %u cases, %u failures\n", r.n_cases, r.n_failures);
    rig_close(&r);
    return r.n_failures ? 1 : 0;
}
