/* Products of true models' shapes: GB/s of weights, activations and results beside a copy's on the
 * same device in the same run, and of many rows TFLOP/s beside a square product's by cuBLAS.
 * Weights rotate through more memory than any cache holds. Rounds are interleaved: median, least
 * and most. Calls follow each other as in a decode step, launches included. Exit status 77 without
 * a device. cuda_linear_bench [rows...]   1 8 64 8192 when none are named */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "kernels/cuda/cuda_linear.h"

#define N_ROUNDS      7
#define POOL_BYTES    (3ull << 30) /* of weights; the largest matrix has 1.1 GB */
#define ROUND_NS      20000000ull  /* a round takes about so long, */
#define MAX_ROUND_OPS 2000u        /* or makes so many calls */
#define SCRATCH_BYTES (GPU_BLAS_WORKSPACE + (64ull << 20))
#define MAX_ROWS      8192u
#define MAX_WIDTH     28672u /* outputs of a call, but for heads */
#define SQUARE        8192u

struct shape {
    const char *name;
    uint32_t k, n[LINEAR_MAX_PARTS];
    bool head; /* of decode rows alone, to float */
};
static const struct shape shapes[] = {
    {"Llama-3.1-8B q k v", 4096, {4096, 1024, 1024}, false},
    {"Llama-3.1-8B o", 4096, {4096}, false},
    {"Llama-3.1-8B gate up", 4096, {14336, 14336}, false},
    {"Llama-3.1-8B down", 14336, {4096}, false},
    {"Llama-3.1-8B head", 4096, {128256}, true},
    {"Phi-3-mini qkv", 3072, {9216}, false},
    {"Phi-3-mini o", 3072, {3072}, false},
    {"Phi-3-mini gate_up", 3072, {16384}, false},
    {"Phi-3-mini down", 8192, {3072}, false},
    {"DeepSeek-V2-Lite q kv_a", 2048, {3072, 576}, false},
    {"DeepSeek-V2-Lite o", 2048, {2048}, false},
    {"DeepSeek-V2-Lite gate up", 2048, {10944, 10944}, false},
    {"DeepSeek-V2-Lite down", 10944, {2048}, false},
};
static const struct {
    const char *name;
    enum dtype dtype;
    uint32_t group;
} formats[] = {{"bf16", DTYPE_BF16, 0},
               {"int4 g128", DTYPE_INT4, 128},
               {"fp8", DTYPE_FP8, 128},
               {"q4_k", DTYPE_Q4_K, 0},
               {"q8_0", DTYPE_Q8_0, 0}};

struct bench {
    struct gpu_device *device;
    struct gpu_stream *stream;
    struct gpu_linear *linear;
    uint8_t *weights, *x, *out;
    void *scratch;
    double copy_rate, gemm_rate; /* bytes and operations a second */
};

static void must(enum status s, const struct error *err)
{
    if (s == STATUS_OK)
        return;
    fprintf(stderr, "cuda_linear_bench: %s: %s\n", status_name(s), err->text);
    exit(1);
}

/* What is measured: p.n_parts 0 is the copy, of n_bytes. */
struct job {
    struct gpu_products p;
    uint64_t n_bytes; /* of weights */
    bool many;
};

static void enqueue(const struct bench *b, const struct job *j, uint64_t offset)
{
    struct error err = {0};
    struct gpu_products p = j->p;
    if (p.n_parts == 0) {
        must(gpu_copy_on_device(b->stream, b->weights + POOL_BYTES / 2 + offset,
                                b->weights + offset, j->n_bytes, &err),
             &err);
        return;
    }
    for (uint32_t i = 0; i < p.n_parts; i++) {
        p.parts[i].w.codes = (const uint8_t *)p.parts[i].w.codes + offset;
        p.parts[i].w.scales = (const uint8_t *)p.parts[i].w.scales + offset;
    }
    must(j->many ? cuda_linear_many(b->linear, &p, &err) : cuda_linear_few(b->linear, &p, &err),
         &err);
}

/* Seconds of one call, the mean of n of them. */
static double seconds_of(const struct bench *b, const struct job *j, uint32_t n)
{
    struct error err = {0};
    uint64_t offset = 0, room = j->p.n_parts == 0 ? POOL_BYTES / 2 : POOL_BYTES;
    must(gpu_stream_sync(b->stream, &err), &err);
    const uint64_t begin_ns = clock_mono_ns();
    for (uint32_t i = 0; i < n; i++) {
        enqueue(b, j, offset);
        offset = offset + 2 * j->n_bytes <= room ? offset + j->n_bytes : 0;
    }
    must(gpu_stream_sync(b->stream, &err), &err);
    return (double)(clock_mono_ns() - begin_ns) / 1e9 / n;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorted, of N_ROUNDS. */
static void measure(const struct bench *b, const struct job *j, double *seconds)
{
    double once = seconds_of(b, j, 2);
    uint64_t n = (uint64_t)((double)ROUND_NS / 1e9 / once) + 1;
    uint32_t n_ops = n < MAX_ROUND_OPS ? (uint32_t)n : MAX_ROUND_OPS;
    for (int r = 0; r < N_ROUNDS; r++)
        seconds[r] = seconds_of(b, j, n_ops);
    qsort(seconds, N_ROUNDS, sizeof *seconds, compare);
}

static struct job job_of(const struct bench *b, const struct shape *s, size_t format,
                         uint32_t n_rows)
{
    struct job j = {.p = {.x = {b->x, s->k},
                          .n_rows = n_rows,
                          .scratch = b->scratch,
                          .scratch_bytes = SCRATCH_BYTES}};
    uint64_t at = 0;
    for (uint32_t i = 0; i < LINEAR_MAX_PARTS && s->n[i] > 0; i++, j.p.n_parts++) {
        struct gpu_product *part = &j.p.parts[i];
        if (!gpu_matrix_of(formats[format].dtype, s->n[i], s->k, formats[format].group,
                           b->weights + j.n_bytes, &part->w)) {
            j.p.n_parts = 0; /* k is no whole number of its blocks */
            return j;
        }
        part->out = (struct view){b->out + at, s->n[i]};
        part->to_float = s->head;
        at += (uint64_t)n_rows * s->n[i] * (s->head ? 4 : 2);
        j.n_bytes += (gpu_matrix_bytes(&part->w) + 255) / 256 * 256;
    }
    j.many = n_rows >= gpu_many_rows(j.p.parts[0].w.format);
    return j;
}

static void run_shape(const struct bench *b, const struct shape *s, size_t format, uint32_t n_rows)
{
    double seconds[N_ROUNDS], outputs = 0;
    struct job j = job_of(b, s, format, n_rows);
    if (j.p.n_parts == 0 || (s->head && n_rows > 256))
        return;
    for (uint32_t i = 0; i < j.p.n_parts; i++)
        outputs += s->n[i];
    measure(b, &j, seconds);
    const double bytes = (double)j.n_bytes + n_rows * (s->k * 2.0 + outputs * (s->head ? 4 : 2));
    const double flops = 2.0 * n_rows * s->k * outputs, middle = seconds[N_ROUNDS / 2];
    printf("| %s | %s | %u | %.1f (%.1f ... %.1f) | %.0f | %.2f | %.0f | %.2f |\n", s->name,
           formats[format].name, n_rows, middle * 1e6, seconds[0] * 1e6,
           seconds[N_ROUNDS - 1] * 1e6, bytes / middle / 1e9, bytes / middle / b->copy_rate,
           flops / middle / 1e12, flops / middle / b->gemm_rate);
}

/* The two rates that all others are compared with. */
static void measure_rates(struct bench *b)
{
    double seconds[N_ROUNDS];
    const struct job copy = {.n_bytes = 256u << 20};
    const struct shape square = {"square", SQUARE, {SQUARE}, false};
    measure(b, &copy, seconds);
    b->copy_rate = 2.0 * (double)copy.n_bytes / seconds[N_ROUNDS / 2];
    const struct job gemm = job_of(b, &square, 0, SQUARE);
    measure(b, &gemm, seconds);
    b->gemm_rate = 2.0 * SQUARE * SQUARE * (double)SQUARE / seconds[N_ROUNDS / 2];
    printf("copy on the device: %.0f GB/s; cuBLAS, %u x %u x %u: %.0f TFLOP/s\n\n",
           b->copy_rate / 1e9, SQUARE, SQUARE, SQUARE, b->gemm_rate / 1e12);
}

/* Random bits with an exponent of ordinary size, as bfloat16: zeros would run on less power. */
static void fill(const struct bench *b, uint8_t *device, uint64_t n_bytes)
{
    enum { N = 1 << 20 };
    struct error err = {0};
    uint16_t *host = mem_array(N, sizeof *host);
    uint64_t random = 88172645463325252ull;
    for (uint32_t i = 0; i < N; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        host[i] = (uint16_t)((random & 0x80ff) | 0x3e00);
    }
    for (uint64_t at = 0; at < n_bytes; at += N * sizeof *host) {
        uint64_t n = n_bytes - at < N * sizeof *host ? n_bytes - at : N * sizeof *host;
        must(gpu_copy_to_device(b->stream, device + at, host, n, &err), &err);
    }
    must(gpu_stream_sync(b->stream, &err), &err);
    mem_free(host);
}

static uint8_t *room(const struct bench *b, uint64_t n_bytes)
{
    struct error err = {0};
    void *ptr;
    must(gpu_alloc(b->device, n_bytes, &ptr, &err), &err);
    fill(b, ptr, n_bytes);
    return ptr;
}

int main(int argc, char **argv)
{
    static const uint32_t all_rows[] = {1, 8, 64, 8192};
    struct bench b = {0};
    struct gpu_info info;
    struct error err = {0};
    enum status s = gpu_info(0, &info, &err);
    if (s == STATUS_OK)
        s = gpu_device_open(0, &b.device, &err);
    if (s == STATUS_UNSUPPORTED) {
        printf("SKIPPED: %s\n", err.text);
        return 77;
    }
    must(s, &err);
    must(gpu_stream_new(b.device, &b.stream, &err), &err);
    must(gpu_linear_new(b.stream, &info, &b.linear, &err), &err);
    b.weights = room(&b, POOL_BYTES);
    b.x = room(&b, (uint64_t)MAX_ROWS * 14336 * 2);
    b.out = room(&b, (uint64_t)MAX_ROWS * MAX_WIDTH * 2);
    b.scratch = room(&b, SCRATCH_BYTES);
    printf("device: %s\n", info.name);
    measure_rates(&b);
    printf(
        "| product | format | rows | us: median (least ... most) | GB/s | of the copy | TFLOP/s | "
        "of cuBLAS |\n|---|---|---|---|---|---|---|---|\n");
    uint32_t n = argc > 1 ? (uint32_t)argc - 1 : sizeof all_rows / sizeof all_rows[0];
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++)
            for (uint32_t r = 0; r < n; r++) {
                long rows = argc > 1 ? strtol(argv[r + 1], NULL, 10) : (long)all_rows[r];
                if (rows >= 1 && rows <= MAX_ROWS)
                    run_shape(&b, &shapes[i], f, (uint32_t)rows);
            }
    gpu_linear_free(b.linear);
    gpu_release(b.device, b.weights);
    gpu_release(b.device, b.x);
    gpu_release(b.device, b.out);
    gpu_release(b.device, b.scratch);
    gpu_stream_free(b.stream);
    gpu_device_close(b.device);
    return 0;
}
