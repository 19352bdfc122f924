/* Tests the packing of weights for the GPU (kernels/cuda/weights/pack.h) by reading the packed
 * bytes back on the host. Every weight of every dtype must be at the place that the table in
 * layout.h gives, when a matrix is packed in pieces and as a whole. The test needs no device. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "kernels/cuda/weights/pack.h"
#include "kernels/host/blocks.h"
#include "kernels/host/f16.h"
#include "kernels/host/narrow.h"

static unsigned n_failures;
static void check(bool ok, const char *what, const char *of)
{
    if (!ok && n_failures++ < 20)
        printf("FAILED: %s: %s\n", of, what);
}

static uint64_t random_state = 88172645463325252ull;
static uint64_t next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* Returns the code of output `row` and input k. This code is the first or second code of pair p
 * of lane 4g + t. */
static uint32_t code_at(const struct gpu_matrix *m, const uint8_t *tile, uint32_t row, uint32_t k)
{
    uint32_t tile_k = gpu_tile_k(m->format), bits = gpu_code_bits(m->format);
    uint32_t in_step = k % 16, t = in_step % 8 / 2, p = row / 8 + 2 * (in_step / 8), e = k % 2;
    const uint8_t *lane = tile + k / tile_k * 512 + (row % 8 * 4 + t) * 16;
    uint32_t word = k % tile_k / 16 * (bits / 4), at = 4 * p + 16 * e, bytes;
    if (bits == 8) {
        word += p / 2;
        at = 8 * (p % 2) + 16 * e;
    }
    memcpy(&bytes, lane + 4 * word, 4);
    return bytes >> at & ((1u << bits) - 1);
}

static float value_at(const struct gpu_matrix *m, const uint8_t *tile, uint32_t row, uint32_t k)
{
    static const float e2m1[16] = {0, 0.5f,  1,  1.5f,  2,  3,  4,  6,
                                   0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    if (m->format == GPU_BF16) {
        uint16_t half;
        memcpy(&half, tile + ((size_t)row * gpu_padded_k(GPU_BF16, m->k) + k) * 2, 2);
        return narrow_float((uint32_t)half << 16);
    }
    uint32_t q = code_at(m, tile, row, k), bytes = gpu_scale_bytes(m->format);
    const uint8_t *s = tile + gpu_codes_bytes(m->format, m->k) +
                       ((size_t)(k / m->group) * GPU_TILE_N + row) * bytes;
    float single[2] = {0};
    uint16_t half[2] = {0};
    memcpy(single, s, bytes < 8 ? bytes : 8);
    memcpy(half, s, bytes < 4 ? bytes : 4);
    switch (m->format) {
    case GPU_U4:
        return f32_from_f16(half[0]) * ((float)q + narrow_float((uint32_t)half[1] << 16) + 128.0f);
    case GPU_U4_MIN:
        return f32_from_f16(half[0]) * (float)q + f32_from_f16(half[1]);
    case GPU_I8:
        return single[0] * (float)(int8_t)q;
    case GPU_I8_MIN:
        return single[0] * (float)(int8_t)q + single[1];
    case GPU_F8:
        return single[0] * narrow_float((q & 0x7f) << 20 | (q & 0x80) << 24) * 0x1p120f;
    case GPU_MX4:
        return ldexpf(e2m1[q], *s - 127);
    case GPU_BF16:
    case GPU_FORMAT_COUNT:
        break;
    }
    return NAN;
}

/* Returns the error that packing may cause by rounding (pack.h). */
static float slack(enum dtype t, float want)
{
    bool k_in_4_bits = t == DTYPE_Q2_K || t == DTYPE_Q3_K || t == DTYPE_Q4_K;
    bool plain = t == DTYPE_F32 || t == DTYPE_F16;
    return plain ? fabsf(want) * 0x1p-8f : k_in_4_bits ? 0x1p-4f : t == DTYPE_INT8 ? 0x1p-20f : 0;
}

static void check_dtype(enum dtype dtype, uint32_t n, uint32_t k)
{
    struct dtype_traits traits = dtype_traits(dtype);
    const char *name = traits.name;
    uint64_t row_bytes = (uint64_t)k / traits.block_elems * traits.block_bytes;
    struct gpu_matrix m;
    uint8_t *rows = mem_array(n, row_bytes);
    float *want = mem_array(k, sizeof *want);
    for (uint64_t i = 0; i < n * row_bytes;
         i += 2) { /* this makes the magnitude of all halves, singles and exponents at most 1 */
        uint16_t half = (uint16_t)((next() & 0x83ff) | 0x2c00);
        memcpy(rows + i, &half, i + 1 < n * row_bytes ? 2 : 1);
    }
    for (uint64_t i = 0; i < n * row_bytes && traits.block_elems > 1; i += traits.block_bytes) {
        bool has_zero = dtype == DTYPE_INT2 || dtype == DTYPE_INT3 || dtype == DTYPE_INT4;
        float d = (float)(next() % 1000) * 0x1p-14f;
        if (has_zero)
            rows[i + 2] %= 17;
        if (dtype == DTYPE_INT8 || dtype == DTYPE_FP8)
            memcpy(rows + i, &d, sizeof d);
        if (dtype == DTYPE_MXFP4)
            rows[i] = (uint8_t)(100 + next() % 50);
    }
    check(gpu_matrix_of(dtype, n, k, 0, NULL, &m), "has a layout", name);
    uint64_t n_bytes = gpu_matrix_bytes(&m), done = 0;
    uint8_t *whole = mem_array(n_bytes, 1), *pieces = mem_array(n_bytes, 1);
    memset(whole, 0x5a, n_bytes);
    for (uint32_t i = 0; i * GPU_TILE_N < n; i++)
        gpu_pack_tile(&m, dtype, &(struct weight_rows){rows, row_bytes}, i,
                      whole + (size_t)i * m.tile_bytes);
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *tile = whole + (size_t)(i / GPU_TILE_N) * m.tile_bytes;
        (void)dequantize_row(dtype, rows + i * row_bytes, k, want);
        for (uint32_t j = 0; j < k; j++) {
            float got = value_at(&m, tile, i % GPU_TILE_N, j);
            if (!(fabsf(got - want[j]) <= slack(dtype, want[j]))) {
                char text[120];
                snprintf(text, sizeof text, "output %u input %u of %u is %.9g, want %.9g", i, j, k,
                         (double)got, (double)want[j]);
                check(false, text, name);
                i = n;
                break;
            }
        }
    }
    for (uint32_t i = n; i % GPU_TILE_N != 0; i++) /* outputs beyond n must be zeros */
        check(value_at(&m, whole + (size_t)(i / GPU_TILE_N) * m.tile_bytes, i % GPU_TILE_N,
                       k / 2) == 0,
              "an output beyond n is no zero", name);
    for (uint32_t first = 0; first < n;
         first += 32) { /* the loop packs 32 outputs at a time, as the loader does */
        struct gpu_matrix piece;
        uint32_t in_piece = n - first < 32 ? n - first : 32;
        (void)gpu_matrix_of(dtype, in_piece, k, 0, NULL, &piece);
        for (uint32_t i = 0; i * GPU_TILE_N < in_piece; i++)
            gpu_pack_tile(&piece, dtype, &(struct weight_rows){rows + first * row_bytes, row_bytes},
                          i, pieces + done + (size_t)i * piece.tile_bytes);
        done += gpu_matrix_bytes(&piece);
    }
    check(done == n_bytes && memcmp(whole, pieces, n_bytes) == 0, "pieces are not the whole", name);
    mem_free(whole);
    mem_free(pieces);
    mem_free(rows);
    mem_free(want);
}

static void check_sizes(void)
{
    struct gpu_matrix m;
    check(!gpu_matrix_of(DTYPE_Q8_0, 10, 33, 0, NULL, &m), "k is no whole number of blocks",
          "Q8_0");
    check(!gpu_matrix_of(DTYPE_I64, 10, 32, 0, NULL, &m), "no kernel", "I64");
    check(!gpu_matrix_of(DTYPE_F32, 0, 32, 0, NULL, &m), "no outputs", "F32");
    check(!gpu_matrix_of(DTYPE_F32, 1, (1u << 20) + 1, 0, NULL, &m), "k too large", "F32");
    check(gpu_matrix_of(DTYPE_BF16, 17, 12, 0, NULL, &m) && gpu_matrix_bytes(&m) == 32 * 16 * 2,
          "17 outputs of 12 inputs", "BF16");
    /* 4096 inputs in groups of 128 take half a byte for each input, and 4 bytes for each group. */
    check(gpu_matrix_of(DTYPE_INT4, 16, 4096, 128, NULL, &m) && m.group == 128 &&
              gpu_matrix_bytes(&m) == 16 * (2048 + 32 * 4),
          "16 outputs of 4096 inputs", "INT4");
    static const uint32_t groups[][3] = {{2880, 0, 32},   {2880, 2880, 2944}, {2880, 5000, 2944},
                                         {2880, 96, 32},  {2880, 192, 32},    {2880, 256, 256},
                                         {2880, 320, 32}, {2880, 384, 384}};
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        (void)gpu_matrix_of(DTYPE_INT4, 16, groups[i][0], groups[i][1], NULL, &m);
        check(m.group == groups[i][2], "the group that kernels take", "INT4");
    }
    check(gpu_matrix_of(DTYPE_F16, UINT32_MAX, 1u << 20, 0, NULL, &m) &&
              gpu_matrix_bytes(&m) == (uint64_t)1 << 53,
          "the largest matrix", "F16");
}

/* Checks every half: infinities, NaN and subnormals too. */
static void check_halves(void)
{
    enum { N = 1 << 16 };
    static uint16_t halves[N];
    static float want[N];
    struct gpu_matrix m;
    for (uint32_t i = 0; i < N; i++)
        halves[i] = (uint16_t)i;
    (void)gpu_matrix_of(DTYPE_F16, 1, N, 0, NULL, &m);
    uint16_t *tile = mem_array(m.tile_bytes, 1);
    gpu_pack_tile(&m, DTYPE_F16, &(struct weight_rows){(uint8_t *)halves, sizeof halves}, 0,
                  (uint8_t *)tile);
    (void)dequantize_row(DTYPE_F16, halves, N, want);
    for (uint32_t i = 0; i < N; i++)
        check(tile[i] == bf16_from_f32(want[i]), "a half is another number", "F16");
    mem_free(tile);
}

int main(void)
{
    check_halves();
    for (uint32_t t = 0; t < DTYPE_COUNT; t++) {
        uint32_t block = dtype_traits(t).block_elems;
        uint64_t ignored = 0;
        float nothing;
        if (!dtype_bytes(t, block, 1, &ignored) ||
            !dequantize_row((enum dtype)t, &ignored, 0, &nothing))
            continue;
        check_dtype((enum dtype)t, 45, block * 5);
        check_dtype((enum dtype)t, 16, block * 16);
        check_dtype((enum dtype)t, 1, block);
    }
    check_sizes();
    printf("%u failures\n", n_failures);
    return n_failures > 0;
}
