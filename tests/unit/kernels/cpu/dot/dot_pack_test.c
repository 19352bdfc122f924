/* Tests the unpacking of file blocks by whole words against their layouts read code by code.
 * Tests all bytes of packed panels against the layout in dot.h. */
#include "kernels/cpu/dot/dot.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/kernels/cpu/weights_fixture.h"

#define DTYPE_OF(name) DTYPE_##name,
static const enum dtype dtypes[] = {DOT_FORMATS(DTYPE_OF)};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

static uint32_t half(const uint8_t *p, uint32_t i, uint32_t high)
{
    return p[i] >> 4 * high & 15;
}

/* Returns code k of a run of codes, which starts at the lowest bit of the first byte. */
static uint32_t in_run(const uint8_t *p, uint32_t k, uint32_t bits)
{
    uint32_t code = 0;
    for (uint32_t b = 0; b < bits; b++)
        code |= (uint32_t)(p[(k * bits + b) / 8] >> (k * bits + b) % 8 & 1) << b;
    return code;
}

/* Returns code k of a block. ggml-common.h and common/base/dtype.h define the layouts. */
static uint32_t file_code(enum dtype dtype, const uint8_t *p, uint32_t k)
{
    /* these are places in blocks of 256 */
    const uint32_t half_k = k / 128, i = k % 32, j = k % 128 / 32;
    switch (dtype) {
    case DTYPE_Q8_0:
        return p[2 + k];
    case DTYPE_Q4_0:
    case DTYPE_IQ4_NL:
        return half(p + 2, k % 16, k / 16);
    case DTYPE_Q4_1:
        return half(p + 4, k % 16, k / 16);
    case DTYPE_Q5_0:
        return half(p + 6, k % 16, k / 16) | in_run(p + 2, k, 1) << 4;
    case DTYPE_Q5_1:
        return half(p + 8, k % 16, k / 16) | in_run(p + 4, k, 1) << 4;
    case DTYPE_MXFP4:
        return half(p + 1, k % 16, k / 16);
    case DTYPE_Q2_K:
        return p[16 + half_k * 32 + i] >> 2 * j & 3;
    case DTYPE_Q3_K:
        return (p[32 + half_k * 32 + i] >> 2 * j & 3) | (p[i] >> k / 32 & 1) << 2;
    case DTYPE_Q4_K:
        return half(p + 16 + k / 64 * 32, i, k / 32 % 2);
    case DTYPE_Q5_K:
        return half(p + 48 + k / 64 * 32, i, k / 32 % 2) | (p[16 + i] >> k / 32 & 1) << 4;
    case DTYPE_Q6_K:
        return half(p + half_k * 64 + j % 2 * 32, i, j / 2) |
               (p[128 + half_k * 32 + i] >> 2 * j & 3) << 4;
    case DTYPE_INT2:
        return in_run(p + 4, k, 2);
    case DTYPE_INT3:
        return in_run(p + 4, k, 3);
    case DTYPE_INT4:
        return in_run(p + 4, k, 4);
    case DTYPE_INT8:
        return p[5 + k];
    default:
        assert_int_equal(dtype, DTYPE_FP8);
        return p[4 + k];
    }
}

static void test_codes(void **state)
{
    struct rng r = {16};
    for (uint32_t i = 0; i < N_PACKED_DTYPES * 32; i++) {
        const enum dtype dtype = packed_dtypes[i % N_PACKED_DTYPES];
        const struct format *f = format_of(dtype);
        struct block b;
        memset(&b, 0xa5, sizeof b);
        /* The size is exact, so that a sanitizer detects a longer read. */
        uint8_t *p = mem_array(f->block_bytes, 1);
        random_block(&r, dtype, p);
        if (f->code_bits > 0)
            f->unpack(&b, p);
        for (uint32_t k = 0; k < f->block_elems && f->code_bits > 0; k++)
            if (b.codes[k] != file_code(dtype, p, k))
                fail_msg("%s, code %u: %u, not %u", dtype_traits(dtype).name, k, b.codes[k],
                         file_code(dtype, p, k));
        mem_free(p);
    }
}

/* Writes code k of the 32 codes of output i. */
static void want_code(uint32_t bits, uint8_t code, uint32_t i, uint32_t k, uint8_t *to)
{
    const uint32_t b = k / 4, at = 4 * i + k % 4;
    if (bits == 8) {
        to[64 * b + at] = code ^ 0x80;
        return;
    }
    to[64 * (b / 2) + at] |= (uint8_t)((code & 15) << b % 2 * 4);
    if (bits == 5)
        to[256 + at] |= (uint8_t)(code >> 4 << b);
    if (bits == 6)
        to[256 + 64 * (b / 4) + at] |= (uint8_t)(code >> 4 << b % 4 * 2);
}

/* Writes the inputs i_k to i_k + 31 of output i. Returns the bytes of the group. */
static uint32_t want_group(const struct format *f, const struct block *b, uint32_t i, uint32_t i_k,
                           uint8_t *to)
{
    const uint32_t g = i_k / f->group_elems;
    uint32_t n_scales = f->values == VALUES_SCALED_MIN ? 2
                        : f->values == VALUES_SCALED   ? DOT_GROUP / f->group_elems
                                                       : 0;
    for (uint32_t s = 0; s < n_scales; s++)
        to[PANEL_N * s + i] = f->values == VALUES_SCALED ? b->scales[g + s]
                              : s == 0                   ? b->scales[g]
                                                         : b->mins[g];
    for (uint32_t k = 0; k < DOT_GROUP; k++)
        want_code(f->code_bits, b->codes[i_k + k], i, k, to + PANEL_N * n_scales);
    return PANEL_N * n_scales + 64 * f->code_bits;
}

/* Writes output i into a panel of zeros. */
static void want_row(const struct format *f, const uint8_t *row, uint32_t k, uint32_t i,
                     uint8_t *to)
{
    const struct pack_head h = pack_head_of(f);
    for (uint32_t first = 0; first < k; first += f->block_elems) {
        struct block b = {0};
        if (row)
            f->unpack(&b, row + (uint64_t)first / f->block_elems * f->block_bytes);
        memcpy(to + i * h.d, h.d == 4 ? (const void *)&b.d32 : &b.d, h.d);
        memcpy(to + PANEL_N * h.d + i * h.dmin, &b.dmin, h.dmin);
        memcpy(to + PANEL_N * (h.d + h.dmin) + i * h.zero, &b.zero, h.zero);
        to += PANEL_N * (h.d + h.dmin + h.zero);
        for (uint32_t i_k = 0; i_k < f->block_elems; i_k += DOT_GROUP)
            to += want_group(f, &b, i, i_k, to);
    }
}

static void check(struct rng *r, enum dtype dtype, uint32_t n, uint32_t n_blocks)
{
    const struct format *f = format_of(dtype);
    struct matrix m = matrix_new(r, dtype, n, n_blocks * f->block_elems);
    const uint64_t panel = pack_panel_bytes(dtype, m.w.k);
    uint8_t *got = mem_array(panel, 1), *want = mem_array(panel, 1);
    const struct weight w = m.w;
    for (uint32_t j = 0; j * PANEL_N < n; j++) {
        memset(want, 0, panel);
        for (uint32_t i = 0; i < PANEL_N; i++) {
            const uint32_t row = j * PANEL_N + i;
            want_row(f, row < n ? m.rows.ptr + row * m.rows.stride_bytes : NULL, w.k, i, want);
        }
        memset(w.data, 0xa5, w.n_bytes);
        dot_pack_panel(&m.w, &m.rows, j);
        memcpy(got, (const uint8_t *)w.data + j * panel, panel);
        for (uint64_t at = 0; at < panel; at++)
            if (got[at] != want[at])
                fail_msg("%s, %u x %u, panel %u, byte %lu: %02x, not %02x",
                         dtype_traits(dtype).name, n, w.k, j, (unsigned long)at, got[at], want[at]);
        for (uint64_t at = 0; at < w.n_bytes; at++)
            if (at / panel != j)
                assert_int_equal(((const uint8_t *)w.data)[at], 0xa5);
    }
    mem_free(got);
    mem_free(want);
    matrix_free(&m);
}

static void test_panels(void **state)
{
    static const struct {
        uint32_t n, n_blocks;
    } shapes[] = {{1, 1}, {3, 2}, {15, 3}, {16, 1}, {16, 5}, {17, 2}, {37, 7}, {64, 16}, {127, 3}};
    struct rng r = {17};
    for (uint32_t i = 0; i < N_DTYPES; i++)
        for (uint32_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            check(&r, dtypes[i], shapes[s].n, shapes[s].n_blocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_codes), cmocka_unit_test(test_panels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
