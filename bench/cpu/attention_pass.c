/* Measures the attention of whole passes through the CPU device, as a worker's step calls it.
 * The same rounds measure the machine's limits for comparison.
 *
 *   bench_attention_pass prompt [isa [threads [rounds [shape]]]]
 *       512 rows of a prompt behind 0, 4k and 32k positions: GFLOP/s of the products of queries,
 *       keys and values, and their share of fused multiply-adds on registers
 *   bench_attention_pass decode [isa [threads [rounds [shape]]]]
 *       one row behind 32k positions, layer by layer: GB/s of the cache's stored bytes, and their
 *       share of reading a large buffer once; and the time of the computation alone, with all
 *       blocks of a layer equal to its first few, which stay in a second-level cache
 *
 * Default: the best ISA, one thread, 3 rounds, all shapes. Figures are medians of CPU time for
 * one thread, and of wall time for more. A block has all layers of its tokens, as in a worker's
 * cache. */
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
#include "kernels/kv_layout.h"

enum { MAX_ROUNDS = 15, BLOCK = 16, N_ROWS = 512, PARTS = 64, FMA_PARTS = 32, FEW = 16 };
static const uint64_t READ_BYTES = 512ull << 20;

static const struct shape {
    const char *name;
    uint32_t n_kv_heads, group, head_dim, window, n_layers;
} shapes[] = {{"4 x 64, 8 queries each", 4, 8, 64, 0, 22},
              {"1 x 256, 4 queries each", 1, 4, 256, 0, 18},
              {"the same, window of 512", 1, 4, 256, 512, 18},
              {"8 x 128, 1 query each", 8, 1, 128, 0, 8}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };
static const enum dtype dtypes[] = {DTYPE_F16, DTYPE_I8};
static const uint32_t befores[] = {0, 4096, 32768};

struct bench {
    struct device *device;
    enum cpu_isa isa;
    uint32_t n_threads, n_rounds, shape_begin, shape_end;
    uint8_t *memory; /* memory of READ_BYTES bytes, or a KV cache */
    double ceiling[MAX_ROUNDS];
};

static double now_s(const struct bench *b)
{
    return bench_seconds(b->n_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC);
}

static void read_task(void *ctx, uint32_t i)
{
    const struct bench *b = ctx;
    cpu_ceiling_read(b->memory + i * (READ_BYTES / PARTS), READ_BYTES / PARTS);
}
static void fma_task(void *ctx, uint32_t i)
{
    const struct bench *b = ctx;
    cpu_ceiling_fma(b->isa);
}

static void measure_fma(struct bench *b, uint32_t r)
{
    double start = now_s(b);
    cpu_parallel_for(b->device, FMA_PARTS, fma_task, b);
    b->ceiling[r] = FMA_PARTS * cpu_ceiling_fma_flop(b->isa) / (now_s(b) - start) * 1e-9;
}

static uint8_t *map(uint64_t n_bytes)
{
    uint8_t *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    madvise(p, n_bytes, MADV_HUGEPAGE);
    /* these bytes are a normal number in every dtype, and also a normal scale */
    memset(p, 0x2c, n_bytes);
    return p;
}

/* A `pass` has n_rows rows of one sequence, at positions from `before` on, in each layer of the
 * cache. */
struct pass {
    const struct shape *s;
    enum dtype dtype;
    uint32_t before, n_rows, n_layers;
    uint32_t *blocks;
    struct kv_row *rows;
    float *q, *out;
    uint64_t n_bytes;
};

static void pass_init(struct pass *x, struct bench *b)
{
    const struct shape *s = x->s;
    uint32_t n_blocks = (x->before + x->n_rows + BLOCK - 1) / BLOCK;
    size_t n = (size_t)x->n_rows * s->n_kv_heads * s->group * s->head_dim;
    x->n_bytes = 2 * x->n_layers * n_blocks *
                 kv_keys_bytes(x->dtype, s->n_kv_heads, s->head_dim, BLOCK, false);
    b->memory = map(x->n_bytes);
    x->blocks = mem_array(n_blocks, sizeof *x->blocks);
    x->rows = mem_array(x->n_rows, sizeof *x->rows);
    x->q = mem_array(n, sizeof(float));
    x->out = mem_array(n, sizeof(float));
    for (uint32_t i = 0; i < n_blocks; i++)
        x->blocks[i] = i;
    for (uint32_t i = 0; i < x->n_rows; i++)
        x->rows[i] = (struct kv_row){x->blocks, 0, x->before + i};
    for (size_t i = 0; i < n; i++)
        x->q[i] = (float)(i % 17) * 0.125f;
}

static double pass_run(struct pass *x, struct bench *b)
{
    const struct shape *s = x->s;
    uint64_t keys = kv_keys_bytes(x->dtype, s->n_kv_heads, s->head_dim, BLOCK, false);
    struct kv_cache kv = {.block_stride = 2 * keys * x->n_layers,
                          .dtype = x->dtype,
                          .n_kv_heads = s->n_kv_heads,
                          .head_dim = s->head_dim,
                          .v_dim = s->head_dim,
                          .block_tokens = BLOCK};
    uint32_t width = s->n_kv_heads * s->group * s->head_dim;
    const struct attention_params p = {.q = {x->q, width},
                                       .out = {x->out, width},
                                       .rows = x->rows,
                                       .n_rows = x->n_rows,
                                       .n_heads = s->n_kv_heads * s->group,
                                       .group = s->group,
                                       .window = s->window,
                                       .scale = 1e-3f,
                                       .kv = &kv};
    double start = now_s(b);
    for (uint32_t l = 0; l < x->n_layers; l++) {
        kv_layout(&kv, b->memory + 2 * keys * l, false);
        b->device->ops->math.attention(b->device, &p);
    }
    return now_s(b) - start;
}

static void pass_fini(struct pass *x, struct bench *b)
{
    munmap(b->memory, x->n_bytes);
    mem_free(x->blocks);
    mem_free(x->rows);
    mem_free(x->q);
    mem_free(x->out);
}

static uint64_t positions_seen(const struct shape *s, uint32_t before, uint32_t n_rows)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < n_rows; i++) {
        uint32_t end = before + i + 1;
        n += s->window && end > s->window ? s->window : end;
    }
    return n;
}

static void prompts(struct bench *b)
{
    printf("%-26s %-5s %7s %9s %9s %6s\n", "", "dtype", "behind", "ms", "GFLOP/s", "%fma");
    for (uint32_t i = b->shape_begin; i < b->shape_end; i++)
        for (uint32_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++)
            for (uint32_t c = 0; c < sizeof befores / sizeof *befores; c++) {
                struct pass x = {.s = &shapes[i],
                                 .dtype = dtypes[k],
                                 .before = befores[c],
                                 .n_rows = N_ROWS,
                                 .n_layers = 1};
                double seconds[MAX_ROUNDS];
                if (dtypes[k] != DTYPE_F16 && c != 1)
                    continue; /* the other dtypes are measured behind one context only */
                pass_init(&x, b);
                pass_run(&x, b);
                for (uint32_t r = 0; r < b->n_rounds; r++) {
                    measure_fma(b, r);
                    seconds[r] = pass_run(&x, b);
                }
                pass_fini(&x, b);
                double s = bench_median(seconds, b->n_rounds),
                       flop = 4.0 * (double)positions_seen(x.s, x.before, N_ROWS) *
                              x.s->n_kv_heads * x.s->group * x.s->head_dim;
                printf("%-26s %-5s %7u %9.2f %9.1f %6.1f\n", x.s->name, dtype_traits(x.dtype).name,
                       x.before, s * 1e3, flop / s * 1e-9,
                       100 * flop / s * 1e-9 / bench_median(b->ceiling, b->n_rounds));
            }
}

static void decode(struct bench *b)
{
    printf("%-26s %-5s %9s %7s %6s %9s\n", "", "dtype", "ms", "GB/s", "%read", "work, ms");
    for (uint32_t i = b->shape_begin; i < b->shape_end; i++) {
        struct pass x = {.s = &shapes[i],
                         .dtype = DTYPE_F16,
                         .before = 32767,
                         .n_rows = 1,
                         .n_layers = shapes[i].n_layers};
        double seconds[MAX_ROUNDS], work[MAX_ROUNDS];
        if (x.s->window > 0)
            continue;
        for (uint32_t r = 0; r < b->n_rounds; r++) {
            pass_init(&x, b);
            seconds[r] = pass_run(&x, b);
            for (uint32_t k = FEW; k <= x.before / BLOCK; k++)
                x.blocks[k] = k % FEW;
            work[r] = pass_run(&x, b);
            pass_fini(&x, b);
            b->memory = map(READ_BYTES);
            double start = now_s(b);
            cpu_parallel_for(b->device, PARTS, read_task, b);
            b->ceiling[r] = (double)READ_BYTES / (now_s(b) - start) * 1e-9;
            munmap(b->memory, READ_BYTES);
        }
        double s = bench_median(seconds, b->n_rounds), gb = (double)x.n_bytes / s * 1e-9;
        printf("%-26s %-5s %9.2f %7.2f %6.1f %9.2f\n", x.s->name, dtype_traits(x.dtype).name,
               s * 1e3, gb, 100 * gb / bench_median(b->ceiling, b->n_rounds),
               bench_median(work, b->n_rounds) * 1e3);
    }
}

int main(int argc, char **argv)
{
    struct bench b = {.n_threads = argc > 3 ? count_argument(argv, 3, "threads", 1, 1024) : 1,
                      .n_rounds = argc > 4 ? count_argument(argv, 4, "rounds", 1, MAX_ROUNDS) : 3,
                      .isa = cpu_isa_best(),
                      .shape_end = N_SHAPES};
    if (argc > 5) {
        b.shape_begin = count_argument(argv, 5, "shape", 0, N_SHAPES - 1);
        b.shape_end = b.shape_begin + 1;
    }
    int32_t isa = argc > 2 ? cpu_isa_named(argv[2]) : (int32_t)b.isa;
    bool prompt = argc > 1 && strcmp(argv[1], "prompt") == 0;
    if ((!prompt && (argc < 2 || strcmp(argv[1], "decode") != 0)) || isa <= CPU_ISA_SCALAR) {
        fprintf(stderr,
                "usage: bench_attention_pass prompt|decode [avx2|avx512|neon [threads "
                "[1..%d rounds [0..%d]]]]\n",
                MAX_ROUNDS, N_SHAPES - 1);
        return 2;
    }
    struct error err;
    b.isa = (enum cpu_isa)isa;
    if (cpu_device_open(&(struct cpu_device_options){.n_threads = b.n_threads, .isa_level = isa},
                        &b.device, &err) != STATUS_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    printf("%s, %u threads\n", cpu_isa_name(b.isa), b.n_threads);
    if (prompt)
        prompts(&b);
    else
        decode(&b);
    b.device->ops->close(b.device);
    return 0;
}
