#include "bench/gpu/ceilings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"

enum { N_ROUNDS = 5, N_COPIES = 8, N_GEMMS = 8, N_LINK_ROUNDS = 5 };
#define COPY_BYTES (1ull << 30)
#define SIDE       8192u

static const char *program_name = "bench";

void must(enum status s, const struct error *err, const char *what)
{
    if (s == STATUS_OK)
        return;
    fprintf(stderr, "%s: %s: %s: %s\n", program_name, what, status_name(s), err->text);
    exit(BARS_BELOW);
}

void *ceilings_room(struct ceilings *c, uint64_t n_bytes)
{
    struct error err = {0};
    void *ptr;
    must(gpu_alloc(c->device, n_bytes, &ptr, &err), &err, "memory");
    ceilings_fill(c->stream, ptr, n_bytes);
    return ptr;
}

void ceilings_open(struct ceilings *c, const char *program)
{
    struct error err = {0};
    *c = (struct ceilings){.n_copy = COPY_BYTES, .side = SIDE};
    program_name = program;
    enum status s = gpu_info(0, &c->info, &err);
    if (s == STATUS_OK)
        s = gpu_device_open(0, &c->device, &err);
    if (s == STATUS_UNSUPPORTED) {
        printf("SKIPPED: %s\n", err.text);
        exit(BARS_NO_DEVICE);
    }
    must(s, &err, "device");
    c->is_emulated = bars_is_emulated(&c->info);
    if (c->is_emulated) {
        c->n_copy = 1 << 17;
        c->side = 96;
    }
    c->n_space = GPU_BLAS_WORKSPACE;
    printf("device: %s\n", c->info.name);
    must(gpu_stream_new(c->device, &c->stream, &err), &err, "stream");
    must(gpu_linear_new(c->stream, &c->info, &c->linear, &err), &err, "products");
    c->from = ceilings_room(c, c->n_copy);
    c->to = ceilings_room(c, c->n_copy);
    c->space = ceilings_room(c, c->n_space);
}

void ceilings_close(struct ceilings *c)
{
    gpu_release(c->device, c->from);
    gpu_release(c->device, c->to);
    gpu_release(c->device, c->space);
    gpu_linear_free(c->linear);
    gpu_stream_free(c->stream);
    gpu_device_close(c->device);
}

void ceilings_fill(struct gpu_stream *s, void *device, uint64_t n_bytes)
{
    enum { N = 1 << 20 };
    struct error err = {0};
    uint16_t *host = mem_array(N, sizeof *host);
    uint64_t random = 88172645463325252ull;
    for (uint32_t i = 0; i < N; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        host[i] = (uint16_t)((random & 0x80f7) | 0x3e00);
    }
    for (uint64_t at = 0, n; at < n_bytes; at += n) {
        n = n_bytes - at < N * sizeof *host ? n_bytes - at : N * sizeof *host;
        must(gpu_copy_to_device(s, (uint8_t *)device + at, host, n, &err), &err, "fill");
    }
    must(gpu_stream_sync(s, &err), &err, "fill");
    mem_free(host);
}

/* ---- seconds of one call ---- */

static uint64_t begin(struct ceilings *c)
{
    struct error err = {0};
    must(gpu_stream_sync(c->stream, &err), &err, "sync");
    return clock_mono_ns();
}

static double end(struct ceilings *c, uint64_t begin_ns, uint32_t n)
{
    struct error err = {0};
    must(gpu_stream_sync(c->stream, &err), &err, "sync");
    return (double)(clock_mono_ns() - begin_ns) / (double)NS_PER_S / n;
}

double ceilings_copy_seconds(struct ceilings *c, uint32_t n)
{
    struct error err = {0};
    const uint64_t begin_ns = begin(c);
    for (uint32_t i = 0; i < n; i++)
        must(gpu_copy_on_device(c->stream, c->to, c->from, c->n_copy, &err), &err, "copy");
    return end(c, begin_ns, n);
}

double ceilings_kernel_seconds(struct ceilings *c, uint32_t n)
{
    struct error err = {0};
    const uint64_t begin_ns = begin(c);
    for (uint32_t i = 0; i < n; i++)
        must(cuda_copy_words(c->stream, c->to, c->from, c->n_copy, &err), &err, "copy kernel");
    return end(c, begin_ns, n);
}

/* Inside `from`, the operands x and w lie one after the other. */
double ceilings_gemm_seconds(struct ceilings *c, uint32_t n)
{
    struct error err = {0};
    struct gpu_products p = {.x = {c->from, c->side},
                             .n_rows = c->side,
                             .n_parts = 1,
                             .parts = {{.out = {c->to, c->side}}},
                             .scratch = c->space,
                             .scratch_bytes = c->n_space};
    const uint8_t *w = (const uint8_t *)c->from + 2ull * c->side * c->side;
    if (!gpu_matrix_of(DTYPE_BF16, c->side, c->side, 0, w, &p.parts[0].w))
        must(error_set(&err, STATUS_INTERNAL, "no format for bfloat16"), &err, "product");
    const uint64_t begin_ns = begin(c);
    for (uint32_t i = 0; i < n; i++)
        must(cuda_linear_many(c->linear, &p, &err), &err, "product");
    return end(c, begin_ns, n);
}

/* ---- rates ---- */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double ceilings_median(double *x, uint32_t n)
{
    qsort(x, n, sizeof *x, by_value);
    return x[n / 2];
}

void ceilings_measure(struct ceilings *c)
{
    double driver[N_ROUNDS], kernel[N_ROUNDS], gemm[N_ROUNDS];
    const uint32_t n_copies = c->is_emulated ? 1 : N_COPIES, n_gemms = c->is_emulated ? 1 : N_GEMMS;
    const double bytes = 2.0 * (double)c->n_copy;
    (void)ceilings_copy_seconds(c, 2);
    (void)ceilings_kernel_seconds(c, 2);
    (void)ceilings_gemm_seconds(c, n_gemms);
    for (int i = 0; i < N_ROUNDS; i++) {
        driver[i] = bytes / ceilings_copy_seconds(c, n_copies);
        kernel[i] = bytes / ceilings_kernel_seconds(c, n_copies);
        gemm[i] = 2.0 * c->side * c->side * c->side / ceilings_gemm_seconds(c, n_gemms);
    }
    c->driver_rate = ceilings_median(driver, N_ROUNDS);
    c->kernel_rate = ceilings_median(kernel, N_ROUNDS);
    c->gemm_rate = ceilings_median(gemm, N_ROUNDS);
    c->copy_rate = c->driver_rate > c->kernel_rate ? c->driver_rate : c->kernel_rate;
    printf("ceilings: copy on the device %.0f GB/s (the driver's %.0f, a kernel's %.0f), cuBLASLt "
           "%u x %u x %u %.0f TFLOP/s\n",
           c->copy_rate / 1e9, c->driver_rate / 1e9, c->kernel_rate / 1e9, c->side, c->side,
           c->side, c->gemm_rate / 1e12);
    fflush(stdout);
}

double ceilings_link_rate(struct ceilings *c)
{
    struct error err = {0};
    void *host;
    double best = 0;
    must(gpu_host_alloc(c->device, c->n_copy, &host, &err), &err, "pinned memory");
    memset(host, 1, c->n_copy);
    for (int i = 0; i < N_LINK_ROUNDS; i++) {
        const uint64_t begin_ns = begin(c);
        must(gpu_copy_to_device(c->stream, c->to, host, c->n_copy, &err), &err, "copy");
        double rate = (double)c->n_copy / end(c, begin_ns, 1);
        best = rate > best ? rate : best;
    }
    gpu_host_release(c->device, host);
    return best;
}
