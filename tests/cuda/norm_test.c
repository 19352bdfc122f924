/* Tests cuda_norm_bf16 and cuda_add_norm_bf16 against a reference in double. Every element must
 * be within half a unit of bfloat16's last place (and 1 % of that, for the float sums). The
 * operator may not write outside of the rows, the bits must not depend on the rows that run
 * together, and they must give DIGEST. The test runs on a device and over tests/cuda/emulate. It
 * uses no cmocka and only common/base, because a machine with a GPU may lack other libraries.
 *   norm_test          all shapes; exit status 0 passed, 1 failures, 77 no device
 *   norm_test --small  the shapes that the emulation runs in a second */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "kernels/cuda/rows/abi.h"
#include "tests/cuda/rig/gpu_open.h"

/* DIGEST is FNV-1a over the outputs of small_cases. The kernel's arithmetic is IEEE's in a fixed
 * order, so the emulation and devices agree. A change of that order changes the digest (run with
 * --small). */
#define DIGEST 0x166e4e06fe51e6bdull
#define EPS    1e-6f
#define POISON 0xabcdu

struct norm_case {
    uint32_t n_rows, n_parts, dim;
    /* `pad` is the number of elements between rows of x and y, and `out_pad` between rows of
     * out. */
    uint32_t pad, out_pad;
    uint32_t offset; /* number of elements before the first row: 1 breaks the alignment */
    bool add, in_place;
};

static const struct norm_case small_cases[] = {
    {1, 1, 1, 0, 0, 0, false, false},     {3, 1, 7, 1, 1, 0, false, false},
    {5, 1, 8, 0, 0, 0, true, false},      {17, 8, 64, 0, 0, 0, false, true},
    {9, 3, 80, 16, 16, 0, false, false},  {16, 8, 128, 0, 0, 0, false, true},
    {7, 2, 128, 0, 0, 1, true, false},    {2, 1, 129, 7, 7, 0, false, false},
    {9, 4, 256, 8, 8, 0, false, true},    {3, 1, 257, 7, 7, 0, true, false},
    {10, 1, 1000, 0, 3, 0, false, false}, {9, 1, 1023, 1, 1, 0, false, true},
    {8, 2, 1024, 0, 0, 1, false, false},  {3, 1, 1025, 0, 0, 0, true, false},
    {2, 2, 1031, 0, 0, 0, false, false},  {2, 1, 2048, 0, 0, 0, true, false},
    {2, 1, 2049, 0, 0, 1, false, true},   {2, 1, 2880, 0, 1, 0, false, false},
    {3, 1, 4096, 8, 0, 0, true, false},   {2, 1, 5376, 0, 0, 0, false, true},
    {2, 1, 8192, 0, 0, 0, false, false},  {2, 1, 8193, 0, 0, 0, true, false},
    {2, 1, 16384, 0, 0, 0, false, false}, {1, 1, 16385, 0, 0, 0, false, false},
    {2, 1, 32767, 1, 1, 0, true, false},  {1, 1, 32768, 0, 0, 0, false, true},
};
#define N_SMALL (sizeof small_cases / sizeof small_cases[0])

struct rig {
    struct gpu_device *device;
    struct gpu_stream *stream;
    struct rng rng;
    uint64_t digest;
    unsigned n_failures;
};

/* `buffers` holds one case's rows on the host and on the device: n_elems elements of x and y,
 * n_out of out. */
struct buffers {
    uint64_t n_elems, n_out;
    /* out_stride: stride of the results; equal to stride if the results go to x */
    uint32_t width, stride, out_stride;
    uint16_t *x, *y, *out, *again;
    float *w;
    void *d_x, *d_y, *d_out, *d_w;
};

/* Returns a number in [-scale, scale). */
static float next_float(struct rig *r, float scale)
{
    return random_unit(&r->rng) * scale;
}

static uint64_t at(const struct norm_case *c, uint32_t stride, uint32_t row)
{
    return c->offset + (uint64_t)row * stride;
}

static void *device_array(struct rig *r, uint64_t n_bytes, const void *host)
{
    struct error err = {0};
    void *ptr;
    must(gpu_alloc(r->device, n_bytes, &ptr, &err), &err, "alloc");
    must(gpu_copy_to_device(r->stream, ptr, host, n_bytes, &err), &err, "copy");
    return ptr;
}

/* Returns the input of the norm: x, or x + y as bfloat16. */
static uint16_t input(const struct norm_case *c, const struct buffers *b, uint64_t i)
{
    return c->add ? to_bf16(from_bf16(b->x[i]) + from_bf16(b->y[i])) : b->x[i];
}

/* Returns 1 / sqrt(mean of squares + eps) of the unit that begins at `first`. */
static double unit_scale(const struct norm_case *c, const struct buffers *b, uint64_t first)
{
    double sum = 0;
    for (uint32_t i = 0; i < c->dim; i++) {
        const double v = (double)from_bf16(input(c, b, first + i));
        sum += v * v;
    }
    return 1 / sqrt(sum / c->dim + (double)EPS);
}

/* Rounding to bfloat16 would hide another order of the sum. Every other weight therefore puts
 * the result of the first unit midway between two bfloat16 values, so that the last bit of the
 * scale changes the result. */
static void weights_make(struct rig *r, const struct norm_case *c, struct buffers *b)
{
    const double scale = unit_scale(c, b, c->offset);
    for (uint32_t i = 0; i < c->dim; i++) {
        const double normed = (double)from_bf16(input(c, b, c->offset + i)) * scale;
        const double low = (double)from_bf16(to_bf16(1.0f + next_float(r, 0.5f)));
        const double middle = low + ldexp(1, ilogb(low) - 8);
        b->w[i] = i % 2 && fabs(normed) > 1e-3 ? (float)(middle / normed) : next_float(r, 2.0f);
    }
}

static void buffers_make(struct rig *r, const struct norm_case *c, struct buffers *b)
{
    b->width = c->n_parts * c->dim;
    b->stride = b->width + c->pad;
    b->out_stride = c->in_place ? b->stride : b->width + c->out_pad;
    b->n_elems = at(c, b->stride, c->n_rows - 1) + b->width;
    b->n_out = at(c, b->out_stride, c->n_rows - 1) + b->width;
    b->x = mem_array(b->n_elems, sizeof *b->x);
    b->y = mem_array(b->n_elems, sizeof *b->y);
    b->out = mem_array(b->n_out, sizeof *b->out);
    b->again = mem_array(b->n_out > b->n_elems ? b->n_out : b->n_elems, sizeof *b->again);
    b->w = mem_array(c->dim, sizeof *b->w);
    for (uint64_t i = 0; i < b->n_elems; i++) {
        /* Rows differ in size. Each row has a few elements so large that the last bits of the
         * sum depend on which elements are added before the large elements, and which with them. */
        const int exponent = (int)(i / b->stride % 13) - 6 + (random_u32(&r->rng) % 64 ? 0 : 11);
        const float scale = ldexpf(1.0f, exponent);
        b->x[i] = to_bf16(next_float(r, scale));
        b->y[i] = to_bf16(next_float(r, scale));
    }
    for (uint64_t i = 0; i < b->n_out; i++)
        b->out[i] = POISON;
    weights_make(r, c, b);
    b->d_x = device_array(r, b->n_elems * 2, b->x);
    b->d_y = device_array(r, b->n_elems * 2, b->y);
    b->d_out = device_array(r, b->n_out * 2, b->out);
    b->d_w = device_array(r, c->dim * sizeof *b->w, b->w);
}

static void buffers_free(struct rig *r, struct buffers *b)
{
    void *device[] = {b->d_x, b->d_y, b->d_out, b->d_w};
    void *host[] = {b->x, b->y, b->out, b->again, b->w};
    for (size_t i = 0; i < sizeof device / sizeof device[0]; i++)
        gpu_release(r->device, device[i]);
    for (size_t i = 0; i < sizeof host / sizeof host[0]; i++)
        mem_free(host[i]);
}

/* Enqueues rows first .. first + n_rows - 1 of the case. */
static void enqueue(struct rig *r, const struct norm_case *c, const struct buffers *b,
                    uint32_t first, uint32_t n_rows)
{
    struct error err = {0};
    const uint64_t bytes = at(c, b->stride, first) * 2, out_bytes = at(c, b->out_stride, first) * 2;
    const struct view x = {.data = (char *)b->d_x + bytes, .stride = b->stride};
    const struct view y = {.data = (char *)b->d_y + bytes, .stride = b->stride};
    const struct view out = {.data = (char *)b->d_out + out_bytes, .stride = b->out_stride};
    const struct norm_params p = {.out = c->in_place ? x : out,
                                  .x = x,
                                  .w = b->d_w,
                                  .n_rows = n_rows,
                                  .n_parts = c->n_parts,
                                  .dim = c->dim,
                                  .eps = EPS};
    const struct add_norm_params add = {.norm = p, .y = y};
    must(c->add ? cuda_add_norm_bf16(r->stream, &add, &err) : cuda_norm_bf16(r->stream, &p, &err),
         &err, "norm");
}

static void fetch(struct rig *r, const struct norm_case *c, const struct buffers *b, uint16_t *out)
{
    struct error err = {0};
    must(gpu_copy_from_device(r->stream, out, c->in_place ? b->d_x : b->d_out, b->n_out * 2, &err),
         &err, "copy back");
    must(gpu_stream_sync(r->stream, &err), &err, "sync");
}

static void fail(struct rig *r, const struct norm_case *c, const char *what, uint64_t where)
{
    if (r->n_failures++ < 20)
        fprintf(stderr, "FAILED rows %u parts %u dim %u pad %u offset %u%s%s: %s at element %llu\n",
                c->n_rows, c->n_parts, c->dim, c->pad, c->offset, c->add ? " add" : "",
                c->in_place ? " in place" : "", what, (unsigned long long)where);
}

static void check_unit(struct rig *r, const struct norm_case *c, const struct buffers *b,
                       uint32_t row, uint32_t part)
{
    const uint64_t first = at(c, b->stride, row) + (uint64_t)part * c->dim;
    const uint16_t *out = b->out + at(c, b->out_stride, row) + (uint64_t)part * c->dim;
    const double scale = unit_scale(c, b, first);
    for (uint32_t i = 0; i < c->dim; i++) {
        const double want = (double)from_bf16(input(c, b, first + i)) * scale * (double)b->w[i];
        const double half_ulp = want == 0 ? 0x1p-134 : ldexp(1, ilogb(want) - 8);
        if (!(fabs((double)from_bf16(out[i]) - want) <= half_ulp * 1.01 + 0x1p-134))
            return fail(r, c, "value", first + i);
    }
}

static bool is_inside(const struct norm_case *c, const struct buffers *b, uint32_t stride,
                      uint64_t i)
{
    return i >= c->offset && (i - c->offset) % stride < b->width;
}

/* Memory beside the rows must be unchanged; with add, x must hold the sums. */
static void check_memory(struct rig *r, const struct norm_case *c, const struct buffers *b)
{
    struct error err = {0};
    for (uint64_t i = 0; i < b->n_out; i++)
        if (!is_inside(c, b, b->out_stride, i) && b->out[i] != (c->in_place ? b->x[i] : POISON))
            return fail(r, c, "written beside a row", i);
    if (c->in_place)
        return;
    must(gpu_copy_from_device(r->stream, b->again, b->d_x, b->n_elems * 2, &err), &err, "copy x");
    must(gpu_stream_sync(r->stream, &err), &err, "sync");
    for (uint64_t i = 0; i < b->n_elems; i++)
        if (b->again[i] != (is_inside(c, b, b->stride, i) ? input(c, b, i) : b->x[i]))
            return fail(r, c, "x", i);
}

/* The first rows alone, and the others in groups of another size, must give the same bits. */
static void check_invariance(struct rig *r, const struct norm_case *c, const struct buffers *b)
{
    struct error err = {0};
    must(gpu_copy_to_device(r->stream, b->d_x, b->x, b->n_elems * 2, &err), &err, "copy");
    for (uint32_t first = 0, n; first < c->n_rows; first += n) {
        n = first < 3 ? 1 : first < 40 ? 5 : 1000;
        n = n < c->n_rows - first ? n : c->n_rows - first;
        enqueue(r, c, b, first, n);
    }
    fetch(r, c, b, b->again);
    for (uint64_t i = 0; i < b->n_out; i++)
        if (b->again[i] != b->out[i])
            return fail(r, c, "other bits with other rows", i);
}

static void run_case(struct rig *r, const struct norm_case *c)
{
    struct buffers b = {0};
    buffers_make(r, c, &b);
    enqueue(r, c, &b, 0, c->n_rows);
    fetch(r, c, &b, b.out);
    for (uint32_t row = 0; row < c->n_rows; row++)
        for (uint32_t part = 0; part < c->n_parts; part++)
            check_unit(r, c, &b, row, part);
    check_memory(r, c, &b);
    check_invariance(r, c, &b);
    for (uint64_t i = 0; i < b.n_out; i++)
        r->digest = (r->digest ^ b.out[i]) * 0x100000001b3ull;
    buffers_free(r, &b);
}

/* A row of NaN, one of infinities and one of zeros must not affect their neighbours. */
static void run_special(struct rig *r)
{
    static const uint16_t values[] = {0x7fc0, 0x7f80, 0x0000};
    const struct norm_case c = {7, 1, 96, 0, 0, 0, false, false}, *pc = &c;
    struct error err = {0};
    struct buffers b = {0};
    buffers_make(r, pc, &b);
    for (uint32_t k = 0; k < 3; k++)
        for (uint32_t i = 0; i < c.dim; i++)
            b.x[at(pc, b.stride, 2 * k + 1) + i] = values[k];
    must(gpu_copy_to_device(r->stream, b.d_x, b.x, b.n_elems * 2, &err), &err, "copy");
    enqueue(r, pc, &b, 0, c.n_rows);
    fetch(r, pc, &b, b.out);
    for (uint32_t row = 0; row < c.n_rows; row++) {
        const uint64_t first = at(pc, b.out_stride, row);
        if (row != 1 && row != 3)
            check_unit(r, pc, &b, row, 0);
        else if (!isnan(from_bf16(b.out[first])))
            fail(r, pc, "no NaN out of NaN or infinity", first);
    }
    buffers_free(r, &b);
}

static void run_refused(struct rig *r)
{
    struct error err = {0};
    struct norm_params p = {.n_rows = 1, .n_parts = 1, .dim = CUDA_NORM_MAX_DIM + 1};
    struct norm_case c = {1, 1, p.dim, 0, 0, 0, false, false};
    if (cuda_norm_bf16(r->stream, &p, &err) != STATUS_UNSUPPORTED)
        fail(r, &c, "a dimension beyond the largest was taken", 0);
    p = (struct norm_params){.n_rows = 1u << 31, .n_parts = 2, .dim = 8};
    if (cuda_norm_bf16(r->stream, &p, &err) != STATUS_UNSUPPORTED)
        fail(r, &c, "more units than a grid has were taken", 0);
    p.n_rows = 0;
    must(cuda_norm_bf16(r->stream, &p, &err), &err, "no rows");
    void *ptr;
    if (gpu_alloc(r->device, 1ull << 50, &ptr, &err) != STATUS_NO_MEMORY || ptr)
        fail(r, &c, "a pebibyte was given", 0);
}

/* Tests decode, prefill and sizes between these two, for dimensions of real models and unusual
 * ones. */
static unsigned run_large(struct rig *r)
{
    static const uint32_t dims[] = {1,    31,   64,   127,  128,  255,  512,  640,   896,
                                    1536, 2047, 2560, 3072, 5120, 7168, 8191, 12288, 32768};
    static const uint32_t rows[] = {1, 2, 3, 7, 64, 257, 1024, 8192};
    unsigned n = 0;
    for (size_t d = 0; d < sizeof dims / sizeof dims[0]; d++)
        for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
            const bool is_odd = (d + k) % 2;
            const struct norm_case c = {.n_rows = rows[k],
                                        .n_parts = dims[d] <= 255 ? 8 : 1,
                                        .dim = dims[d],
                                        .pad = is_odd ? 3 : 0,
                                        .out_pad = k % 4,
                                        .offset = k % 3 == 2,
                                        .add = k % 2 == 0,
                                        .in_place = k % 2 == 1 && d % 2 == 0};
            if ((uint64_t)c.n_rows * c.n_parts * c.dim > 16u << 20)
                continue;
            run_case(r, &c);
            n++;
        }
    return n;
}

int main(int argc, char **argv)
{
    const bool is_small = argc > 1 && !strcmp(argv[1], "--small");
    struct rig r = {.rng = {.state = 88172645463325252ull}, .digest = 0xcbf29ce484222325ull};
    struct gpu_info info;
    if (gpu_open(&r.device, &r.stream, &info) != 0)
        return 77;
    printf("device: %s, %.1f GiB, capability %u.%u, %u multiprocessors; driver CUDA %u.%u, runtime "
           "CUDA %u.%u\n",
           info.name, (double)info.memory_bytes / 0x1p30, info.capability / 10,
           info.capability % 10, info.n_multiprocessors, info.driver_version / 1000,
           info.driver_version % 1000 / 10, info.runtime_version / 1000,
           info.runtime_version % 1000 / 10);
    for (size_t i = 0; i < N_SMALL; i++)
        run_case(&r, &small_cases[i]);
    const uint64_t digest = r.digest;
    if (digest != DIGEST) {
        fprintf(stderr, "FAILED digest of the small cases: 0x%016llx, want 0x%016llx\n",
                (unsigned long long)digest, (unsigned long long)DIGEST);
        r.n_failures++;
    }
    run_special(&r);
    run_refused(&r);
    const unsigned n_large = is_small ? 0 : run_large(&r);
    printf("norm_test: %zu small and %u large cases, digest 0x%016llx, %u failures\n", N_SMALL,
           n_large, (unsigned long long)digest, r.n_failures);
    gpu_close(r.device, r.stream);
    return r.n_failures ? 1 : 0;
}
