/* Measures oneDNN's matrix product on one thread, with the shapes and output lines of
 * bench_kernels (bench/cpu/kernels.c). bench/onednn compares the two products. Weights have the
 * layout that the library requests, in so many copies that they are read from memory. bfloat16
 * input is converted from floats within the measured time, as in our product. A second part
 * tests whether a row's bits depend on the number of rows and on its position among them.
 *   onednn BF16|F32
 * bench/onednn builds this program against the library that it has fetched. The program is no
 * part of the project's build. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "oneapi/dnnl/dnnl.h"

enum { MAX_COPIES = 64, MAX_ROWS = 512, MAX_K = 4096, MAX_N = 4096 };
static const size_t WORKING_SET = 192u << 20;

static void must(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return;
    fprintf(stderr, "onednn: %s: status %d\n", what, (int)status);
    exit(1);
}
#define MUST(call) must(call, #call)

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct product {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    /* convert: conversion of the input to bfloat16; NULL for floats */
    dnnl_primitive_t matmul, convert;
    dnnl_memory_t x, x_float, out, weights[MAX_COPIES];
    int n_copies;
};

static dnnl_memory_t memory_of(dnnl_engine_t engine, const_dnnl_memory_desc_t desc)
{
    dnnl_memory_t m;
    MUST(dnnl_memory_create(&m, desc, engine, DNNL_MEMORY_ALLOCATE));
    return m;
}

static dnnl_memory_desc_t plain(long rows, long columns, dnnl_data_type_t type,
                                dnnl_format_tag_t tag)
{
    dnnl_memory_desc_t desc;
    MUST(dnnl_memory_desc_create_with_tag(&desc, 2, (dnnl_dims_t){rows, columns}, type, tag));
    return desc;
}

static dnnl_primitive_t reorder(dnnl_engine_t engine, const_dnnl_memory_desc_t from,
                                const_dnnl_memory_desc_t to)
{
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t p;
    MUST(dnnl_reorder_primitive_desc_create(&pd, from, engine, to, engine, NULL));
    MUST(dnnl_primitive_create(&p, pd));
    MUST(dnnl_primitive_desc_destroy(pd));
    return p;
}

static void run_reorder(struct product *p, dnnl_primitive_t primitive, dnnl_memory_t from,
                        dnnl_memory_t to)
{
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    MUST(dnnl_primitive_execute(primitive, p->stream, 2, args));
}

static float *floats_of(dnnl_memory_t m)
{
    void *data;
    MUST(dnnl_memory_get_data_handle(m, &data));
    return data;
}

/* Opens a product of [rows][k] and [k][n]. A row's numbers depend on its position alone; `first`
 * is the position of the first row. */
static struct product product_open(dnnl_data_type_t type, long n, long k, long rows, long first,
                                   int max_copies)
{
    struct product p = {0};
    MUST(dnnl_engine_create(&p.engine, dnnl_cpu, 0));
    MUST(dnnl_stream_create(&p.stream, p.engine, dnnl_stream_default_flags));
    dnnl_memory_desc_t x = plain(rows, k, type, dnnl_ab), out = plain(rows, n, dnnl_f32, dnnl_ab);
    dnnl_memory_desc_t any = plain(k, n, type, dnnl_format_tag_any);
    dnnl_primitive_desc_t pd;
    MUST(dnnl_matmul_primitive_desc_create(&pd, p.engine, x, any, NULL, out, NULL));
    MUST(dnnl_primitive_create(&p.matmul, pd));
    const_dnnl_memory_desc_t packed = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    p.x = memory_of(p.engine, x);
    p.out = memory_of(p.engine, out);
    p.x_float = p.x;
    dnnl_memory_desc_t x_float = plain(rows, k, dnnl_f32, dnnl_ab);
    if (type != dnnl_f32) {
        p.x_float = memory_of(p.engine, x_float);
        p.convert = reorder(p.engine, x_float, x);
    }
    float *values = floats_of(p.x_float);
    for (long i = 0; i < rows * k; i++)
        values[i] = (float)((i / k + first) % 7 + i % k % 17) * 0.11f - 1.0f;
    /* torch and GGUF store weights as [n][k], which oneDNN calls "ba" */
    dnnl_memory_desc_t file = plain(k, n, dnnl_f32, dnnl_ba);
    dnnl_memory_t from = memory_of(p.engine, file);
    values = floats_of(from);
    for (long i = 0; i < n * k; i++)
        values[i] = (float)(i * 7 % 61) * 0.013f - 0.4f;
    dnnl_primitive_t pack = reorder(p.engine, file, packed);
    size_t bytes = dnnl_memory_desc_get_size(packed);
    p.n_copies = (int)(WORKING_SET / bytes) + 1;
    p.n_copies = p.n_copies > max_copies ? max_copies : p.n_copies;
    for (int i = 0; i < p.n_copies; i++) {
        p.weights[i] = memory_of(p.engine, packed);
        run_reorder(&p, pack, from, p.weights[i]);
    }
    MUST(dnnl_stream_wait(p.stream));
    MUST(dnnl_memory_destroy(from));
    MUST(dnnl_primitive_destroy(pack));
    MUST(dnnl_primitive_desc_destroy(pd));
    dnnl_memory_desc_t descs[] = {x, out, any, x_float, file};
    for (size_t i = 0; i < sizeof descs / sizeof *descs; i++)
        MUST(dnnl_memory_desc_destroy(descs[i]));
    return p;
}

static void product_run(struct product *p, int copy)
{
    if (p->convert)
        run_reorder(p, p->convert, p->x_float, p->x);
    dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, p->x}, {DNNL_ARG_WEIGHTS, p->weights[copy]}, {DNNL_ARG_DST, p->out}};
    MUST(dnnl_primitive_execute(p->matmul, p->stream, 3, args));
    MUST(dnnl_stream_wait(p->stream));
}

static void product_close(struct product *p)
{
    for (int i = 0; i < p->n_copies; i++)
        MUST(dnnl_memory_destroy(p->weights[i]));
    MUST(dnnl_memory_destroy(p->out));
    if (p->convert) {
        MUST(dnnl_memory_destroy(p->x_float));
        MUST(dnnl_primitive_destroy(p->convert));
    }
    MUST(dnnl_memory_destroy(p->x));
    MUST(dnnl_primitive_destroy(p->matmul));
    MUST(dnnl_stream_destroy(p->stream));
    MUST(dnnl_engine_destroy(p->engine));
}

static void measure(const char *name, dnnl_data_type_t type, long n, long k, long rows)
{
    struct product p = product_open(type, n, k, rows, 0, MAX_COPIES);
    double flop = 2.0 * (double)n * (double)k * (double)rows;
    int times = flop * p.n_copies < 2e10 ? p.n_copies : (int)(2e10 / flop) + 1;
    /* the first run, which is not measured, allocates memory inside the library */
    product_run(&p, 0);
    double start = cpu_s();
    for (int i = 0; i < times; i++)
        product_run(&p, i % p.n_copies);
    double s = (cpu_s() - start) / times;
    printf("%-6s %7ld %5ld %5ld %8d %9.1f %9.2f\n", name, n, k, rows, 1, s * 1e6, flop / s * 1e-9);
    product_close(&p);
}

/* Compares row 5 among `rows` rows with the same row alone. Prints the number of sums that
 * differ in any bit. */
static void look_at_bits(dnnl_data_type_t type, long n, long k, long rows)
{
    enum { ROW = 5 };
    struct product one = product_open(type, n, k, 1, ROW, 1),
                   many = product_open(type, n, k, rows, 0, 1);
    product_run(&one, 0);
    product_run(&many, 0);
    const float *a = floats_of(one.out), *b = floats_of(many.out) + ROW * n;
    long differ = 0;
    for (long i = 0; i < n; i++)
        differ += memcmp(a + i, b + i, sizeof *a) != 0;
    printf("bits: %ld of %ld sums of a row differ between 1 and %ld rows\n", differ, n, rows);
    product_close(&one);
    product_close(&many);
}

int main(int argc, char **argv)
{
    static const long shapes[][2] = {{2048, 640}, {640, 2048}, {4096, 1024}},
                      rows[] = {1, 2, 8, 32, 128, 512};
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "BF16") != 0 && strcmp(name, "F32") != 0) {
        fprintf(stderr, "usage: onednn BF16|F32\n");
        return 2;
    }
    dnnl_data_type_t type = strcmp(name, "F32") == 0 ? dnnl_f32 : dnnl_bf16;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t j = 0; j < sizeof rows / sizeof *rows; j++)
            measure(name, type, shapes[i][0], shapes[i][1], rows[j]);
    for (size_t j = 3; j < sizeof rows / sizeof *rows; j++)
        look_at_bits(type, 4096, 1024, rows[j]);
    return 0;
}
