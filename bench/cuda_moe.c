/* The mixture of DeepSeek-Coder-V2-Lite (64 experts of 2048 x 1408, 6 of them chosen): all of
 * cuda_moe, from the choice to the sum. GB/s of the weights that must be read, of activations and
 * results, beside a copy's on the same device in the same run; of many rows TFLOP/s beside a square
 * product's by cuBLAS. One row chooses other experts in every call, so that no cache holds them.
 * Rounds are interleaved: median, least and most. Exit status 77 without a device.
 *   cuda_moe_bench [rows...]   1 8 64 512 8192 when none are named */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/random.h"
#include "kernels/cuda/cuda_linear.h"
#include "kernels/cuda/cuda_moe.h"

#define N_ROUNDS      7
#define ROUND_NS      20000000ull /* a round takes about so long, */
#define MAX_ROUND_OPS 2000u       /* or makes so many calls */
#define COPY_BYTES    (256ull << 20)
#define SQUARE        8192u
#define N_CHOICES     32u /* sets of choices that calls take in turn */
#define MAX_ROWS      8192u

enum { N_EXPERTS = 64, N_CHOSEN = 6, DIM = 2048, WIDTH = 1408 };
static const struct {
    const char *name;
    enum dtype dtype;
    uint32_t group;
} formats[] = {{"bf16", DTYPE_BF16, 0}, {"int4 g128", DTYPE_INT4, 128}, {"fp8", DTYPE_FP8, 128}};

struct bench {
    struct gpu_device *device;
    struct gpu_stream *stream;
    struct gpu_info info;
    struct gpu_linear *linear;
    double copy_rate, gemm_rate; /* bytes and operations a second */
};

/* What one call does: a mixture, a copy or a square product. */
struct job {
    const struct bench *b;
    struct moe_params p;
    struct cuda_room room;
    const struct gpu_products *square;
    uint8_t *copy;
};

static void must(enum status s, const struct error *err)
{
    if (s == STATUS_OK)
        return;
    fprintf(stderr, "cuda_moe_bench: %s: %s\n", status_name(s), err->text);
    exit(1);
}

/* Zeros, or random bits with an exponent of ordinary size, as bfloat16. */
static void *room(const struct bench *b, uint64_t n_bytes, bool is_filled)
{
    enum { N = 1 << 20 };
    struct error err = {0};
    void *ptr;
    must(gpu_alloc(b->device, n_bytes, &ptr, &err), &err);
    if (!is_filled)
        return ptr;
    uint16_t *host = mem_array(N, sizeof *host);
    struct rng rng = {n_bytes};
    for (uint32_t i = 0; i < N; i++)
        host[i] = (uint16_t)((rng_next(&rng) & 0x80ff) | 0x3e00);
    for (uint64_t at = 0; at < n_bytes; at += N * sizeof *host) {
        const uint64_t left = n_bytes - at, n = left < N * sizeof *host ? left : N * sizeof *host;
        must(gpu_copy_to_device(b->stream, (uint8_t *)ptr + at, host, n, &err), &err);
    }
    must(gpu_stream_sync(b->stream, &err), &err);
    mem_free(host);
    return ptr;
}

static void enqueue(const struct job *j, uint32_t i)
{
    struct error err = {0};
    const struct bench *b = j->b;
    struct moe_params p = j->p;
    if (j->copy) {
        must(gpu_copy_on_device(b->stream, j->copy + COPY_BYTES, j->copy, COPY_BYTES, &err), &err);
    } else if (j->square) {
        must(cuda_linear_many(b->linear, j->square, &err), &err);
    } else {
        p.ids += (size_t)(i % N_CHOICES) * p.n_rows * N_CHOSEN;
        must(cuda_moe(b->stream, &p, &j->room, b->info.n_multiprocessors, &err), &err);
    }
}

/* Seconds of one call, the mean of n of them. */
static double seconds_of(const struct job *j, uint32_t n)
{
    struct error err = {0};
    must(gpu_stream_sync(j->b->stream, &err), &err);
    const uint64_t begin_ns = clock_mono_ns();
    for (uint32_t i = 0; i < n; i++)
        enqueue(j, i);
    must(gpu_stream_sync(j->b->stream, &err), &err);
    return (double)(clock_mono_ns() - begin_ns) / 1e9 / n;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorted, of N_ROUNDS. */
static void measure(const struct job *j, double *seconds)
{
    const double once = seconds_of(j, 2);
    const uint64_t n = (uint64_t)((double)ROUND_NS / 1e9 / once) + 1;
    for (int r = 0; r < N_ROUNDS; r++)
        seconds[r] = seconds_of(j, n < MAX_ROUND_OPS ? (uint32_t)n : MAX_ROUND_OPS);
    qsort(seconds, N_ROUNDS, sizeof *seconds, compare);
}

static void measure_rates(struct bench *b)
{
    double seconds[N_ROUNDS];
    struct error err = {0};
    struct job copy = {.b = b, .copy = room(b, 2 * COPY_BYTES, true)};
    measure(&copy, seconds);
    b->copy_rate = 2.0 * (double)COPY_BYTES / seconds[N_ROUNDS / 2];
    struct gpu_products p = {.n_rows = SQUARE,
                             .n_parts = 1,
                             .x = {copy.copy, SQUARE},
                             .scratch = room(b, GPU_BLAS_WORKSPACE, false),
                             .scratch_bytes = GPU_BLAS_WORKSPACE};
    if (!gpu_matrix_of(DTYPE_BF16, SQUARE, SQUARE, 0, copy.copy + COPY_BYTES, &p.parts[0].w))
        must(error_set(&err, STATUS_INTERNAL, "no square matrix"), &err);
    p.parts[0].out = (struct view){room(b, 2ull * SQUARE * SQUARE, false), SQUARE};
    measure(&(struct job){.b = b, .square = &p}, seconds);
    b->gemm_rate = 2.0 * SQUARE * SQUARE * (double)SQUARE / seconds[N_ROUNDS / 2];
    printf("copy on the device: %.0f GB/s; cuBLAS, %u x %u x %u: %.0f TFLOP/s\n\n",
           b->copy_rate / 1e9, SQUARE, SQUARE, SQUARE, b->gemm_rate / 1e12);
    gpu_release(b->device, copy.copy);
    gpu_release(b->device, p.scratch);
    gpu_release(b->device, p.parts[0].out.data);
}

/* One format's experts. */
struct experts {
    struct weight w[N_EXPERTS][3];
    struct moe_expert experts[N_EXPERTS];
    void *memory, *table;
    uint64_t expert_bytes;
};

static void experts_make(const struct bench *b, size_t format, struct experts *x)
{
    struct error err = {0};
    uint64_t at = 0, sizes[3] = {0};
    for (int i = 0; i < 3; i++) {
        struct gpu_matrix m;
        const uint32_t n = i == 2 ? DIM : WIDTH, k = i == 2 ? WIDTH : DIM;
        if (!gpu_matrix_of(formats[format].dtype, n, k, formats[format].group, NULL, &m))
            must(error_set(&err, STATUS_INTERNAL, "no matrix of %s", formats[format].name), &err);
        sizes[i] = (gpu_matrix_bytes(&m) + 255) / 256 * 256;
    }
    x->expert_bytes = sizes[0] + sizes[1] + sizes[2];
    x->memory = room(b, x->expert_bytes * N_EXPERTS, true);
    for (uint32_t e = 0; e < N_EXPERTS; e++) {
        for (int i = 0; i < 3; i++, at += sizes[i - 1])
            x->w[e][i] = (struct weight){.dtype = formats[format].dtype,
                                         .n = i == 2 ? DIM : WIDTH,
                                         .k = i == 2 ? WIDTH : DIM,
                                         .group = formats[format].group,
                                         .data = (uint8_t *)x->memory + at};
        x->experts[e] =
            (struct moe_expert){.gate = &x->w[e][0], .up = &x->w[e][1], .down = &x->w[e][2]};
    }
    const uint64_t n_bytes = cuda_expert_table_bytes(N_EXPERTS);
    void *table = mem_array(n_bytes, 1);
    must(cuda_expert_table_fill(x->experts, N_EXPERTS, table, &err), &err);
    x->table = room(b, n_bytes, false);
    must(gpu_copy_to_device(b->stream, x->table, table, n_bytes, &err), &err);
    must(gpu_stream_sync(b->stream, &err), &err);
    mem_free(table);
}

/* N_CHOICES sets of choices; gives the mean number of experts that one has. */
static double choices_make(const struct bench *b, uint32_t n_rows, uint32_t **ids)
{
    struct error err = {0};
    struct rng rng = {n_rows};
    const uint64_t n = (uint64_t)N_CHOICES * n_rows * N_CHOSEN;
    uint32_t *host = mem_array(n, sizeof *host), *at = host, n_used = 0;
    for (uint32_t c = 0; c < N_CHOICES; c++) {
        bool used[N_EXPERTS] = {false};
        for (uint32_t row = 0; row < n_rows; row++)
            for (uint32_t e = 0, left = N_CHOSEN; left > 0; e++)
                if (rng_below(&rng, N_EXPERTS - e) < left) {
                    n_used += !used[e];
                    used[e] = true;
                    *at++ = e;
                    left--;
                }
    }
    *ids = room(b, n * sizeof *host, false);
    must(gpu_copy_to_device(b->stream, *ids, host, n * sizeof *host, &err), &err);
    must(gpu_stream_sync(b->stream, &err), &err);
    mem_free(host);
    return (double)n_used / N_CHOICES;
}

static void run_rows(const struct bench *b, const struct experts *x, size_t format, uint32_t n_rows)
{
    double seconds[N_ROUNDS];
    uint32_t *ids;
    const double n_used = choices_make(b, n_rows, &ids);
    const uint64_t scratch = cuda_moe_scratch(n_rows, N_CHOSEN, DIM, WIDTH, N_EXPERTS);
    struct job j = {.b = b,
                    .p = {.x = {room(b, 2ull * n_rows * DIM, true), DIM},
                          .out = {room(b, 2ull * n_rows * DIM, false), DIM},
                          .n_rows = n_rows,
                          .dim = DIM,
                          .n_chosen = N_CHOSEN,
                          .n = N_EXPERTS,
                          .ids = ids,
                          .shares = room(b, 4ull * n_rows * N_CHOSEN, false),
                          .experts = x->experts,
                          .table = x->table},
                    .room = {room(b, scratch, false), scratch}};
    measure(&j, seconds);
    const double bytes = n_used * (double)x->expert_bytes + 4.0 * n_rows * DIM;
    const double flops = 6.0 * n_rows * N_CHOSEN * DIM * WIDTH, middle = seconds[N_ROUNDS / 2];
    printf("| %s | %u | %.1f | %.1f (%.1f ... %.1f) | %.0f | %.2f | %.0f | %.2f |\n",
           formats[format].name, n_rows, n_used, middle * 1e6, seconds[0] * 1e6,
           seconds[N_ROUNDS - 1] * 1e6, bytes / middle / 1e9, bytes / middle / b->copy_rate,
           flops / middle / 1e12, flops / middle / b->gemm_rate);
    void *rooms[] = {j.p.x.data, j.p.out.data, ids, (void *)(uintptr_t)j.p.shares, j.room.ptr};
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++)
        gpu_release(b->device, rooms[i]);
}

int main(int argc, char **argv)
{
    static const uint32_t all_rows[] = {1, 8, 64, 512, 8192};
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
    printf("device: %s\n", b.info.name);
    measure_rates(&b);
    printf("| experts | rows | experts that are read | us: median (least ... most) | GB/s | of the "
           "copy | TFLOP/s | of cuBLAS |\n|---|---|---|---|---|---|---|---|\n");
    const uint32_t n = argc > 1 ? (uint32_t)argc - 1 : sizeof all_rows / sizeof all_rows[0];
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++) {
        struct experts *x = mem_zalloc(sizeof *x);
        experts_make(&b, f, x);
        for (uint32_t i = 0; i < n; i++) {
            const long rows = argc > 1 ? strtol(argv[i + 1], NULL, 10) : (long)all_rows[i];
            if (rows >= 1 && rows <= (long)MAX_ROWS)
                run_rows(&b, x, f, (uint32_t)rows);
        }
        gpu_release(b.device, x->memory);
        gpu_release(b.device, x->table);
        mem_free(x);
    }
    gpu_linear_free(b.linear);
    gpu_stream_free(b.stream);
    gpu_device_close(b.device);
    return 0;
}
