/* Converts a token's key or value of one head to the form of the KV cache. row.h explains how an
 * ISA file includes this header. The stored bits depend only on the numbers of this key or
 * value. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/isa_names.h"
#include "kernels/host/narrow.h"
#include "kernels/kv_layout.h"

/* A vector whose largest magnitude is below KV_LEAST is stored as zeros, because its inverse
 * scale would be infinite. */
#define KV_LEAST 0x1p-100f

/* Returns the bits of the largest magnitude in x. A result above the bits of infinity means that
 * x contains a NaN. */
static uint32_t largest_bits(const float *x, uint32_t dim)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < dim; i++) {
        uint32_t abs = narrow_bits(x[i]) & 0x7fffffffu;
        most = abs > most ? abs : most;
    }
    return most;
}

/* Returns the scale to store. *inverse is set to the factor that converts numbers to codes. */
static float scale_of(const float *x, uint32_t dim, float largest_code, float *inverse)
{
    uint32_t bits = largest_bits(x, dim);
    *inverse = 0;
    if (bits > narrow_bits(INFINITY))
        return NAN;
    if (bits == narrow_bits(INFINITY))
        bits--; /* replaces infinity by the largest finite number */
    float largest = narrow_float(bits);
    if (largest < KV_LEAST)
        return 0;
    *inverse = largest_code / largest;
    return largest / largest_code;
}

/* Returns x * inverse, limited to the range of a code. An infinite x becomes the largest code. A
 * NaN becomes a defined code; the scale records that x was a NaN. */
static inline float scaled(float x, float inverse, float largest_code)
{
    float v = x * inverse;
    v = v < largest_code ? v : largest_code;
    return v > -largest_code ? v : -largest_code;
}

static void store_i8(uint8_t *to, float *scale, const float *x, uint32_t dim)
{
    float inverse;
    *scale = scale_of(x, dim, 127, &inverse);
    for (uint32_t i = 0; i < dim; i++)
        to[i] = i8_from_f32(scaled(x[i], inverse, 127));
}

static void store_e4m3(uint8_t *to, float *scale, const float *x, uint32_t dim)
{
    float inverse;
    *scale = scale_of(x, dim, 448, &inverse);
    for (uint32_t i = 0; i < dim; i++)
        to[i] = e4m3_from_f32(scaled(x[i], inverse, 448));
}

static void store_bf16(uint16_t *to, const float *x, uint32_t dim)
{
    for (uint32_t i = 0; i < dim; i++)
        to[i] = bf16_from_f32(x[i]);
}

static void store_f16(uint16_t *to, const float *x, uint32_t dim)
{
    enum { LANES_F16 = 16 };
    uint32_t i = 0;
    for (; i + LANES_F16 <= dim; i += LANES_F16)
        vf_store_f16(to + i, vf_load(x + i));
    if (i < dim) {
        uint16_t padded[LANES_F16];
        vf_store_f16(padded, vf_load_n(x + i, dim - i));
        memcpy(to + i, padded, (dim - i) * sizeof *padded);
    }
}

void ISA_FN(kv_store)(void *to, enum dtype dtype, float *scale, const float *from, uint32_t dim)
{
    switch (dtype) {
    case DTYPE_F16:
        store_f16(to, from, dim);
        break;
    case DTYPE_BF16:
        store_bf16(to, from, dim);
        break;
    case DTYPE_F8_E4M3:
        store_e4m3(to, scale, from, dim);
        break;
    case DTYPE_I8:
        store_i8(to, scale, from, dim);
        break;
    default:
        memcpy(to, from, dim * sizeof(float));
    }
}
