/* Measures the rate of the matrix product on this machine: GB/s of packed weights and GFLOP/s
 * for the shapes of a small model. The same rounds measure the machine's limits: reading a large
 * buffer once, and fused multiply-adds on registers. Products with one row read their matrices
 * from memory, not from a cache: they use in turn as many copies as fill WORKING_SET.
 *
 *   bench_kernels [isa [dtype [rounds]]]    e.g. avx2 Q8_0 5; default: the best, all, 3
 *   bench_kernels avx512-vnni-codes Q4_0    with dot products of codes (kernels/cpu/dot/sets.h)
 *   bench_kernels avx512-bf16               with dot products of bfloat16
 * (kernels/cpu/linear/rounded.h)
 *
 * Numbers are medians over the rounds, of CPU time for one thread and of wall time for two. On a
 * machine with other users, compare only figures of one run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "bench/count.h"
#include "bench/cpu/ceilings.h"
#include "bench/median.h"
#include "bench/seconds.h"
#include "common/base/mem.h"
#include "kernels/cpu/dot/sets.h"
#include "kernels/cpu/linear/linear.h"
#include "kernels/cpu/linear/rounded.h"
#include "kernels/cpu/pack/pack.h"
#include "kernels/host/threads.h"

enum {
    MAX_THREADS = 2,
    MAX_ROUNDS = 15,
    MAX_ROWS = 512,
    MAX_CASES = 1024,
    TASK_PANELS = 16,
    MAX_K = 4096,
    ROUND_ROWS = 16
};
static const uint64_t WORKING_SET = 192ull << 20;

typedef void linear_fn(const struct linear_task *t);
struct isa {
    const char *name;
    enum cpu_isa level; /* instruction set of the ceilings */
    linear_fn *linear;
    const struct dot_kernels *dots; /* dot products of codes; NULL = the product uses floats */
    const struct rounded_kernels *rounded;
};
#define ISA(upper, lower) {#lower, CPU_ISA_##upper, linear_##lower, NULL, NULL},
static const struct isa isas[] = {
    CPU_LEVELS(ISA)
#ifdef __aarch64__
        {"neon-codes", CPU_ISA_NEON, linear_neon, &dot_kernels_neon, NULL},
    {"neon-dotprod-codes", CPU_ISA_NEON, linear_neon, &dot_kernels_neon_dotprod, NULL},
    {"neon-i8mm-codes", CPU_ISA_NEON, linear_neon, &dot_kernels_neon_i8mm, NULL}};
#else
        {"avx2-codes", CPU_ISA_AVX2, linear_avx2, &dot_kernels_avx2, NULL},
    {"avx2-vnni-codes", CPU_ISA_AVX2, linear_avx2, &dot_kernels_avx2_vnni, NULL},
    {"avx512-codes", CPU_ISA_AVX512, linear_avx512, &dot_kernels_avx512, NULL},
    {"avx512-vnni-codes", CPU_ISA_AVX512, linear_avx512, &dot_kernels_avx512_vnni, NULL},
    {"avx512-amx-codes", CPU_ISA_AVX512, linear_avx512, &dot_kernels_avx512_amx, NULL},
    {"avx512-bf16", CPU_ISA_AVX512, linear_avx512, NULL, &rounded_kernels_avx512_bf16}};
#endif

struct bench_case {
    enum dtype dtype;
    uint32_t n, k, n_rows, n_threads;
    double seconds[MAX_ROUNDS]; /* time of one product in each round */
};
struct bench {
    const struct isa *isa;
    struct pool *pools[MAX_THREADS];
    uint8_t *memory; /* WORKING_SET bytes of weights, in large pages */
    float *x, *out, *scratch[MAX_THREADS];
    struct dot_rows coded; /* coded inputs; space for MAX_ROWS rows of MAX_K */
    float *rounded;        /* rounded inputs; space for MAX_ROWS rows of MAX_K */
    struct bench_case cases[MAX_CASES];
    uint32_t n_cases, n_rounds;
    double read_gb[MAX_THREADS][MAX_ROUNDS], fma_gflop[MAX_THREADS][MAX_ROUNDS];
};

/* Reads the clock. For one thread the time is CPU time, so that time off the core does not
 * count. For more threads it is wall time. */
static double now_s(uint32_t n_threads)
{
    return bench_seconds(n_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC);
}

static double median_of(const double *v, uint32_t n)
{
    double sorted[MAX_ROUNDS];
    memcpy(sorted, v, n * sizeof *v);
    return bench_median(sorted, n);
}

enum { READ_TASKS = 64, FMA_TASKS = 8 };
static void read_task(void *ctx, uint32_t i_task, uint32_t i_thread)
{
    const struct bench *b = ctx;
    const uint64_t part = WORKING_SET / READ_TASKS;
    cpu_ceiling_read(b->memory + i_task * part, part);
}
static void fma_task(void *ctx, uint32_t i_task, uint32_t i_thread)
{
    const struct bench *b = ctx;
    cpu_ceiling_fma(b->isa->level);
}

static void measure_ceilings(struct bench *b, uint32_t i_round)
{
    for (uint32_t i = 0; i < MAX_THREADS; i++) {
        double start = now_s(i + 1);
        pool_run(b->pools[i], READ_TASKS, read_task, b);
        b->read_gb[i][i_round] = (double)WORKING_SET / (now_s(i + 1) - start) * 1e-9;
        double flop = FMA_TASKS * cpu_ceiling_fma_flop(b->isa->level);
        if (flop == 0)
            continue;
        start = now_s(i + 1);
        pool_run(b->pools[i], FMA_TASKS, fma_task, b);
        b->fma_gflop[i][i_round] = flop / (now_s(i + 1) - start) * 1e-9;
    }
}

struct product {
    const struct bench *b;
    struct weight w;
    uint32_t n_rows;
    struct dot_rows coded;
};
static void code_task(void *ctx, uint32_t i_task, uint32_t i_thread)
{
    const struct product *p = ctx;
    dot_quantise_rows(p->b->isa->dots, p->b->x, p->w.k, &p->coded, i_task);
}
static void round_task(void *ctx, uint32_t i_task, uint32_t i_thread)
{
    const struct product *p = ctx;
    const struct rounded_kernels *kernels = p->b->isa->rounded;
    const uint32_t begin = i_task * ROUND_ROWS, stride = rounded_stride(kernels, p->w.k);
    for (uint32_t i = begin; i < begin + ROUND_ROWS && i < p->n_rows; i++)
        kernels->round(p->b->rounded + (uint64_t)i * stride, p->b->x + (uint64_t)i * p->w.k,
                       p->w.k);
}
static void product_task(void *ctx, uint32_t i_task, uint32_t i_thread)
{
    const struct product *p = ctx;
    uint32_t n_panels = (p->w.n + PANEL_N - 1) / PANEL_N, begin = i_task * TASK_PANELS;
    if (p->b->isa->dots) {
        p->b->isa->dots->linear(&(struct dot_task){
            .w = &p->w,
            .x = &p->coded,
            .out = p->b->out,
            .out_stride = p->w.n,
            .panel_begin = begin,
            .panel_end = begin + TASK_PANELS < n_panels ? begin + TASK_PANELS : n_panels});
        return;
    }
    struct linear_task t = {.w = &p->w,
                            .x = p->b->x,
                            .out = p->b->out,
                            .n_rows = p->n_rows,
                            .x_stride = p->w.k,
                            .out_stride = p->w.n,
                            .panel_begin = begin,
                            .panel_end =
                                begin + TASK_PANELS < n_panels ? begin + TASK_PANELS : n_panels,
                            .scratch = p->b->scratch[i_thread]};
    if (!p->b->isa->rounded) {
        p->b->isa->linear(&t);
        return;
    }
    t.x = p->b->rounded;
    t.x_stride = rounded_stride(p->b->isa->rounded, p->w.k);
    rounded_linear(p->b->isa->rounded, &t);
}

static uint32_t n_panels_of(const struct bench_case *c)
{
    return (c->n + PANEL_N - 1) / PANEL_N;
}

static double measure(const struct bench *b, const struct bench_case *c)
{
    uint64_t n_bytes = n_panels_of(c) * pack_panel_bytes(c->dtype, c->k);
    uint32_t n_copies = WORKING_SET > n_bytes ? (uint32_t)(WORKING_SET / n_bytes) : 1;
    double flop = 2.0 * c->n * c->k * c->n_rows;
    uint32_t n = flop * n_copies < 2e10 ? n_copies : (uint32_t)(2e10 / flop) + 1;
    double start = now_s(c->n_threads);
    for (uint32_t i = 0; i < n; i++) {
        struct product p = {.b = b,
                            .w = {.dtype = c->dtype,
                                  .n = c->n,
                                  .k = c->k,
                                  .n_bytes = n_bytes,
                                  .data = b->memory + i % n_copies * n_bytes},
                            .n_rows = c->n_rows,
                            .coded = b->coded};
        p.coded.n_rows = c->n_rows;
        p.coded.k = c->k;
        if (b->isa->dots)
            pool_run(b->pools[c->n_threads - 1], (c->n_rows + DOT_TILE - 1) / DOT_TILE, code_task,
                     &p);
        if (b->isa->rounded)
            pool_run(b->pools[c->n_threads - 1], (c->n_rows + ROUND_ROWS - 1) / ROUND_ROWS,
                     round_task, &p);
        pool_run(b->pools[c->n_threads - 1], (n_panels_of(c) + TASK_PANELS - 1) / TASK_PANELS,
                 product_task, &p);
    }
    return (now_s(c->n_threads) - start) / n;
}

static const enum dtype dtypes[] = {DTYPE_Q8_0,   DTYPE_Q4_0,  DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1,
                                    DTYPE_Q2_K,   DTYPE_Q3_K,  DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K,
                                    DTYPE_IQ4_NL, DTYPE_MXFP4, DTYPE_INT2, DTYPE_INT3, DTYPE_INT4,
                                    DTYPE_INT8,   DTYPE_FP8,   DTYPE_F16,  DTYPE_BF16, DTYPE_F32};

static bool multiplies(const struct isa *isa, enum dtype dtype)
{
    return isa->dots ? dot_has(dtype) : !isa->rounded || dtype == DTYPE_BF16;
}

static void add_cases(struct bench *b, const char *only_dtype)
{
    static const struct {
        uint32_t n, k;
    } shapes[] = {{2048, 640}, {640, 2048}, {262144, 640}, {4096, 1024}};
    static const uint32_t rows[] = {1, 2, 8, 32, 128, 512};
    for (uint32_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (only_dtype && strcmp(only_dtype, dtype_traits(dtypes[i]).name) != 0)
            continue;
        if (!multiplies(b->isa, dtypes[i]))
            continue;
        for (uint32_t j = 0; j < sizeof shapes / sizeof *shapes; j++) {
            uint64_t n_bytes = shapes[j].n / PANEL_N * pack_panel_bytes(dtypes[i], shapes[j].k);
            if (n_bytes == 0 || n_bytes > WORKING_SET)
                continue;
            for (uint32_t l = 0; l < sizeof rows / sizeof *rows; l++) {
                if (shapes[j].n > 10000 && rows[l] > 16)
                    continue; /* the model's head gets 16 rows at most */
                for (uint32_t n_threads = 1; n_threads <= MAX_THREADS; n_threads++)
                    b->cases[b->n_cases++] = (struct bench_case){
                        dtypes[i], shapes[j].n, shapes[j].k, rows[l], n_threads, {0}};
            }
        }
    }
}

static void report(const struct bench *b)
{
    for (uint32_t i = 0; i < MAX_THREADS; i++)
        printf("%s, %u thread(s): reads %.1f GB/s, %.1f GFLOP/s of fused multiply-adds\n",
               b->isa->name, i + 1, median_of(b->read_gb[i], b->n_rounds),
               median_of(b->fma_gflop[i], b->n_rounds));
    printf("%-6s %7s %5s %5s %8s %9s %7s %6s %9s %6s\n", "dtype", "n", "k", "rows", "threads", "us",
           "GB/s", "%read", "GFLOP/s", "%fma");
    for (uint32_t i = 0; i < b->n_cases; i++) {
        const struct bench_case *c = &b->cases[i];
        double s = median_of(c->seconds, b->n_rounds);
        double gb = (double)(n_panels_of(c) * pack_panel_bytes(c->dtype, c->k)) / s * 1e-9;
        double gflop = 2.0 * c->n * c->k * c->n_rows / s * 1e-9;
        double read = median_of(b->read_gb[c->n_threads - 1], b->n_rounds);
        double fma = median_of(b->fma_gflop[c->n_threads - 1], b->n_rounds);
        printf("%-6s %7u %5u %5u %8u %9.1f %7.2f %6.0f %9.2f %6.0f\n", dtype_traits(c->dtype).name,
               c->n, c->k, c->n_rows, c->n_threads, s * 1e6, gb, 100 * gb / read, gflop,
               fma > 0 ? 100 * gflop / fma : 0);
    }
}

/* Measures packing on one thread, for each format, from memory to memory. */
static void report_packing(const struct bench *b, const char *only_dtype)
{
    for (uint32_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        struct dtype_traits traits = dtype_traits(dtypes[i]);
        if (only_dtype && strcmp(only_dtype, traits.name) != 0)
            continue;
        struct weight w = {.dtype = dtypes[i], .k = 1024, .data = b->memory};
        uint64_t stride = (uint64_t)w.k / traits.block_elems * traits.block_bytes;
        w.n = (uint32_t)(WORKING_SET / 2 / stride / PANEL_N * PANEL_N);
        struct weight_rows rows = {b->memory + WORKING_SET / 2, stride};
        double start = now_s(1);
        for (uint32_t j = 0; j < w.n / PANEL_N; j++)
            if (b->isa->dots && dot_has(dtypes[i]))
                dot_pack_panel(&w, &rows, j);
            else
                pack_panel(&w, &rows, j);
        printf("packing %-6s %.2f GB/s\n", traits.name,
               (double)(w.n * stride) / (now_s(1) - start) * 1e-9);
    }
}

static const struct isa *pick_isa(const char *name)
{
    uint32_t best = cpu_isa_best();
    for (uint32_t i = 0; name && i < sizeof isas / sizeof *isas; i++)
        if (strcmp(name, isas[i].name) == 0 &&
            (isas[i].dots      ? dot_kernels_run(isas[i].dots)
             : isas[i].rounded ? rounded_kernels_run(isas[i].rounded)
                               : i <= best))
            return &isas[i];
    return name ? NULL : &isas[best];
}

static void usage(void)
{
    fprintf(stderr, "usage: bench_kernels [ISA [dtype [1..%d rounds]]]; ISA:", MAX_ROUNDS);
    for (uint32_t i = 0; i < sizeof isas / sizeof *isas; i++)
        fprintf(stderr, " %s", isas[i].name);
    fprintf(stderr, "\n");
}

static bool bench_open(struct bench *b)
{
    struct error err = {0};
    for (uint32_t i = 0; i < MAX_THREADS; i++) {
        if (pool_new(i + 1, &b->pools[i], &err) != STATUS_OK) {
            fprintf(stderr, "%s\n", err.text);
            return false;
        }
        b->scratch[i] = mem_array(LINEAR_SCRATCH_FLOATS, sizeof(float));
    }
    b->memory = mmap(NULL, WORKING_SET, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->memory == MAP_FAILED) {
        perror("mmap");
        return false;
    }
    madvise(b->memory, WORKING_SET, MADV_HUGEPAGE);
    memset(b->memory, 0x2c, WORKING_SET); /* these bytes are a normal number in every format */
    b->x = mem_array(MAX_ROWS * MAX_K, sizeof(float));
    for (uint32_t i = 0; i < MAX_ROWS * MAX_K; i++)
        b->x[i] = (float)(i % 17) * 0.125f;
    b->out = mem_array(16 * 262144, sizeof(float));
    b->rounded = mem_array((uint64_t)MAX_ROWS * rounded_stride(&rounded_kernels_scalar, MAX_K),
                           sizeof(float));
    b->coded.codes = mem_array(MAX_ROWS, MAX_K);
    b->coded.groups = mem_array(MAX_ROWS * MAX_K / DOT_GROUP, sizeof *b->coded.groups);
    return true;
}

int main(int argc, char **argv)
{
    static struct bench b;
    const char *dtype = argc > 2 ? argv[2] : NULL;
    b.isa = pick_isa(argc > 1 ? argv[1] : NULL);
    b.n_rounds = argc > 3 ? count_argument(argv, 3, "rounds", 1, MAX_ROUNDS) : 3;
    if (!b.isa) {
        usage();
        return 2;
    }
    if (!bench_open(&b))
        return 1;
    add_cases(&b, dtype);
    for (uint32_t i_round = 0; i_round < b.n_rounds; i_round++) {
        measure_ceilings(&b, i_round);
        for (uint32_t i = 0; i < b.n_cases; i++)
            b.cases[i].seconds[i_round] = measure(&b, &b.cases[i]);
    }
    report(&b);
    report_packing(&b, dtype);
    return 0;
}
