#include "worker/weights/quantise.h"

#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "kernels/host/blocks.h"
#include "kernels/host/f16.h"
#include "kernels/host/narrow.h"

enum { BLOCK = SOURCE_BLOCK };

/* ---- choice of the format ---- */

static bool stays(const struct program *p, const struct op_weight *x)
{
    bool vocabulary = (program_is_first(p) && x == &p->weights[p->i_embedding]) ||
                      (program_is_last(p) && x == &p->weights[p->i_head]);
    bool router = x->out == REG_ROUTER || x->out == REG_SHARE;
    bool of_latent = p->config->mla.kv_rank > 0 &&
                     (x->out == REG_V || (x->out == REG_LATENT && x->part.transposed));
    return vocabulary || router || of_latent || x->k % BLOCK != 0;
}

enum dtype quantise_dtype(const struct program *p, const struct op_weight *x, enum dtype stored)
{
    static const enum dtype made[] = {[QUANT_AT_LOAD_INT8] = DTYPE_Q8_0,
                                      [QUANT_AT_LOAD_INT4] = DTYPE_Q4_0,
                                      [QUANT_AT_LOAD_FP8] = DTYPE_FP8};
    enum quant_at_load how = p->config->quant.at_load;
    return how == QUANT_AT_LOAD_NONE || stays(p, x) ? stored : made[how];
}

/* ---- codes ---- */

/* Returns the number farthest from zero, or the first one of several that are equally far. For
 * positive floats the order of the bits is the order of the numbers. */
static float extreme(const float *x, uint32_t n)
{
    uint32_t most = 0, bits, i;
    for (i = 0; i < n; i++) {
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    for (i = 0; i < n; i++) {
        memcpy(&bits, x + i, sizeof bits);
        if ((bits & 0x7fffffff) == most)
            break;
    }
    return most > 0 ? x[i] : 0;
}

/* Rounds x / d of a block to the nearest integer, ties to even, within low .. high. The
 * quotients are small, so adding 1.5 * 2^52 leaves no bits for a fraction. (A d above the range
 * of float16 is stored smaller than it should be.) */
static void nearest(const float *x, float d, double low, double high, int32_t to[BLOCK])
{
    const double by = d != 0 ? (double)d : HUGE_VAL;
    for (int i = 0; i < BLOCK; i++) {
        double q = (double)x[i] / by;
        q = q < low ? low : q;
        q = q > high ? high : q;
        to[i] = (int32_t)((q + 0x1.8p52) - 0x1.8p52);
    }
}

static float put_d(float d, uint8_t *to)
{
    uint16_t half = f16_from_f32(d);
    memcpy(to, &half, sizeof half);
    return f32_from_f16(half);
}

static void put_q8_0(const float *x, uint8_t *to)
{
    float d = put_d(fabsf(extreme(x, BLOCK)) / 127, to);
    int32_t codes[BLOCK];
    nearest(x, d, -127, 127, codes);
    for (int i = 0; i < BLOCK; i++)
        to[2 + i] = (uint8_t)codes[i];
}

static void put_q4_0(const float *x, uint8_t *to)
{
    float d = put_d(extreme(x, BLOCK) / -8, to);
    int32_t codes[BLOCK];
    nearest(x, d, -8, 7, codes);
    for (int i = 0; i < BLOCK / 2; i++)
        to[2 + i] = (uint8_t)((codes[i] + 8) | (codes[i + BLOCK / 2] + 8) << 4);
}

static void put_fp8(const float *x, float scale, uint8_t *to)
{
    memcpy(to, &scale, sizeof scale);
    for (int i = 0; i < BLOCK; i++) {
        float y = scale > 0 ? x[i] / scale : 0;
        y = y > 448 ? 448 : y < -448 ? -448 : y;
        to[sizeof scale + i] = e4m3_from_f32(y);
    }
}

/* ---- rows ---- */

/* Reads all k inputs of one output. NaN and infinities become 0, because no code exists for
 * them. */
static void read_row(const struct source *s, const struct op_weight *x, uint64_t output, float *to)
{
    struct source_place at = source_place(x);
    enum dtype stored = s->values->dtype;
    uint64_t bytes = dtype_traits(stored).block_bytes;
    const uint8_t *from = s->values->data;
    if (x->part.of_experts)
        from += s->values->n_bytes / x->n_experts * x->expert;
    if (!x->part.transposed)
        (void)dequantize_row(stored, from + (output * at.n_columns + x->part.first_in) * bytes,
                             x->k, to);
    for (uint32_t k = 0; x->part.transposed && k < x->k; k++)
        (void)dequantize_row(stored,
                             from + ((x->part.first_in + k) * (uint64_t)at.n_rows + output) * bytes,
                             1, to + k);
    for (uint32_t k = 0; k < x->k; k++)
        to[k] = isfinite(to[k]) ? to[k] : 0;
}

void quantise_rows(const struct source *s, const struct op_weight *x, uint8_t *to)
{
    uint32_t block_bytes = dtype_traits(s->dtype).block_bytes;
    float *row = mem_array(x->k, sizeof *row);
    for (uint32_t i = 0; i < x->n_len; i++) {
        read_row(s, x, source_row(x, i), row);
        float scale = s->dtype == DTYPE_FP8 ? fabsf(extreme(row, x->k)) / 448 : 0;
        for (uint32_t k = x->k0; k < x->k0 + x->k_len; k += BLOCK, to += block_bytes) {
            if (s->dtype == DTYPE_FP8)
                put_fp8(row + k, scale, to);
            else if (s->dtype == DTYPE_Q8_0)
                put_q8_0(row + k, to);
            else
                put_q4_0(row + k, to);
        }
    }
    mem_free(row);
}
