/* Measures the bytes that the norms of kernels/cuda move per second, beside the driver's copy of
 * as many bytes on the same device, in interleaved rounds. The copy of 1 GiB is printed too
 * (ceilings.h). Only the bytes that must move are counted: x read and out written (norm), x and
 * y read, x and out written (add_norm), source read and copy written. Inputs rotate through more
 * memory than any cache holds. The table has median, least and most. Small shapes show the cost
 * of a call in a decode step, with its launch. Figures are reported, not judged: the bars are
 * those of whole models (model.c).
 * Usage: cuda_norm_bench [--seconds N]. Exit status: bars.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/gpu/ceilings.h"
#include "common/base/clock.h"
#include "kernels/cuda/rows/abi.h"

#define N_ROUNDS      9
#define POOL_BYTES    (1ull << 30) /* bytes of each of x, y and out: many times the largest L2 */
#define ROUND_BYTES   (4ull << 30) /* least bytes that a round moves */
#define MAX_ROUND_OPS 2000u        /* most calls in a round */

enum what { WHAT_COPY, WHAT_NORM, WHAT_ADD_NORM, WHAT_COUNT };
static const char *const what_names[] = {"copy", "norm", "add_norm"};
static const unsigned what_streams[] = {2, 2, 4}; /* number of reads and writes of one element */

struct bench {
    struct bars bars;
    struct ceilings c;
    char *x, *y, *out;
    float *w;
};

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
        return gpu_copy_on_device(b->c.stream, b->out + offset, b->x + offset,
                                  (uint64_t)n_rows * dim * 2, err);
    case WHAT_NORM:
        return cuda_norm_bf16(b->c.stream, &p, err);
    case WHAT_ADD_NORM:
        return cuda_add_norm_bf16(b->c.stream, &add, err);
    case WHAT_COUNT:
        break;
    }
    return error_set(err, STATUS_INTERNAL, "no such operation: %d", (int)what);
}

/* Returns the seconds of one call, the mean over a round. */
static double round_seconds(const struct bench *b, enum what what, uint32_t n_rows, uint32_t dim)
{
    struct error err = {0};
    const uint64_t n_bytes = (uint64_t)n_rows * dim * 2;
    uint64_t n_ops = ROUND_BYTES / (n_bytes * what_streams[what]) + 1, offset = 0;
    n_ops = n_ops < MAX_ROUND_OPS ? n_ops : MAX_ROUND_OPS;
    must(gpu_stream_sync(b->c.stream, &err), &err, "sync");
    const uint64_t begin_ns = clock_mono_ns();
    for (uint64_t i = 0; i < n_ops; i++) {
        must(enqueue(b, what, n_rows, dim, offset, &err), &err, what_names[what]);
        offset = offset + 2 * n_bytes <= POOL_BYTES ? offset + n_bytes : 0;
    }
    must(gpu_stream_sync(b->c.stream, &err), &err, "sync");
    return (double)(clock_mono_ns() - begin_ns) / 1e9 / (double)n_ops;
}

static void run_shape(struct bench *b, uint32_t n_rows, uint32_t dim)
{
    double seconds[WHAT_COUNT][N_ROUNDS];
    char text[BARS_WHAT];
    snprintf(text, sizeof text, "norms of %u x %u", n_rows, dim);
    if (!bars_has_time(&b->bars, text, 1, false))
        return;
    for (int w = 0; w < WHAT_COUNT; w++)
        (void)round_seconds(b, (enum what)w, n_rows, dim); /* this call warms up */
    for (int r = 0; r < N_ROUNDS; r++)
        for (int w = 0; w < WHAT_COUNT; w++)
            seconds[w][r] = round_seconds(b, (enum what)w, n_rows, dim);
    double copy_rate = 0;
    for (int w = 0; w < WHAT_COUNT; w++) {
        const double gb = (double)n_rows * dim * 2 * what_streams[w] / 1e9;
        const double rate = gb / ceilings_median(seconds[w], N_ROUNDS);
        copy_rate = w == WHAT_COPY ? rate : copy_rate;
        printf("| %u x %u | %s | %.2f | %.0f (%.0f ... %.0f) | %.2f |\n", n_rows, dim,
               what_names[w], seconds[w][N_ROUNDS / 2] * 1e6, rate, gb / seconds[w][N_ROUNDS - 1],
               gb / seconds[w][0], rate / copy_rate);
        snprintf(text, sizeof text, "%s of %u x %u", what_names[w], n_rows, dim);
        if (w != WHAT_COPY && n_rows == 8192)
            bars_figure(&b->bars, text, "of a copy's rate", rate / copy_rate, BAR_NONE, 0);
    }
}

int main(int argc, char **argv)
{
    static const uint32_t shapes[][2] = {{1, 4096},    {16, 4096},    {256, 4096}, {8192, 4096},
                                         {65536, 128}, {8192, 16384}, {8192, 1024}};
    static struct bench b;
    if (argc != 1 && !(argc == 3 && strcmp(argv[1], "--seconds") == 0)) {
        fprintf(stderr, "usage: cuda_norm_bench [--seconds N]\n");
        return 2;
    }
    ceilings_open(&b.c, "cuda_norm_bench");
    bars_open(&b.bars, "cuda_norm_bench", b.c.is_emulated, argc == 3 ? strtod(argv[2], NULL) : 0);
    ceilings_measure(&b.c);
    char **pools[] = {&b.x, &b.y, &b.out};
    for (size_t i = 0; i < sizeof pools / sizeof pools[0]; i++)
        *pools[i] = ceilings_room(&b.c, POOL_BYTES);
    /* w may hold arbitrary numbers; pairs of bfloat16 read as ordinary floats */
    b.w = (float *)(void *)b.y;
    printf("\n| rows x dim | what | us a call | GB/s: median (least ... most) | of the copy |\n");
    printf("|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        run_shape(&b, shapes[i][0], shapes[i][1]);
    for (size_t i = 0; i < sizeof pools / sizeof pools[0]; i++)
        gpu_release(b.c.device, *pools[i]);
    ceilings_close(&b.c);
    return (int)bars_close(&b.bars);
}
