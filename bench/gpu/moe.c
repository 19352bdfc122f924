/* Measures the mixture of DeepSeek-Coder-V2-Lite (64 experts of 2048 x 1408, 6 of them chosen):
 * all of cuda_moe, from the choice to the sum. GB/s count activations, results and the weights
 * that must be read. These weights are the experts that the rows of a call chose, each once, as
 * they are stored on the device. A copy on the same device in the same run is measured for
 * comparison. For many rows the bench measures TFLOP/s (6 x rows x chosen x 2048 x 1408) beside
 * a square product of cuBLAS (ceilings.h). Choices are random, and calls use 32 sets of choices
 * in turn, so that no cache holds the experts of one row. The table has the rounds' median,
 * least and most. Figures are reported, not judged: the bars are those of whole models
 * (model.c).
 *   cuda_moe_bench [rows...] [--seconds N]      default rows: 1 8 64 512 8192
 * Exit status: bars.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/gpu/ceilings.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/random.h"
#include "kernels/cuda/moe/abi.h"

#define N_ROUNDS      7
#define ROUND_NS      20000000ull /* target time of a round in ns */
#define MAX_ROUND_OPS 2000u       /* most calls in a round */
#define N_CHOICES     32u         /* sets of choices that calls use in turn */
#define MAX_ROWS      8192u

enum { N_EXPERTS = 64, N_CHOSEN = 6, DIM = 2048, WIDTH = 1408 };
static const struct {
    const char *name;
    enum dtype dtype;
    uint32_t group;
} formats[] = {{"bf16", DTYPE_BF16, 0}, {"int4 g128", DTYPE_INT4, 128}, {"fp8", DTYPE_FP8, 128}};

struct bench {
    struct bars bars;
    struct ceilings c;
    uint32_t n_cut;
};

/* `job` describes the work of one call. */
struct job {
    const struct bench *b;
    struct moe_params p;
    struct cuda_room room;
};

static void *room(const struct bench *b, uint64_t n_bytes)
{
    struct error err = {0};
    void *ptr;
    must(gpu_alloc(b->c.device, n_bytes, &ptr, &err), &err, "memory");
    return ptr;
}

static void *filled_room(const struct bench *b, uint64_t n_bytes)
{
    void *ptr = room(b, n_bytes);
    ceilings_fill(b->c.stream, ptr, n_bytes);
    return ptr;
}

static void write_room(const struct bench *b, void *to, const void *host, uint64_t n_bytes)
{
    struct error err = {0};
    must(gpu_copy_to_device(b->c.stream, to, host, n_bytes, &err), &err, "write");
    must(gpu_stream_sync(b->c.stream, &err), &err, "write");
}

static void enqueue(const struct job *j, uint32_t i)
{
    struct error err = {0};
    struct moe_params p = j->p;
    p.ids += (size_t)(i % N_CHOICES) * p.n_rows * N_CHOSEN;
    must(cuda_moe(j->b->c.stream, &p, &j->room, j->b->c.info.n_multiprocessors, &err), &err,
         "mixture");
}

/* Returns the seconds of one call, the mean of n calls. */
static double seconds_of(const struct job *j, uint32_t n)
{
    struct error err = {0};
    must(gpu_stream_sync(j->b->c.stream, &err), &err, "mixture");
    const uint64_t begin_ns = clock_mono_ns();
    for (uint32_t i = 0; i < n; i++)
        enqueue(j, i);
    must(gpu_stream_sync(j->b->c.stream, &err), &err, "mixture");
    return (double)(clock_mono_ns() - begin_ns) / 1e9 / n;
}

/* Measures N_ROUNDS rounds and sorts their seconds. */
static void measure(const struct job *j, double *seconds)
{
    const double once = seconds_of(j, 2);
    const uint64_t n = (uint64_t)((double)ROUND_NS / 1e9 / once) + 1;
    for (int r = 0; r < N_ROUNDS; r++)
        seconds[r] = seconds_of(j, n < MAX_ROUND_OPS ? (uint32_t)n : MAX_ROUND_OPS);
    (void)ceilings_median(seconds, N_ROUNDS);
}

/* `experts` holds the experts of one weight format. */
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
            must(error_set(&err, STATUS_INTERNAL, "no matrix of %s", formats[format].name), &err,
                 "experts");
        sizes[i] = (gpu_matrix_bytes(&m) + 255) / 256 * 256;
    }
    x->expert_bytes = sizes[0] + sizes[1] + sizes[2];
    x->memory = filled_room(b, x->expert_bytes * N_EXPERTS);
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
    must(cuda_expert_table_fill(x->experts, N_EXPERTS, table, &err), &err, "experts");
    x->table = room(b, n_bytes);
    write_room(b, x->table, table, n_bytes);
    mem_free(table);
}

/* Makes N_CHOICES sets of choices; returns the mean number of different experts in a set. */
static double choices_make(const struct bench *b, uint32_t n_rows, uint32_t **ids)
{
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
    *ids = room(b, n * sizeof *host);
    write_room(b, *ids, host, n * sizeof *host);
    mem_free(host);
    return (double)n_used / N_CHOICES;
}

static void run_rows(struct bench *b, const struct experts *x, size_t format, uint32_t n_rows)
{
    double seconds[N_ROUNDS];
    uint32_t *ids;
    char what[BARS_WHAT];
    if (bars_seconds_left(&b->bars) < 1) {
        b->n_cut++;
        return;
    }
    const double n_used = choices_make(b, n_rows, &ids);
    const uint64_t scratch = cuda_moe_scratch(n_rows, N_CHOSEN, DIM, WIDTH, N_EXPERTS);
    struct job j = {.b = b,
                    .p = {.x = {filled_room(b, 2ull * n_rows * DIM), DIM},
                          .out = {room(b, 2ull * n_rows * DIM), DIM},
                          .n_rows = n_rows,
                          .dim = DIM,
                          .n_chosen = N_CHOSEN,
                          .n = N_EXPERTS,
                          .ids = ids,
                          .shares = room(b, 4ull * n_rows * N_CHOSEN),
                          .experts = x->experts,
                          .table = x->table},
                    .room = {room(b, scratch), scratch}};
    measure(&j, seconds);
    const double bytes = n_used * (double)x->expert_bytes + 4.0 * n_rows * DIM;
    const double flops = 6.0 * n_rows * N_CHOSEN * DIM * WIDTH, middle = seconds[N_ROUNDS / 2];
    printf("| %s | %u | %.1f | %.1f (%.1f ... %.1f) | %.0f | %.2f | %.0f | %.2f |\n",
           formats[format].name, n_rows, n_used, middle * 1e6, seconds[0] * 1e6,
           seconds[N_ROUNDS - 1] * 1e6, bytes / middle / 1e9, bytes / middle / b->c.copy_rate,
           flops / middle / 1e12, flops / middle / b->c.gemm_rate);
    snprintf(what, sizeof what, "mixture, %s, rows %u", formats[format].name, n_rows);
    bool is_read = n_rows <= 64; /* with more rows, computing is the limit and not reading */
    bars_figure(&b->bars, what, is_read ? "of a copy's rate" : "of cuBLAS's rate",
                is_read ? bytes / middle / b->c.copy_rate : flops / middle / b->c.gemm_rate,
                BAR_NONE, 0);
    void *rooms[] = {j.p.x.data, j.p.out.data, ids, (void *)(uintptr_t)j.p.shares, j.room.ptr};
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++)
        gpu_release(b->c.device, rooms[i]);
}

int main(int argc, char **argv)
{
    uint32_t rows[16] = {1, 8, 64, 512, 8192}, n_rows = 0;
    double seconds = 0;
    static struct bench b;
    for (int i = 1; i < argc; i++) {
        bool is_seconds = strcmp(argv[i], "--seconds") == 0 && i + 1 < argc;
        long n = strtol(argv[is_seconds ? ++i : i], NULL, 10);
        if (n < 1 || n > (long)MAX_ROWS || (!is_seconds && n_rows == 16)) {
            fprintf(stderr, "usage: cuda_moe_bench [rows...] [--seconds N]\n");
            return 2;
        }
        if (is_seconds)
            seconds = (double)n;
        else
            rows[n_rows++] = (uint32_t)n;
    }
    n_rows = n_rows ? n_rows : 5;
    ceilings_open(&b.c, "cuda_moe_bench");
    bars_open(&b.bars, "cuda_moe_bench", b.c.is_emulated, seconds);
    ceilings_measure(&b.c);
    printf(
        "\n| experts | rows | experts that are read | us: median (least ... most) | GB/s | of the "
        "copy | TFLOP/s | of cuBLAS |\n|---|---|---|---|---|---|---|---|\n");
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++) {
        struct experts *x = mem_zalloc(sizeof *x);
        experts_make(&b, f, x);
        for (uint32_t i = 0; i < n_rows; i++)
            run_rows(&b, x, f, rows[i]);
        gpu_release(b.c.device, x->memory);
        gpu_release(b.c.device, x->table);
        mem_free(x);
    }
    if (b.n_cut > 0)
        printf("cut: %u more, there was no time left\n", b.n_cut);
    ceilings_close(&b.c);
    return (int)bars_close(&b.bars);
}
