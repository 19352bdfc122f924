/* Measures the bytes of KV cache per second that a decode step's attention reads, in each dtype.
 * The step has one new row for each of a few sequences, and each row reads its whole context
 * from memory. Bytes are counted as the cache stores them. The last column, tokens of context
 * per microsecond, therefore compares the dtypes.
 *
 *   bench_attention [isa [rounds]]      default: the best ISA, 5 rounds
 *
 * Runs on one thread. Each round measures all dtypes in turn; figures are medians of CPU time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "bench/count.h"
#include "bench/seconds.h"
#include "common/base/mem.h"
#include "common/base/order.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/kernels.h"
#include "kernels/kv_layout.h"

enum { MAX_ROUNDS = 15, BLOCK = 16, CONTEXT = 4096, N_SEQUENCES = 8 };
static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_F8_E4M3, DTYPE_I8};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

/* Each shape lists its KV heads, the query heads for each KV head, and the head size. v_dim is
 * the value size of a latent, else 0. */
static const struct shape {
    const char *name;
    uint32_t n_kv_heads, group, head_dim, v_dim;
} shapes[] = {{"8 x 128, 4 queries each", 8, 4, 128, 0},
              {"8 x 128, 1 query each", 8, 1, 128, 0},
              {"1 x 256, 4 queries each", 1, 4, 256, 0},
              {"latent of 512 + 64, 16 queries", 1, 16, 576, 512}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static const struct cpu_kernels *pick(const char *name)
{
#define KERNELS(upper, lower) &cpu_kernels_##lower,
    const struct cpu_kernels *all[] = {CPU_LEVELS(KERNELS)};
    for (int i = 0; name && i <= (int)cpu_isa_best(); i++)
        if (strcmp(name, all[i]->isa) == 0)
            return all[i];
    return name ? NULL : all[cpu_isa_best()];
}

struct bench {
    const struct cpu_kernels *kernels;
    struct kv_cache kv;
    uint8_t *memory;
    uint64_t n_bytes;
    uint32_t blocks[N_SEQUENCES][CONTEXT / BLOCK];
    float *q, *out, *scratch;
};

static void fill(struct bench *b, const struct shape *s, enum dtype dtype)
{
    bool latent = s->v_dim > 0;
    uint64_t keys = kv_keys_bytes(dtype, s->n_kv_heads, s->head_dim, BLOCK, latent);
    b->kv = (struct kv_cache){.block_stride = keys * (latent ? 1 : 2),
                              .dtype = dtype,
                              .n_kv_heads = s->n_kv_heads,
                              .head_dim = s->head_dim,
                              .v_dim = latent ? s->v_dim : s->head_dim,
                              .block_tokens = BLOCK};
    b->n_bytes = b->kv.block_stride * (N_SEQUENCES * CONTEXT / BLOCK);
    b->memory = mmap(NULL, b->n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->memory == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    madvise(b->memory, b->n_bytes, MADV_HUGEPAGE);
    /* these bytes are a normal number in every dtype, and also a normal scale */
    memset(b->memory, 0x2c, b->n_bytes);
    kv_layout(&b->kv, b->memory, latent);
    for (uint32_t i = 0; i < N_SEQUENCES * CONTEXT / BLOCK; i++)
        b->blocks[i % N_SEQUENCES][i / N_SEQUENCES] = i;
}

static double measure(struct bench *b, const struct shape *s)
{
    uint32_t n_heads = s->n_kv_heads * s->group;
    struct kv_row rows[N_SEQUENCES];
    for (uint32_t i = 0; i < N_SEQUENCES; i++)
        rows[i] = (struct kv_row){b->blocks[i], 0, CONTEXT - 1};
    const struct attention_params p = {.q = {b->q, n_heads * s->head_dim},
                                       .out = {b->out, n_heads * b->kv.v_dim},
                                       .rows = rows,
                                       .n_rows = N_SEQUENCES,
                                       .n_heads = n_heads,
                                       .group = s->group,
                                       .scale = 1e-3f,
                                       .kv = &b->kv};
    double start = bench_seconds(CLOCK_THREAD_CPUTIME_ID);
    for (uint32_t i = 0; i < N_SEQUENCES; i++)
        for (uint32_t h = 0; h < s->n_kv_heads; h++)
            b->kernels->attention(&p, i, h, b->scratch);
    return bench_seconds(CLOCK_THREAD_CPUTIME_ID) - start;
}

int main(int argc, char **argv)
{
    static struct bench b;
    uint32_t n_rounds = argc > 2 ? count_argument(argv, 2, "rounds", 1, MAX_ROUNDS) : 5;
    b.kernels = pick(argc > 1 ? argv[1] : NULL);
    if (!b.kernels) {
        fprintf(stderr, "usage: bench_attention [LEVEL [1..%d rounds]]\n", MAX_ROUNDS);
        return 2;
    }
    b.q = mem_array(N_SEQUENCES * 64 * 576, sizeof(float));
    b.out = mem_array(N_SEQUENCES * 64 * 576, sizeof(float));
    for (uint32_t i = 0; i < N_SEQUENCES * 64 * 576; i++)
        b.q[i] = (float)(i % 17) * 0.125f;
    printf("%s, %u sequences of %u tokens\n%-32s %-8s %9s %7s %10s\n", b.kernels->isa, N_SEQUENCES,
           CONTEXT, "", "dtype", "us a row", "GB/s", "tokens/us");
    for (uint32_t i = 0; i < N_SHAPES; i++) {
        double seconds[N_DTYPES][MAX_ROUNDS];
        uint64_t n_bytes[N_DTYPES];
        for (uint32_t r = 0; r < n_rounds; r++)
            for (uint32_t k = 0; k < N_DTYPES; k++) {
                fill(&b, &shapes[i], dtypes[k]);
                b.scratch =
                    mem_array(attention_scratch_floats(shapes[i].group, &b.kv), sizeof(float));
                seconds[k][r] = measure(&b, &shapes[i]);
                n_bytes[k] = b.n_bytes;
                mem_free(b.scratch);
                munmap(b.memory, b.n_bytes);
            }
        for (uint32_t k = 0; k < N_DTYPES; k++) {
            qsort(seconds[k], n_rounds, sizeof(double), order_doubles);
            double s = seconds[k][n_rounds / 2];
            printf("%-32s %-8s %9.0f %7.2f %10.2f\n", shapes[i].name, dtype_traits(dtypes[k]).name,
                   s / N_SEQUENCES * 1e6, (double)n_bytes[k] / s * 1e-9,
                   (double)N_SEQUENCES * CONTEXT / s * 1e-6);
        }
    }
    return 0;
}
