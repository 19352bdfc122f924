/* Measures matrix products with the shapes of real models: GB/s of weights, activations and
 * results beside a copy on the same device in the same run. For many rows it measures TFLOP/s
 * beside a square product of cuBLAS (ceilings.h). Bytes count weights as they are stored on the
 * device, with their scales and the padding of tiles, and rows in and out. Weights rotate
 * through more memory than any cache holds. The table has the rounds' median, least and most.
 * Calls follow each other as in a decode step, and each call's launch counts. Figures are
 * reported, not judged: the bars are those of whole models (model.c).
 *   cuda_linear_bench [rows...] [--seconds N]      default rows: 1 8 64 8192
 * Exit status: bars.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/gpu/ceilings.h"
#include "common/base/clock.h"

#define N_ROUNDS      7
#define POOL_BYTES    (3ull << 30) /* bytes of memory for weights; the largest matrix has 1.1 GB */
#define ROUND_NS      20000000ull  /* target time of a round in ns */
#define MAX_ROUND_OPS 2000u        /* most calls in a round */
#define SCRATCH_BYTES (GPU_BLAS_WORKSPACE + (64ull << 20))
#define MAX_ROWS      8192u
#define MAX_WIDTH     28672u /* most outputs of a call, except for heads */

struct shape {
    const char *name;
    uint32_t k, n[LINEAR_MAX_PARTS];
    bool head;     /* a model's head: decode rows only, results as float */
    bool is_shown; /* whether the shape is listed in the table at the end */
};
static const struct shape shapes[] = {
    {"Llama-3.1-8B q k v", 4096, {4096, 1024, 1024}, false, false},
    {"Llama-3.1-8B o", 4096, {4096}, false, false},
    {"Llama-3.1-8B gate up", 4096, {14336, 14336}, false, true},
    {"Llama-3.1-8B down", 14336, {4096}, false, false},
    {"Llama-3.1-8B head", 4096, {128256}, true, false},
    {"Phi-3-mini qkv", 3072, {9216}, false, false},
    {"Phi-3-mini o", 3072, {3072}, false, false},
    {"Phi-3-mini gate_up", 3072, {16384}, false, false},
    {"Phi-3-mini down", 8192, {3072}, false, false},
    {"DeepSeek-V2-Lite q kv_a", 2048, {3072, 576}, false, false},
    {"DeepSeek-V2-Lite o", 2048, {2048}, false, false},
    {"DeepSeek-V2-Lite gate up", 2048, {10944, 10944}, false, false},
    {"DeepSeek-V2-Lite down", 10944, {2048}, false, false},
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
    struct bars bars;
    struct ceilings c;
    uint8_t *weights, *x, *out;
    void *scratch;
    uint32_t n_cut;
};

/* `job` describes one call that is measured. */
struct job {
    struct gpu_products p;
    uint64_t n_bytes; /* bytes of the weights */
    bool many;
};

static void enqueue(const struct bench *b, const struct job *j, uint64_t offset)
{
    struct error err = {0};
    struct gpu_products p = j->p;
    for (uint32_t i = 0; i < p.n_parts; i++) {
        p.parts[i].w.codes = (const uint8_t *)p.parts[i].w.codes + offset;
        p.parts[i].w.scales = (const uint8_t *)p.parts[i].w.scales + offset;
    }
    must(j->many ? cuda_linear_many(b->c.linear, &p, &err) : cuda_linear_few(b->c.linear, &p, &err),
         &err, "product");
}

/* Returns the seconds of one call, the mean of n calls. */
static double seconds_of(const struct bench *b, const struct job *j, uint32_t n)
{
    struct error err = {0};
    uint64_t offset = 0;
    must(gpu_stream_sync(b->c.stream, &err), &err, "sync");
    const uint64_t begin_ns = clock_mono_ns();
    for (uint32_t i = 0; i < n; i++) {
        enqueue(b, j, offset);
        offset = offset + 2 * j->n_bytes <= POOL_BYTES ? offset + j->n_bytes : 0;
    }
    must(gpu_stream_sync(b->c.stream, &err), &err, "sync");
    return (double)(clock_mono_ns() - begin_ns) / 1e9 / n;
}

/* Measures N_ROUNDS rounds and sorts their seconds. */
static void measure(const struct bench *b, const struct job *j, double *seconds)
{
    double once = seconds_of(b, j, 2);
    uint64_t n = (uint64_t)((double)ROUND_NS / 1e9 / once) + 1;
    uint32_t n_ops = n < MAX_ROUND_OPS ? (uint32_t)n : MAX_ROUND_OPS;
    for (int r = 0; r < N_ROUNDS; r++)
        seconds[r] = seconds_of(b, j, n_ops);
    (void)ceilings_median(seconds, N_ROUNDS);
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
            j.p.n_parts = 0; /* no product: k is not a multiple of the format's block */
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

static void run_shape(struct bench *b, const struct shape *s, size_t format, uint32_t n_rows)
{
    double seconds[N_ROUNDS], outputs = 0;
    struct job j = job_of(b, s, format, n_rows);
    if (j.p.n_parts == 0 || (s->head && n_rows > 256))
        return;
    if (bars_seconds_left(&b->bars) < 1) { /* all shapes that are cut share one line */
        b->n_cut++;
        return;
    }
    for (uint32_t i = 0; i < j.p.n_parts; i++)
        outputs += s->n[i];
    measure(b, &j, seconds);
    const double bytes = (double)j.n_bytes + n_rows * (s->k * 2.0 + outputs * (s->head ? 4 : 2));
    const double flops = 2.0 * n_rows * s->k * outputs, middle = seconds[N_ROUNDS / 2];
    printf("| %s | %s | %u | %.1f (%.1f ... %.1f) | %.0f | %.2f | %.0f | %.2f |\n", s->name,
           formats[format].name, n_rows, middle * 1e6, seconds[0] * 1e6,
           seconds[N_ROUNDS - 1] * 1e6, bytes / middle / 1e9, bytes / middle / b->c.copy_rate,
           flops / middle / 1e12, flops / middle / b->c.gemm_rate);
    if (s->is_shown) {
        char what[BARS_WHAT];
        snprintf(what, sizeof what, "%s, %s, rows %u", s->name, formats[format].name, n_rows);
        bool is_read = n_rows <= GPU_FEW_ROWS;
        bars_figure(&b->bars, what, is_read ? "of a copy's rate" : "of cuBLAS's rate",
                    is_read ? bytes / middle / b->c.copy_rate : flops / middle / b->c.gemm_rate,
                    BAR_NONE, 0);
    }
}

int main(int argc, char **argv)
{
    uint32_t rows[16] = {1, 8, 64, 8192}, n_rows = 0;
    double seconds = 0;
    static struct bench b;
    for (int i = 1; i < argc; i++) {
        bool is_seconds = strcmp(argv[i], "--seconds") == 0 && i + 1 < argc;
        long n = strtol(argv[is_seconds ? ++i : i], NULL, 10);
        if (n < 1 || n > (long)MAX_ROWS || (!is_seconds && n_rows == 16)) {
            fprintf(stderr, "usage: cuda_linear_bench [rows...] [--seconds N]\n");
            return 2;
        }
        if (is_seconds)
            seconds = (double)n;
        else
            rows[n_rows++] = (uint32_t)n;
    }
    n_rows = n_rows ? n_rows : 4;
    ceilings_open(&b.c, "cuda_linear_bench");
    bars_open(&b.bars, "cuda_linear_bench", b.c.is_emulated, seconds);
    ceilings_measure(&b.c);
    b.weights = ceilings_room(&b.c, POOL_BYTES);
    b.x = ceilings_room(&b.c, (uint64_t)MAX_ROWS * 14336 * 2);
    b.out = ceilings_room(&b.c, (uint64_t)MAX_ROWS * MAX_WIDTH * 2);
    b.scratch = ceilings_room(&b.c, SCRATCH_BYTES);
    printf("\n| product | format | rows | us: median (least ... most) | GB/s | of the copy | "
           "TFLOP/s | "
           "of cuBLAS |\n|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++)
            for (uint32_t r = 0; r < n_rows; r++)
                run_shape(&b, &shapes[i], f, rows[r]);
    if (b.n_cut > 0)
        printf("cut: %u more, there was no time left\n", b.n_cut);
    void *const rooms[] = {b.weights, b.x, b.out, b.scratch};
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++)
        gpu_release(b.c.device, rooms[i]);
    ceilings_close(&b.c);
    return (int)bars_close(&b.bars);
}
