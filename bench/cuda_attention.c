/* Attention of kernels/cuda beside a copy and a product of cuBLAS on the same device in the same
 * run: decode by the bytes of keys and values that have to be read, as a part of what a copy moves;
 * prefill by the operations of its products (half of the square: what is masked counts as none), as
 * a part of cuBLAS's. Blocks lie in random order and together exceed every cache. Rounds are
 * interleaved: median, least and most. Exit status 77 without a device. */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "kernels/cuda/cuda_attention.h"
#include "kernels/cuda/cuda_linear.h"
#include "kernels/kv_layout.h"

#define N_ROUNDS     9
#define MAX_CALLS    200u
#define ROUND_BYTES  (4ull << 30)
#define COPY_BYTES   (1ull << 30)
#define GEMM_DIM     8192u
#define BLOCK_TOKENS 16u

struct shape {
    const char *name;
    uint32_t n_heads, group, head_dim, v_dim; /* v_dim: of a latent */
    enum dtype dtype;
    uint32_t n_sequences, context, n_rows; /* n_rows: of each sequence, its last positions */
};
static const struct shape shapes[] = {
    {"Llama-3.1-8B, 32 x 8k", 32, 4, 128, 0, DTYPE_BF16, 32, 8192, 1},
    {"the same, fp8", 32, 4, 128, 0, DTYPE_F8_E4M3, 32, 8192, 1},
    {"Phi-3-mini, 32 x 4k", 32, 1, 96, 0, DTYPE_BF16, 32, 4096, 1},
    {"DeepSeek-V2-Lite, 32 x 8k", 16, 16, 576, 512, DTYPE_BF16, 32, 8192, 1},
    {"Llama-3.1-8B, 1 x 32k", 32, 4, 128, 0, DTYPE_BF16, 1, 32768, 1},
    {"Llama-3.1-8B, 64 x 1k", 32, 4, 128, 0, DTYPE_BF16, 64, 1024, 1},
    {"Llama-3.1-8B, 16 x 8k, 4 guesses", 32, 4, 128, 0, DTYPE_BF16, 16, 8192, 5},
    {"Llama-3.1-8B, prefill of 8k", 32, 4, 128, 0, DTYPE_BF16, 1, 8192, 8192},
    {"Phi-3-mini, prefill of 8k", 32, 1, 96, 0, DTYPE_BF16, 1, 8192, 8192},
    {"DeepSeek-V2-Lite, prefill of 4k", 16, 16, 576, 512, DTYPE_BF16, 1, 4096, 4096},
    {"Llama-3.1-8B, 2k behind 30k", 32, 4, 128, 0, DTYPE_BF16, 1, 32768, 2048},
};

struct bench {
    struct gpu_device *device;
    struct gpu_stream *stream;
    struct gpu_linear *linear;
    struct gpu_info info;
    void *from, *to, *scratch; /* COPY_BYTES each */
};

/* A shape's memory on the device. */
struct load {
    const struct shape *s;
    struct kv_cache kv;
    struct cuda_attention_params p;
    void *cache, *tables, *rows, *tiles, *q, *out;
};

static void must(enum status s, const struct error *err)
{
    if (s == STATUS_OK)
        return;
    fprintf(stderr, "cuda_attention_bench: %s: %s\n", status_name(s), err->text);
    exit(1);
}

static void *device_alloc(const struct bench *b, uint64_t n_bytes)
{
    struct error err = {0};
    void *ptr;
    must(gpu_alloc(b->device, n_bytes, &ptr, &err), &err);
    return ptr;
}

static void *to_device(const struct bench *b, const void *host, uint64_t n_bytes)
{
    struct error err = {0};
    void *ptr = device_alloc(b, n_bytes);
    must(gpu_copy_to_device(b->stream, ptr, host, n_bytes, &err), &err);
    must(gpu_stream_sync(b->stream, &err), &err);
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

/* Numbers of ordinary size, whether they are read as bfloat16, as float or as e4m3. */
static void fill(const struct bench *b, void *device, uint64_t n_bytes)
{
    enum { N = 1 << 20 };
    struct error err = {0};
    uint16_t *host = mem_array(N, sizeof *host);
    for (uint32_t i = 0; i < N; i++)
        host[i] = (uint16_t)((next_random() & 0x8077) | 0x3f00);
    for (uint64_t at = 0, n; at < n_bytes; at += n) {
        n = n_bytes - at < N * sizeof *host ? n_bytes - at : N * sizeof *host;
        must(gpu_copy_to_device(b->stream, (char *)device + at, host, n, &err), &err);
    }
    must(gpu_stream_sync(b->stream, &err), &err);
    mem_free(host);
}

/* Every sequence has n_table blocks of its own, from all over the cache. */
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
    fill(b, l->cache, n_blocks * l->kv.block_stride);
    kv_layout(&l->kv, l->cache, s->v_dim != 0);
    rows_make(b, l, n_blocks, n_table);
    l->q = device_alloc(b, (uint64_t)n_rows * s->n_heads * s->head_dim * 2);
    l->out = device_alloc(b, (uint64_t)n_rows * s->n_heads * v_dim * 2);
    fill(b, l->q, (uint64_t)n_rows * s->n_heads * s->head_dim * 2);
    l->p.p = (struct attention_params){.q = {l->q, s->n_heads * s->head_dim},
                                       .out = {l->out, s->n_heads * v_dim},
                                       .rows = l->rows,
                                       .n_rows = n_rows,
                                       .n_heads = s->n_heads,
                                       .group = s->group,
                                       .scale = 0.01f,
                                       .kv = &l->kv};
    l->p.tiles = l->tiles;
    l->p.n_multiprocessors = b->info.n_multiprocessors;
    l->p.scratch = b->scratch;
    l->p.n_scratch_bytes = COPY_BYTES;
}

static void load_close(const struct bench *b, const struct load *l)
{
    void *const all[] = {l->cache, l->tables, l->rows, l->tiles, l->q, l->out};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        gpu_release(b->device, all[i]);
}

static void call_attention(const struct bench *b, const void *load)
{
    struct error err = {0};
    must(cuda_attention(b->stream, &((const struct load *)load)->p, &err), &err);
}

static void call_copy(const struct bench *b, const void *load)
{
    struct error err = {0};
    (void)load;
    must(gpu_copy_on_device(b->stream, b->to, b->from, COPY_BYTES, &err), &err);
}

static void call_gemm(const struct bench *b, const void *load)
{
    struct error err = {0};
    struct gpu_products p = {.x = {b->from, GEMM_DIM},
                             .n_rows = GEMM_DIM,
                             .n_parts = 1,
                             .parts = {{.out = {b->to, GEMM_DIM}}},
                             .scratch = b->scratch,
                             .scratch_bytes = COPY_BYTES};
    if (!gpu_matrix_of(DTYPE_BF16, GEMM_DIM, GEMM_DIM, 0, b->from, &p.parts[0].w))
        exit(1);
    (void)load;
    must(cuda_linear_many(b->linear, &p, &err), &err);
}

/* Seconds of one call, the mean over n. */
static double seconds_of(const struct bench *b, uint32_t n,
                         void (*call)(const struct bench *, const void *), const void *load)
{
    struct error err = {0};
    must(gpu_stream_sync(b->stream, &err), &err);
    const uint64_t begin_ns = clock_mono_ns();
    for (uint32_t i = 0; i < n; i++)
        call(b, load);
    must(gpu_stream_sync(b->stream, &err), &err);
    return (double)(clock_mono_ns() - begin_ns) / 1e9 / n;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Keys and values that a call has to read, and the operations of its products. */
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
    double seconds[3][N_ROUNDS], n_bytes, n_ops;
    load_open(b, s, &l);
    work_of(s, &n_bytes, &n_ops);
    uint32_t n = (uint32_t)(ROUND_BYTES / n_bytes) + 1;
    n = n < MAX_CALLS ? n : MAX_CALLS;
    (void)seconds_of(b, 2, call_attention, &l);
    for (int r = 0; r < N_ROUNDS; r++) {
        seconds[0][r] = seconds_of(b, n, call_attention, &l);
        seconds[1][r] = seconds_of(b, 4, call_copy, NULL);
        seconds[2][r] = seconds_of(b, 2, call_gemm, NULL);
    }
    for (int i = 0; i < 3; i++)
        qsort(seconds[i], N_ROUNDS, sizeof seconds[i][0], compare);
    const double t = seconds[0][N_ROUNDS / 2];
    const double copy_rate = 2.0 * COPY_BYTES / seconds[1][N_ROUNDS / 2];
    const double gemm_rate = 2.0 * GEMM_DIM * GEMM_DIM * GEMM_DIM / seconds[2][N_ROUNDS / 2];
    printf("| %s | %.1f (%.1f ... %.1f) | %.0f | %.2f | %.1f | %.2f |\n", s->name, t * 1e6,
           seconds[0][0] * 1e6, seconds[0][N_ROUNDS - 1] * 1e6, n_bytes / t / 1e9,
           n_bytes / t / copy_rate, n_ops / t / 1e12, n_ops / t / gemm_rate);
    load_close(b, &l);
}

int main(void)
{
    struct bench b = {0};
    struct error err = {0};
    enum status s = gpu_info(0, &b.info, &err);
    if (s == STATUS_OK)
        s = gpu_device_open(0, &b.device, &err);
    if (s == STATUS_UNSUPPORTED) {
        printf("SKIPPED: %s\n", err.text);
        return 77;
    }
    must(s, &err);
    must(gpu_stream_new(b.device, &b.stream, &err), &err);
    must(gpu_linear_new(b.stream, &b.info, &b.linear, &err), &err);
    b.from = device_alloc(&b, COPY_BYTES);
    b.to = device_alloc(&b, COPY_BYTES);
    b.scratch = device_alloc(&b, COPY_BYTES);
    fill(&b, b.from, COPY_BYTES);
    printf("device: %s\n\n", b.info.name);
    printf("| what | us a call: median (least ... most) | GB/s | of the copy | TFLOP/s | of cuBLAS "
           "|\n|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        run_shape(&b, &shapes[i]);
    gpu_release(b.device, b.from);
    gpu_release(b.device, b.to);
    gpu_release(b.device, b.scratch);
    gpu_linear_free(b.linear);
    gpu_stream_free(b.stream);
    gpu_device_close(b.device);
    return 0;
}
