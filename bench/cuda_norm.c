/* What the norms of kernels/cuda move per second, beside a copy on the same device in the same run.
 * Bytes are those that must move: x read and out written (norm), x and y read, x and out written
 * (add_norm), source read and copy written. Inputs rotate through more memory than any cache holds.
 * Rounds are interleaved: median, least and most. Small shapes are what a decode step pays per
 * call, the launch included. Exit status 77 without a device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "kernels/cuda/cuda_ops.h"

#define N_ROUNDS      9
#define POOL_BYTES    (1ull << 30) /* of each of x, y, out: many times the largest L2 */
#define ROUND_BYTES   (4ull << 30) /* at least this is moved in a round, */
#define MAX_ROUND_OPS 2000u        /* or this many calls are made */

enum what { WHAT_COPY, WHAT_NORM, WHAT_ADD_NORM, WHAT_COUNT };
static const char *const what_names[] = {"copy", "norm", "add_norm"};
static const unsigned what_streams[] = {2, 2, 4}; /* reads and writes of one element */

struct bench {
    struct gpu_device *device;
    struct gpu_stream *stream;
    char *x, *y, *out;
    float *w;
};

static void must(enum status s, const struct error *err)
{
    if (s == STATUS_OK)
        return;
    fprintf(stderr, "cuda_norm_bench: %s: %s\n", status_name(s), err->text);
    exit(1);
}

static enum status enqueue(const struct bench *b, enum what what, uint32_t n_rows, uint32_t dim,
                           uint64_t offset, struct error *err)
{
    const struct norm_params p = {.x = {b->x + offset, dim},
                                  .out = {b->out + offset, dim},
                                  .w = b->w,
                                  .n_rows = n_rows,
                                  .n_parts = 1,
                                  .dim = dim,
                                  .eps = 1e-6f};
    const struct add_norm_params add = {.norm = p, .y = {b->y + offset, dim}};
    switch (what) {
    case WHAT_COPY:
        return gpu_copy_on_device(b->stream, b->out + offset, b->x + offset,
                                  (uint64_t)n_rows * dim * 2, err);
    case WHAT_NORM:
        return cuda_norm_bf16(b->stream, &p, err);
    case WHAT_ADD_NORM:
        return cuda_add_norm_bf16(b->stream, &add, err);
    case WHAT_COUNT:
        break;
    }
    return error_set(err, STATUS_INTERNAL, "no such operation: %d", (int)what);
}

/* Seconds of one call, the mean over a round. */
static double round_seconds(const struct bench *b, enum what what, uint32_t n_rows, uint32_t dim)
{
    struct error err = {0};
    const uint64_t n_bytes = (uint64_t)n_rows * dim * 2;
    uint64_t n_ops = ROUND_BYTES / (n_bytes * what_streams[what]) + 1, offset = 0;
    n_ops = n_ops < MAX_ROUND_OPS ? n_ops : MAX_ROUND_OPS;
    must(gpu_stream_sync(b->stream, &err), &err);
    const uint64_t begin_ns = clock_mono_ns();
    for (uint64_t i = 0; i < n_ops; i++) {
        must(enqueue(b, what, n_rows, dim, offset, &err), &err);
        offset = offset + 2 * n_bytes <= POOL_BYTES ? offset + n_bytes : 0;
    }
    must(gpu_stream_sync(b->stream, &err), &err);
    return (double)(clock_mono_ns() - begin_ns) / 1e9 / (double)n_ops;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void run_shape(const struct bench *b, uint32_t n_rows, uint32_t dim)
{
    double seconds[WHAT_COUNT][N_ROUNDS];
    for (int w = 0; w < WHAT_COUNT; w++)
        (void)round_seconds(b, (enum what)w, n_rows, dim); /* warm */
    for (int r = 0; r < N_ROUNDS; r++)
        for (int w = 0; w < WHAT_COUNT; w++)
            seconds[w][r] = round_seconds(b, (enum what)w, n_rows, dim);
    double copy_rate = 0;
    for (int w = 0; w < WHAT_COUNT; w++) {
        const double gb = (double)n_rows * dim * 2 * what_streams[w] / 1e9;
        qsort(seconds[w], N_ROUNDS, sizeof seconds[w][0], compare);
        const double rate = gb / seconds[w][N_ROUNDS / 2];
        copy_rate = w == WHAT_COPY ? rate : copy_rate;
        printf("| %u x %u | %s | %.2f | %.0f (%.0f ... %.0f) | %.2f |\n", n_rows, dim,
               what_names[w], seconds[w][N_ROUNDS / 2] * 1e6, rate, gb / seconds[w][N_ROUNDS - 1],
               gb / seconds[w][0], rate / copy_rate);
    }
}

/* Random bits with an exponent of ordinary size: zeros would run on less power. */
static void fill(const struct bench *b, char *device)
{
    enum { N = 1 << 20 };
    struct error err = {0};
    uint16_t *host = mem_array(N, sizeof *host);
    uint64_t random = 88172645463325252ull;
    for (uint32_t i = 0; i < N; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        host[i] = (uint16_t)((random & 0x80ff) | 0x3f00);
    }
    for (uint64_t offset = 0; offset < POOL_BYTES; offset += N * sizeof *host)
        must(gpu_copy_to_device(b->stream, device + offset, host, N * sizeof *host, &err), &err);
    must(gpu_stream_sync(b->stream, &err), &err);
    mem_free(host);
}

int main(void)
{
    static const uint32_t shapes[][2] = {{1, 4096},    {16, 4096},    {256, 4096}, {8192, 4096},
                                         {65536, 128}, {8192, 16384}, {8192, 1024}};
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
    char **pools[] = {&b.x, &b.y, &b.out};
    for (size_t i = 0; i < sizeof pools / sizeof pools[0]; i++) {
        void *ptr;
        must(gpu_alloc(b.device, POOL_BYTES, &ptr, &err), &err);
        *pools[i] = ptr;
        fill(&b, ptr);
    }
    b.w = (float *)(void *)b.y; /* any numbers; bfloat16 pairs read as floats of ordinary size */
    printf("device: %s\n\n", info.name);
    printf("| rows x dim | what | us a call | GB/s: median (least ... most) | of the copy |\n");
    printf("|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        run_shape(&b, shapes[i][0], shapes[i][1]);
    gpu_release(b.device, b.x);
    gpu_release(b.device, b.y);
    gpu_release(b.device, b.out);
    gpu_stream_free(b.stream);
    gpu_device_close(b.device);
    return 0;
}
