/* Tests the bits of the kernels, as digests in this file, for each level with fused
 * multiply-adds. All machines and architectures must give the same bits. A changed digest means
 * that the output of models changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "kernels/cpu/dot/sets.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/linear/rounded.h"
#include "kernels/kv_layout.h"
#include "tests/unit/kernels/cpu/weights_fixture.h"

#define TABLE(upper, lower) &cpu_kernels_##lower,
static const struct cpu_kernels *const tables[] = {CPU_VECTOR_LEVELS(TABLE)};
#define SET(set, level) {&dot_kernels_##set, CPU_ISA_##level},
static const struct {
    const struct dot_kernels *kernels;
    enum cpu_isa level;
} sets[] = {DOT_SETS(SET)};
enum { N_SETS = sizeof sets / sizeof *sets, MAX_ROWS = 17, N = 40, K = 512 };

/* Adds bytes to an FNV-1a digest. */
static void add(uint64_t *digest, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        *digest = (*digest ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3u;
}
static void check(const char *level, const char *what, uint64_t got, uint64_t want)
{
    if (got != want)
        fail_msg("%s, %s: the digest is 0x%016llx, not 0x%016llx", level, what,
                 (unsigned long long)got, (unsigned long long)want);
}
static void fill(struct rng *r, float *x, uint32_t n, float size)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = size * random_float(r);
}

static void test_linear(void **state)
{
    static const uint32_t n_rows[] = {1, 3, MAX_ROWS};
    static float x[MAX_ROWS * K], out[MAX_ROWS * N], scratch[LINEAR_SCRATCH_FLOATS];
    for (uint32_t level = CPU_ISA_FUSED; level <= cpu_isa_best(); level++) {
        const struct cpu_kernels *k = tables[level - CPU_ISA_FUSED];
        struct rng r = {11};
        uint64_t digest = 0;
        for (uint32_t i = 0; i < N_PACKED_DTYPES; i++) {
            struct matrix m = matrix_new(&r, packed_dtypes[i], N, K);
            fill(&r, x, MAX_ROWS * K, 2);
            for (uint32_t j = 0; j < sizeof n_rows / sizeof *n_rows; j++) {
                k->linear(&(struct linear_task){.w = &m.w,
                                                .x = x,
                                                .out = out,
                                                .n_rows = n_rows[j],
                                                .x_stride = K,
                                                .out_stride = N,
                                                .panel_end = (N + PANEL_N - 1) / PANEL_N,
                                                .scratch = scratch});
                add(&digest, out, sizeof(float) * n_rows[j] * N);
            }
            matrix_free(&m);
        }
        check(k->isa, "products of floats", digest, 0xebde00316570cbab);
    }
}

static void test_rounded(void **state)
{
    static float x[MAX_ROWS * K], out[MAX_ROWS * N], scratch[LINEAR_SCRATCH_FLOATS];
#define ROUNDED_SET(set, level) &rounded_kernels_##set,
    static const struct rounded_kernels *const all[] = {ROUNDED_SETS(ROUNDED_SET)};
    for (uint32_t s = 0; s < sizeof all / sizeof *all; s++) {
        if (!rounded_kernels_run(all[s]))
            continue;
        const uint32_t stride = rounded_stride(all[s], K);
        struct rng r = {15};
        struct matrix m = matrix_new(&r, DTYPE_BF16, N, K);
        float *rows = mem_array((uint64_t)MAX_ROWS * stride, sizeof *rows);
        uint64_t digest = 0;
        fill(&r, x, MAX_ROWS * K, 2);
        for (uint32_t i = 0; i < MAX_ROWS; i++)
            all[s]->round(rows + (uint64_t)i * stride, x + (size_t)i * K, K);
        rounded_linear(all[s], &(struct linear_task){.w = &m.w,
                                                     .x = rows,
                                                     .out = out,
                                                     .n_rows = MAX_ROWS,
                                                     .x_stride = stride,
                                                     .out_stride = N,
                                                     .panel_end = (N + PANEL_N - 1) / PANEL_N,
                                                     .scratch = scratch});
        add(&digest, out, sizeof out);
        mem_free(rows);
        matrix_free(&m);
        check(all[s]->name ? all[s]->name : "a level", "products of bfloat16", digest,
              0xd0c72d81cb686275);
    }
}

#define DTYPE_OF(name) DTYPE_##name,
static void test_codes(void **state)
{
    static const enum dtype dtypes[] = {DOT_FORMATS(DTYPE_OF)};
    static float x[MAX_ROWS * K], out[MAX_ROWS * N];
    const uint32_t n_places = dot_n_places(MAX_ROWS);
    for (uint32_t s = 0; s < N_SETS; s++) {
        const struct dot_kernels *k = sets[s].kernels;
        if (sets[s].level == CPU_ISA_SCALAR || !dot_kernels_run(k))
            continue;
        struct rng r = {12};
        uint64_t digest = 0;
        struct dot_rows rows = {.n_rows = MAX_ROWS, .k = K};
        rows.codes = mem_array((uint64_t)n_places * K, 1);
        rows.groups = mem_array((uint64_t)n_places * K / DOT_GROUP, sizeof *rows.groups);
        for (uint32_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
            struct matrix m = matrix_new(&r, dtypes[i], N, K);
            for (uint32_t j = 0; j < (N + PANEL_N - 1) / PANEL_N; j++)
                dot_pack_panel(&m.w, &m.rows, j);
            fill(&r, x, MAX_ROWS * K, 2);
            for (uint32_t j = 0; j * DOT_TILE < MAX_ROWS; j++)
                dot_quantise_rows(k, x, K, &rows, j);
            k->linear(&(struct dot_task){.w = &m.w,
                                         .x = &rows,
                                         .out = out,
                                         .out_stride = N,
                                         .panel_end = (N + PANEL_N - 1) / PANEL_N});
            add(&digest, out, sizeof out);
            matrix_free(&m);
        }
        mem_free(rows.codes);
        mem_free(rows.groups);
        check(k->name ? k->name : cpu_isa_name(sets[s].level), "products of codes", digest,
              0xcde88be26a0a11df);
    }
}

static void test_rows(void **state)
{
    enum { DIM = 331 };
    static float x[DIM], y[DIM], out[DIM];
    for (uint32_t level = CPU_ISA_FUSED; level <= cpu_isa_best(); level++) {
        const struct cpu_kernels *k = tables[level - CPU_ISA_FUSED];
        struct rng r = {13};
        uint64_t digest = 0;
        for (float size = 0x1p-20f; size < 1000; size *= 16) {
            fill(&r, x, DIM, size);
            fill(&r, y, DIM, 2);
            float squares = k->sum_squares(x, DIM);
            double sum = k->sum_exp(x, DIM, size / 2);
            add(&digest, &squares, sizeof squares);
            add(&digest, &sum, sizeof sum);
            k->norm(out, x, y, DIM, squares / DIM);
            add(&digest, out, sizeof out);
            for (enum activation act = 0; act < ACT_COUNT; act++) {
                k->gated(out, x, y, DIM, act, 1.5f);
                add(&digest, out, sizeof out);
            }
            k->softcap(x, DIM, 30);
            k->add_scaled(x, y, DIM, 0.3f);
            k->rope(x, y, DIM - 1, false);
            k->rope(x, y, DIM - 1, true);
            add(&digest, x, sizeof x);
        }
        check(k->isa, "operators of rows", digest, 0x27955c0a1f86c347);
    }
}

/* Returns the digest of attention over 300 tokens in blocks of 64, with four heads to a KV head. */
static uint64_t attention_digest(const struct cpu_kernels *k, enum dtype dtype)
{
    enum { DIM = 72, TOKENS = 300, BLOCK = 64, N_BLOCKS = 5, HEADS = 4 };
    static const uint32_t blocks[N_BLOCKS] = {3, 0, 4, 1, 2};
    struct rng r = {14};
    struct kv_cache kv = {
        .dtype = dtype, .n_kv_heads = 1, .head_dim = DIM, .v_dim = DIM, .block_tokens = BLOCK};
    kv.block_stride = 2 * kv_keys_bytes(dtype, 1, DIM, BLOCK, false);
    uint8_t *memory = mem_array(N_BLOCKS * kv.block_stride, 1);
    memset(memory, 0, N_BLOCKS * kv.block_stride);
    kv_layout(&kv, memory, false);
    for (uint32_t t = 0; t < TOKENS; t++)
        for (int values = 0; values < 2; values++) {
            float x[DIM];
            uint32_t block = blocks[t / BLOCK], at = t % BLOCK;
            uint8_t *to = (uint8_t *)(values ? kv.v : kv.k) + block * kv.block_stride;
            float *scales = kv.k_scales ? kv_scales(&kv, values, block, 0) + at : NULL;
            fill(&r, x, DIM, 2);
            k->kv_store(to + at * DIM * kv_elem_bytes(dtype), dtype, scales, x, DIM);
        }
    float q[HEADS * DIM], out[HEADS * DIM];
    fill(&r, q, HEADS * DIM, 2);
    float *scratch = mem_array(attention_scratch_floats(HEADS, &kv), sizeof *scratch);
    const struct kv_row row = {.blocks = blocks, .position = TOKENS - 1};
    k->attention(&(struct attention_params){.q = {q, HEADS * DIM},
                                            .out = {out, HEADS * DIM},
                                            .rows = &row,
                                            .n_rows = 1,
                                            .n_heads = HEADS,
                                            .group = HEADS,
                                            .scale = 0.118f,
                                            .kv = &kv},
                 0, 0, scratch);
    uint64_t digest = 0;
    add(&digest, out, sizeof out);
    add(&digest, memory, N_BLOCKS * kv.block_stride);
    mem_free(memory);
    mem_free(scratch);
    return digest;
}

static void test_attention(void **state)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_F8_E4M3, DTYPE_I8};
    for (uint32_t level = CPU_ISA_FUSED; level <= cpu_isa_best(); level++) {
        const struct cpu_kernels *k = tables[level - CPU_ISA_FUSED];
        uint64_t digest = 0;
        for (uint32_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
            uint64_t one = attention_digest(k, dtypes[i]);
            add(&digest, &one, sizeof one);
        }
        check(k->isa, "attention", digest, 0xf9dde479398d15c9);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),    cmocka_unit_test(test_rounded),
        cmocka_unit_test(test_codes),     cmocka_unit_test(test_rows),
        cmocka_unit_test(test_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
