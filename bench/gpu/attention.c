/* Measures the attention of kernels/cuda beside a copy and a product of cuBLAS on the same
 * device in the same run (ceilings.h). The bars are in bars.h. Blocks are in random order and
 * together exceed every cache. Rounds of the three are interleaved; the table has median, least
 * and most.
 *
 * decode: the bytes of keys and values that must be read, as a fraction of the bytes that a copy
 * moves. Each sequence's whole context counts once, with the scales of coarse dtypes; Q, results
 * and block tables do not count. The judged shapes have 32 sequences of 8k in bfloat16.
 *
 * prefill: the operations of attention's two products, as a fraction of cuBLAS's. They are 2 x
 * heads x (key + value dimensions) for each pair of positions that see each other. For a latent
 * they are the operations of the absorbed form, which the kernel computes.
 *
 * Usage: cuda_attention_bench [--seconds N]. Exit status: bars.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/gpu/ceilings.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "kernels/cuda/attention/abi.h"
#include "kernels/kv_layout.h"

#define N_ROUNDS     9
#define MAX_CALLS    200u
#define ROUND_BYTES  (4ull << 30) /* bytes that the calls of a round move */
#define ROUND_OPS    1e13         /* operations of a round; a round has at most MAX_CALLS calls */
#define SCRATCH      (1ull << 30)
#define BLOCK_TOKENS 16u

struct shape {
    const char *name;
    uint32_t n_heads, group, head_dim, v_dim; /* v_dim: value size of a latent, else 0 */
    enum dtype dtype;
    /* n_rows: number of rows of each sequence, at the sequence's last positions */
    uint32_t n_sequences, context, n_rows;
    bool is_judged;
};
static const struct shape shapes[] = {
    {"Llama-3.1-8B, 32 x 8k", 32, 4, 128, 0, DTYPE_BF16, 32, 8192, 1, true},
    {"the same, fp8", 32, 4, 128, 0, DTYPE_F8_E4M3, 32, 8192, 1, false},
    {"Phi-3-mini, 32 x 8k", 32, 1, 96, 0, DTYPE_BF16, 32, 8192, 1, true},
    {"DeepSeek-V2-Lite, 32 x 8k", 16, 16, 576, 512, DTYPE_BF16, 32, 8192, 1, true},
    {"Llama-3.1-8B, 1 x 32k", 32, 4, 128, 0, DTYPE_BF16, 1, 32768, 1, false},
    {"Llama-3.1-8B, 64 x 1k", 32, 4, 128, 0, DTYPE_BF16, 64, 1024, 1, false},
    {"Llama-3.1-8B, 16 x 8k, 4 draft tokens", 32, 4, 128, 0, DTYPE_BF16, 16, 8192, 5, false},
    {"Llama-3.1-8B, prefill of 8k", 32, 4, 128, 0, DTYPE_BF16, 1, 8192, 8192, false},
    {"Phi-3-mini, prefill of 8k", 32, 1, 96, 0, DTYPE_BF16, 1, 8192, 8192, false},
    {"DeepSeek-V2-Lite, prefill of 4k", 16, 16, 576, 512, DTYPE_BF16, 1, 4096, 4096, false},
    {"Llama-3.1-8B, 2k behind 30k", 32, 4, 128, 0, DTYPE_BF16, 1, 32768, 2048, false},
};

struct bench {
    struct bars bars;
    struct ceilings c;
    void *scratch;
};

/* `load` holds the device memory of one shape. */
struct load {
    const struct shape *s;
    struct kv_cache kv;
    struct cuda_attention_params p;
    void *cache, *tables, *rows, *tiles, *q, *out;
};

static void *device_alloc(const struct bench *b, uint64_t n_bytes)
{
    struct error err = {0};
    void *ptr;
    must(gpu_alloc(b->c.device, n_bytes, &ptr, &err), &err, "memory");
    return ptr;
}

static void *to_device(const struct bench *b, const void *host, uint64_t n_bytes)
{
    struct error err = {0};
    void *ptr = device_alloc(b, n_bytes);
    must(gpu_copy_to_device(b->c.stream, ptr, host, n_bytes, &err), &err, "write");
    must(gpu_stream_sync(b->c.stream, &err), &err, "write");
    return ptr;
}

static uint64_t next_random(void)
{
    static uint64_t random = 88172645463325252ull;
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    return random;
}

/* Assigns n_table blocks from all parts of the cache to every sequence; no block belongs to two
 * sequences. */
static void rows_make(const struct bench *b, struct load *l, uint32_t n_blocks, uint32_t n_table)
{
    const struct shape *s = l->s;
    const uint32_t n_rows = s->n_sequences * s->n_rows;
    uint32_t *blocks = mem_array(n_blocks, sizeof *blocks);
    struct kv_row *rows = mem_array(n_rows, sizeof *rows);
    struct gpu_tile *tiles = mem_array(n_rows, sizeof *tiles);
    for (uint32_t i = 0; i < n_blocks; i++)
        blocks[i] = i;
    for (uint32_t i = n_blocks - 1; i > 0; i--) {
        const uint32_t j = (uint32_t)(next_random() % (i + 1)), t = blocks[i];
        blocks[i] = blocks[j], blocks[j] = t;
    }
    l->tables = to_device(b, blocks, (uint64_t)n_blocks * sizeof *blocks);
    for (uint32_t i = 0; i < n_rows; i++)
        rows[i] = (struct kv_row){(uint32_t *)l->tables + (uint64_t)(i / s->n_rows) * n_table, 0,
                                  s->context - s->n_rows + i % s->n_rows};
    l->p.counts = gpu_tiles_find(rows, n_rows, tiles);
    l->rows = to_device(b, rows, n_rows * sizeof *rows);
    l->tiles = to_device(b, tiles, n_rows * sizeof *tiles);
    mem_free(blocks);
    mem_free(rows);
    mem_free(tiles);
}

static void load_open(const struct bench *b, const struct shape *s, struct load *l)
{
    const uint32_t n_rows = s->n_sequences * s->n_rows, v_dim = s->v_dim ? s->v_dim : s->head_dim;
    const uint32_t n_table = (s->context + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    const uint32_t n_blocks = s->n_sequences * n_table;
    *l = (struct load){.s = s};
    l->kv = (struct kv_cache){.dtype = s->dtype,
                              .n_kv_heads = s->n_heads / s->group,
                              .head_dim = s->head_dim,
                              .v_dim = v_dim,
                              .block_tokens = BLOCK_TOKENS};
    l->kv.block_stride = (s->v_dim ? 1 : 2) * kv_keys_bytes(s->dtype, l->kv.n_kv_heads, s->head_dim,
                                                            BLOCK_TOKENS, s->v_dim != 0);
    l->cache = device_alloc(b, n_blocks * l->kv.block_stride);
    ceilings_fill(b->c.stream, l->cache, n_blocks * l->kv.block_stride);
    kv_layout(&l->kv, l->cache, s->v_dim != 0);
    rows_make(b, l, n_blocks, n_table);
    l->q = device_alloc(b, (uint64_t)n_rows * s->n_heads * s->head_dim * 2);
    l->out = device_alloc(b, (uint64_t)n_rows * s->n_heads * v_dim * 2);
    ceilings_fill(b->c.stream, l->q, (uint64_t)n_rows * s->n_heads * s->head_dim * 2);
    l->p.p = (struct attention_params){.q = {l->q, s->n_heads * s->head_dim},
                                       .out = {l->out, s->n_heads * v_dim},
                                       .rows = l->rows,
                                       .n_rows = n_rows,
                                       .n_heads = s->n_heads,
                                       .group = s->group,
                                       .scale = 0.01f,
                                       .kv = &l->kv};
    l->p.tiles = l->tiles;
    l->p.n_multiprocessors = b->c.info.n_multiprocessors;
    l->p.scratch = b->scratch;
    l->p.n_scratch_bytes = SCRATCH;
}

static void load_close(const struct bench *b, const struct load *l)
{
    void *const all[] = {l->cache, l->tables, l->rows, l->tiles, l->q, l->out};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        gpu_release(b->c.device, all[i]);
}

/* Returns the seconds of one call, the mean over n. */
static double seconds_of(const struct bench *b, uint32_t n, const struct load *l)
{
    struct error err = {0};
    must(gpu_stream_sync(b->c.stream, &err), &err, "sync");
    const uint64_t begin_ns = clock_mono_ns();
    for (uint32_t i = 0; i < n; i++)
        must(cuda_attention(b->c.stream, &l->p, &err), &err, "attention");
    must(gpu_stream_sync(b->c.stream, &err), &err, "attention");
    return (double)(clock_mono_ns() - begin_ns) / (double)NS_PER_S / n;
}

/* Computes the bytes of keys and values that a call must read, and the operations of its
 * products. */
static void work_of(const struct shape *s, double *n_bytes, double *n_ops)
{
    const uint32_t n_kv = s->n_heads / s->group, v_dim = s->v_dim ? s->v_dim : s->head_dim;
    const uint64_t block = (s->v_dim ? 1 : 2) *
                           kv_keys_bytes(s->dtype, n_kv, s->head_dim, BLOCK_TOKENS, s->v_dim != 0);
    const double keys = s->context - (s->n_rows - 1) / 2.0;
    *n_bytes = (double)s->n_sequences * s->context / BLOCK_TOKENS * (double)block;
    *n_ops = 2.0 * s->n_sequences * s->n_rows * keys * s->n_heads * (s->head_dim + v_dim);
}

static void run_shape(struct bench *b, const struct shape *s)
{
    struct load l;
    double seconds[N_ROUNDS], copies[N_ROUNDS], gemms[N_ROUNDS], n_bytes, n_ops;
    char what[BARS_WHAT];
    snprintf(what, sizeof what, "attention, %s", s->name);
    if (!bars_has_time(&b->bars, what, 3, s->is_judged))
        return;
    load_open(b, s, &l);
    work_of(s, &n_bytes, &n_ops);
    const double by_ops = ROUND_OPS / n_ops + 1, by_bytes = (double)ROUND_BYTES / n_bytes + 1;
    uint32_t n = (uint32_t)(by_ops < by_bytes ? by_ops : by_bytes);
    n = n < MAX_CALLS ? n : MAX_CALLS;
    (void)seconds_of(b, 2, &l);
    for (int r = 0; r < N_ROUNDS; r++) {
        seconds[r] = seconds_of(b, n, &l);
        double driver = ceilings_copy_seconds(&b->c, 4), kernel = ceilings_kernel_seconds(&b->c, 4);
        copies[r] = driver < kernel ? driver : kernel;
        gemms[r] = ceilings_gemm_seconds(&b->c, 2);
    }
    const double t = ceilings_median(seconds, N_ROUNDS), side = b->c.side;
    const double copy_rate = 2.0 * (double)b->c.n_copy / ceilings_median(copies, N_ROUNDS);
    const double gemm_rate = 2.0 * side * side * side / ceilings_median(gemms, N_ROUNDS);
    printf("| %s | %.1f (%.1f ... %.1f) | %.0f | %.2f | %.1f | %.2f |\n", s->name, t * 1e6,
           seconds[0] * 1e6, seconds[N_ROUNDS - 1] * 1e6, n_bytes / t / 1e9,
           n_bytes / t / copy_rate, n_ops / t / 1e12, n_ops / t / gemm_rate);
    if (s->n_rows == 1 || s->is_judged)
        bars_figure(&b->bars, what, "of a copy's rate", n_bytes / t / copy_rate,
                    s->is_judged ? BAR_AT_LEAST : BAR_NONE, BAR_ATTENTION);
    else
        bars_figure(&b->bars, what, "of cuBLAS's rate", n_ops / t / gemm_rate, BAR_NONE, 0);
    load_close(b, &l);
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    if (argc != 1 && !(argc == 3 && strcmp(argv[1], "--seconds") == 0)) {
        fprintf(stderr, "usage: cuda_attention_bench [--seconds N]\n");
        return 2;
    }
    ceilings_open(&b.c, "cuda_attention_bench");
    bars_open(&b.bars, "cuda_attention_bench", b.c.is_emulated,
              argc == 3 ? strtod(argv[2], NULL) : 0);
    ceilings_measure(&b.c);
    b.scratch = device_alloc(&b, SCRATCH);
    printf(
        "\n| what | us a call: median (least ... most) | GB/s | of the copy | TFLOP/s | of cuBLAS "
        "|\n|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        run_shape(&b, &shapes[i]);
    gpu_release(b.c.device, b.scratch);
    ceilings_close(&b.c);
    return (int)bars_close(&b.bars);
}
