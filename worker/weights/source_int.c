/* Reads integer codes with scales and zeros in several tensors. source.c calls source_find_int
 * to find and check the tensors, and makes rows block by block. A weight is scale * (code -
 * zero), with scales and zeros per group of inputs. The layouts differ:
 *
 *   AutoAWQ    qweight [inputs][outputs / 8] and qzeros [groups][outputs / 8], with an order
 *              of its own in a word; scales [groups][outputs]
 *   GPTQ       qweight [inputs * bits / 32][outputs]: 32 inputs are `bits` words, lowest bits
 *              first (a 3-bit code may be in two words); qzeros [groups][outputs * bits / 32],
 *              packed along outputs, less one in version 1; scales as above;
 *              g_idx [inputs]: the group of each input, in no order with desc_act
 *   compressed-tensors
 *              weight_packed [outputs][inputs * bits / 32], or weight I8; weight_scale
 *              [outputs][groups], per output or per tensor; weight_zero_point, packed along
 *              outputs or I8; weight_g_idx
 *
 * Invariants: shapes and group numbers are checked before any code is read. Tensors are
 * borrowed. Made codes and zeros are those of our own formats (kernels/host/blocks.h). */
#include "worker/weights/source_int.h"

#include <stdio.h>
#include <string.h>

#include "kernels/cpu/pack/pack.h"
#include "kernels/host/f16.h"
#include "worker/weights/source_file.h"

/* ---- finding ---- */

static const char *layout_name(enum int_layout layout)
{
    static const char *const names[] = {"AWQ", "GPTQ", "pack-quantized", "int-quantized"};
    return names[layout];
}

static enum dtype dtype_of_bits(uint32_t bits)
{
    return bits == 2   ? DTYPE_INT2
           : bits == 3 ? DTYPE_INT3
           : bits == 4 ? DTYPE_INT4
           : bits == 8 ? DTYPE_INT8
                       : DTYPE_OPAQUE;
}

/* Finds tensors with the groups of the configuration (AutoAWQ, GPTQ). */
static enum status find_grouped(const struct program *p, const struct weights *w,
                                const struct op_weight *x, struct source *s, struct error *err)
{
    const struct quant_config *q = &p->config->quant;
    struct source_place at = source_file_place(x);
    struct beside values = source_beside(w, s->name, ".qweight");
    struct beside zeros = source_beside(w, s->name, ".qzeros");
    struct beside scales = source_beside(w, s->name, ".scales");
    bool awq = q->method == QUANT_AWQ;
    s->layout = awq ? INT_AWQ : INT_GPTQ;
    s->bits = q->bits;
    s->zeros_less_one = !awq && !q->zeros_are_whole;
    s->group = q->group ? q->group : at.n_columns;
    uint32_t unit = s->bits == 3 ? 32 : 32 / s->bits;
    if (at.n_columns % SOURCE_BLOCK != 0 || s->group % SOURCE_BLOCK != 0 || at.n_rows % unit != 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "tensor %s has %u outputs and %u inputs in groups of %u, but these must "
                         "be multiples of %u, %d and %d. Use a model in another format",
                         values.name, at.n_rows, at.n_columns, s->group, unit, SOURCE_BLOCK,
                         SOURCE_BLOCK);
    s->n_groups = (at.n_columns + s->group - 1) / s->group;
    uint32_t packed_rows = at.n_rows / 32 * s->bits + at.n_rows % 32 * s->bits / 32;
    TRY(source_check_beside(&values, DTYPE_I32, 2,
                            awq ? (const uint32_t[]){at.n_columns, packed_rows}
                                : (const uint32_t[]){at.n_columns / 32 * s->bits, at.n_rows},
                            err));
    TRY(source_check_beside(&zeros, DTYPE_I32, 2, (const uint32_t[]){s->n_groups, packed_rows},
                            err));
    if (!scales.t)
        return source_missing(scales.name, err);
    TRY(source_check_shape(scales.t, scales.name, 2, (const uint32_t[]){s->n_groups, at.n_rows},
                           err));
    if (!source_is_plain_float(scales.t))
        return source_wrong_dtype(scales.t, scales.name, "F32, F16 or BF16", err);
    s->values = values.t;
    s->zeros = zeros.t;
    s->scales = scales.t;
    memcpy(s->name, values.name, sizeof s->name);
    return STATUS_OK;
}

/* Finds the scales: one for the tensor, one per output, or one per group of inputs, depending on
 * the tensor's shape. */
static enum status find_scales(const struct weights *w, const struct source_place *at,
                               struct source *s, const char *name, struct error *err)
{
    struct beside scales = source_beside(w, name, ".weight_scale");
    if (!scales.t)
        return source_missing(scales.name, err);
    if (!source_is_plain_float(scales.t))
        return source_wrong_dtype(scales.t, scales.name, "F32, F16 or BF16", err);
    const struct tensor *t = scales.t;
    s->scales = t;
    s->n_groups = 1;
    s->group = at->n_columns;
    s->one_scale = t->n_dims == 0 || (t->n_dims == 1 && t->shape[0] == 1);
    if (s->one_scale || (t->n_dims == 1 && t->shape[0] == at->n_rows))
        return STATUS_OK;
    uint64_t n = t->n_dims == 2 ? t->shape[1] : 0;
    if (n == 0 || n > at->n_columns)
        n = 1;
    TRY(source_check_shape(t, scales.name, 2, (const uint32_t[]){at->n_rows, (uint32_t)n}, err));
    s->n_groups = (uint32_t)n;
    s->group = at->n_columns / s->n_groups;
    if (at->n_columns % s->n_groups == 0 && s->group % SOURCE_BLOCK == 0)
        return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "tensor %s has %u scales for %u inputs, but the size of a group must be a "
                     "multiple of %d. Use a model in another format",
                     scales.name, s->n_groups, at->n_columns, SOURCE_BLOCK);
}

static enum status find_zeros(const struct weights *w, const struct source_place *at,
                              struct source *s, const char *name, struct error *err)
{
    struct beside zeros = source_beside(w, name, ".weight_zero_point");
    if (!zeros.t)
        return STATUS_OK;
    bool bytes = zeros.t->dtype == DTYPE_I8;
    uint32_t per_word = 32 / s->bits;
    uint32_t n = bytes ? at->n_rows : (at->n_rows + per_word - 1) / per_word;
    const uint32_t shape[] = {n, s->n_groups};
    s->zeros = zeros.t;
    if (bytes && s->one_scale && zeros.t->n_dims <= 1 && zeros.t->n_bytes == 1)
        return STATUS_OK;
    if (s->one_scale || (!bytes && s->layout == INT_BYTES))
        return source_wrong_dtype(zeros.t, zeros.name, "I8 with the shape of the scales", err);
    return source_check_beside(&zeros, bytes ? DTYPE_I8 : DTYPE_I32, 2, shape, err);
}

static enum status find_compressed(const struct weights *w, const struct op_weight *x,
                                   struct source *s, struct error *err)
{
    struct source_place at = source_file_place(x);
    struct beside packed = source_beside(w, s->name, ".weight_packed");
    char name[TENSOR_NAME_MAX];
    memcpy(name, s->name, sizeof name);
    s->layout = s->values ? INT_BYTES : INT_PACKED;
    s->bits = 8;
    if (s->layout == INT_PACKED) {
        uint64_t words = packed.t->n_dims == 2 ? packed.t->shape[1] : 0;
        s->bits = words * 8 == at.n_columns ? 4 : 8; /* the shape determines the number of bits */
        TRY(source_check_beside(&packed, DTYPE_I32, 2,
                                (const uint32_t[]){at.n_rows, at.n_columns / 32 * s->bits}, err));
        s->values = packed.t;
        memcpy(s->name, packed.name, sizeof s->name);
    }
    if (at.n_columns % SOURCE_BLOCK != 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "tensor %s has %u inputs, but the number must be a multiple of %d. Use a "
                         "model in another format",
                         s->name, at.n_columns, SOURCE_BLOCK);
    TRY(find_scales(w, &at, s, name, err));
    return find_zeros(w, &at, s, name, err);
}

/* Finds g_idx. It is ignored when it only repeats the usual order, or is all -1, which means
 * that it was never filled in. */
static enum status find_order(const struct weights *w, const struct op_weight *x,
                              const char *matrix, struct source *s, struct error *err)
{
    struct source_place at = source_file_place(x);
    struct beside order =
        source_beside(w, matrix, s->layout == INT_GPTQ ? ".g_idx" : ".weight_g_idx");
    if (!order.t || s->layout == INT_AWQ)
        return STATUS_OK;
    TRY(source_check_beside(&order, DTYPE_I32, 1, &at.n_columns, err));
    bool plain = true, filled = false;
    for (uint32_t i = 0; i < at.n_columns; i++) {
        uint32_t g = source_word(order.t, i);
        plain = plain && g == i / s->group;
        filled = filled || g != UINT32_MAX;
    }
    for (uint32_t i = 0; filled && i < at.n_columns; i++)
        if (source_word(order.t, i) >= s->n_groups)
            return error_set(err, STATUS_INVALID,
                             "tensor %s assigns input %u to group %d, but there are only %u "
                             "groups. Fetch the file again",
                             order.name, i, (int)source_word(order.t, i), s->n_groups);
    s->order = plain || !filled ? NULL : order.t;
    return STATUS_OK;
}

enum status source_find_int(const struct program *p, const struct weights *w,
                            const struct op_weight *x, struct source *out, struct error *err)
{
    struct source s = *out;
    enum quant_method method = p->config->quant.method;
    bool grouped = !s.values && (method == QUANT_AWQ || method == QUANT_GPTQ);
    TRY(grouped ? find_grouped(p, w, x, &s, err) : find_compressed(w, x, &s, err));
    if (x->part.of_experts)
        return error_set(err, STATUS_UNSUPPORTED,
                         "tensor %s: this build does not support %s weights in one tensor of all "
                         "experts. Use a model in another format",
                         s.name, layout_name(s.layout));
    TRY(find_order(w, x, out->name, &s, err));
    s.kind = SOURCE_INT;
    s.dtype = x->part.transposed ? DTYPE_F32 : dtype_of_bits(s.bits);
    *out = s;
    return STATUS_OK;
}

/* ---- codes ---- */

/* Returns the nibble of an output in AutoAWQ's order of eight outputs in a word. */
static uint32_t awq_nibble(uint64_t output)
{
    return (uint32_t)(output % 2 == 0 ? output % 8 / 2 : 4 + output % 8 / 2);
}

/* Returns code i of a line of words that begins at word `first`, with `stride` words between
 * neighbours. 32 codes are `bits` words. */
static uint32_t code_in_line(const struct tensor *t, uint64_t first, uint64_t stride, uint64_t i,
                             uint32_t bits)
{
    uint64_t bit = i * bits;
    uint32_t at = bit % 32;
    uint32_t code = source_word(t, first + bit / 32 * stride) >> at;
    if (at + bits > 32)
        code |= source_word(t, first + (bit / 32 + 1) * stride) << (32 - at);
    return code & ((1u << bits) - 1);
}

/* Returns a code as an unsigned number. Signed codes are raised by 128, like their zeros, since
 * only the difference counts. */
static uint32_t code_at(const struct source *s, const struct source_place *at, uint64_t output,
                        uint32_t input)
{
    uint64_t n = at->n_rows, k = at->n_columns;
    switch (s->layout) {
    case INT_AWQ:
        return source_word(s->values, input * (n / 8) + output / 8) >> 4 * awq_nibble(output) & 15;
    case INT_GPTQ:
        return code_in_line(s->values, output, n, input, s->bits);
    case INT_PACKED:
        return code_in_line(s->values, output * (k / 32 * s->bits), 1, input, s->bits);
    case INT_BYTES:
        break;
    }
    return (uint32_t)((int)(int8_t)s->values->data[output * k + input] + 128);
}

/* Returns the zero of GPTQ, which version 1 stores as zero - 1. With 8 bits a stored 255 is a
 * zero of 0 that wrapped around, since no quantiser makes a zero of 256. */
static uint32_t stored_gptq_zero(const struct source *s, uint64_t output, uint32_t g)
{
    uint32_t zero = code_in_line(s->zeros, g * (s->zeros->shape[1]), 1, output, s->bits);
    zero += s->zeros_less_one;
    return s->bits == 8 ? zero & 255 : zero;
}

static uint32_t zero_at(const struct source *s, const struct source_place *at, uint64_t output,
                        uint32_t g)
{
    uint64_t n = at->n_rows;
    uint32_t middle = 1u << (s->bits - 1);
    if (!s->zeros)
        return middle;
    if (s->layout == INT_AWQ)
        return source_word(s->zeros, g * (n / 8) + output / 8) >> 4 * awq_nibble(output) & 15;
    if (s->layout == INT_GPTQ)
        return stored_gptq_zero(s, output, g);
    if (s->zeros->dtype == DTYPE_I8)
        return (uint32_t)((int)(int8_t)s->zeros->data[s->one_scale ? 0 : output * s->n_groups + g] +
                          (int)middle);
    return code_in_line(s->zeros, g, s->n_groups, output, s->bits);
}

static uint64_t scale_index(const struct source *s, const struct source_place *at, uint64_t output,
                            uint32_t g)
{
    if (s->layout == INT_AWQ || s->layout == INT_GPTQ)
        return (uint64_t)g * at->n_rows + output;
    return s->one_scale ? 0 : output * s->n_groups + g;
}

static uint32_t group_of(const struct source *s, uint32_t input)
{
    return s->order ? source_word(s->order, input) : input / s->group;
}

float source_int_value(const struct source *s, const struct op_weight *x, uint64_t row,
                       uint32_t column)
{
    struct source_place at = source_file_place(x);
    uint32_t g = group_of(s, column), zero = zero_at(s, &at, row, g);
    int steps = (int)code_at(s, &at, row, column) - (int)zero;
    return source_float(s->scales, scale_index(s, &at, row, g)) * (float)steps;
}

/* ---- blocks ---- */

/* Packs a code; codes begin at the lowest bit. */
static void put_code(uint8_t *to, uint32_t i, uint32_t bits, uint32_t code)
{
    uint32_t at = i * bits, shifted = code << at % 8;
    to[at / 8] = (uint8_t)(to[at / 8] | shifted);
    if (at % 8 + bits > 8)
        to[at / 8 + 1] = (uint8_t)(to[at / 8 + 1] | shifted >> 8);
}

/* Writes a scale. A float16 scale is copied, others are rounded to float16, which is exact for
 * bfloat16 above 2^-17. */
static void put_scale(const struct source *s, uint64_t i, uint8_t *to)
{
    if (s->bits < 8 && s->scales->dtype == DTYPE_F16) {
        memcpy(to, s->scales->data + 2 * i, 2);
        return;
    }
    float scale = source_float(s->scales, i);
    uint16_t half = f16_from_f32(scale);
    if (s->bits == 8)
        memcpy(to, &scale, sizeof scale);
    else
        memcpy(to, &half, sizeof half);
}

/* Copies codes of AutoAWQ, whose words have eight outputs of one input. */
static void copy_awq(const struct source *s, uint64_t n, uint64_t output, uint32_t input,
                     uint8_t *to)
{
    uint32_t shift = 4 * awq_nibble(output);
    uint64_t stride = n / 8, first = input * stride + output / 8;
    for (uint32_t i = 0; i < SOURCE_BLOCK; i += 2) {
        uint32_t low = source_word(s->values, first + i * stride) >> shift & 15;
        uint32_t high = source_word(s->values, first + (i + 1) * stride) >> shift & 15;
        to[i / 2] = (uint8_t)(low | high << 4);
    }
}

/* Copies the 32 codes from `input` on, by words if the file packs them like the block. Returns
 * false when `input` is not a multiple of 32. */
static bool copy_run(const struct source *s, const struct source_place *at, uint64_t output,
                     uint32_t input, uint8_t *to)
{
    uint64_t n = at->n_rows, k = at->n_columns, first = input / 32 * (uint64_t)s->bits;
    if (input % SOURCE_BLOCK != 0)
        return false;
    if (s->layout == INT_AWQ)
        copy_awq(s, n, output, input, to);
    for (uint32_t i = 0; s->layout == INT_GPTQ && i < s->bits; i++) {
        const uint8_t *word = s->values->data + 4 * ((first + i) * n + output);
        memcpy(to + 4ul * i, word, 4);
        /* the prefetch loads words of the next inputs */
        __builtin_prefetch(word + 4ul * s->bits * n);
    }
    if (s->layout == INT_PACKED)
        memcpy(to, s->values->data + 4 * (output * (k / 32 * s->bits) + first), 4ul * s->bits);
    if (s->layout == INT_BYTES)
        memcpy(to, s->values->data + output * k + input, SOURCE_BLOCK);
    for (uint32_t i = 0; s->bits == 8 && s->layout != INT_BYTES && i < SOURCE_BLOCK; i++)
        to[i] ^= 0x80; /* the flipped bit turns unsigned into signed: it subtracts 128 */
    return true;
}

/* Makes blocks of eight outputs and 32 inputs. Each word has all eight outputs of one input. */
static void make_awq_eight(const struct source *s, const struct source_place *at, uint64_t output,
                           uint32_t input, uint8_t *to, uint64_t stride)
{
    const uint64_t n_words = at->n_rows / 8, first = input * n_words + output / 8;
    const uint32_t g = input / s->group;
    uint32_t halves[2][SOURCE_BLOCK / 2]; /* each half has two inputs: even nibbles, odd nibbles */
    for (uint32_t i = 0; i < SOURCE_BLOCK / 2; i++) {
        const uint32_t even = source_word(s->values, first + 2ul * i * n_words),
                       odd = source_word(s->values, first + (2ul * i + 1) * n_words);
        halves[0][i] = (even & 0x0f0f0f0f) | (odd & 0x0f0f0f0f) << 4;
        halves[1][i] = (even >> 4 & 0x0f0f0f0f) | (odd & 0xf0f0f0f0);
    }
    for (uint32_t n = 0; n < 8; n++, to += stride) {
        const uint32_t *from = halves[awq_nibble(n) % 2], shift = awq_nibble(n) / 2 * 8;
        put_scale(s, scale_index(s, at, output + n, g), to);
        to[2] = (uint8_t)zero_at(s, at, output + n, g);
        to[3] = 0;
        for (uint32_t i = 0; i < SOURCE_BLOCK / 2; i++)
            to[4 + i] = (uint8_t)(from[i] >> shift);
    }
}

bool source_make_awq_rows(const struct source *s, const struct op_weight *x, uint8_t *to)
{
    const struct source_place at = source_file_place(x);
    const uint64_t first = source_row(x, 0), block_bytes = dtype_traits(s->dtype).block_bytes;
    const uint32_t first_in = x->part.first_in + x->k0;
    if (s->kind != SOURCE_INT || s->layout != INT_AWQ || s->dtype != DTYPE_INT4 ||
        x->part.step > 1 || first % 8 != 0 || x->n_len % 8 != 0 || first_in % SOURCE_BLOCK != 0)
        return false;
    const uint64_t stride = x->k_len / SOURCE_BLOCK * block_bytes;
    for (uint32_t k = 0; k < x->k_len; k += SOURCE_BLOCK, to += block_bytes) {
        const uint8_t *next = /* words of the next inputs */
            s->values->data + ((first_in + k + SOURCE_BLOCK) * (uint64_t)at.n_rows + first) / 2;
        for (uint32_t i = 0; i < SOURCE_BLOCK; i++)
            __builtin_prefetch(next + (uint64_t)i * at.n_rows / 2);
        for (uint32_t i = 0; i < x->n_len; i += 8)
            make_awq_eight(s, &at, first + i, first_in + k, to + i * stride, stride);
    }
    return true;
}

void source_make_int_block(const struct source *s, const struct op_weight *x, uint64_t output,
                           const uint32_t inputs[SOURCE_BLOCK], uint8_t *to)
{
    struct source_place at = source_file_place(x);
    uint32_t g = group_of(s, inputs[0]), zero = zero_at(s, &at, output, g);
    memset(to, 0, dtype_traits(s->dtype).block_bytes);
    put_scale(s, scale_index(s, &at, output, g), to);
    to[s->bits == 8 ? 4 : 2] = (uint8_t)(s->bits == 8 ? zero - 128 : zero);
    if (!s->order && copy_run(s, &at, output, inputs[0], to + (s->bits == 8 ? 5 : 4)))
        return;
    for (uint32_t i = 0; i < SOURCE_BLOCK; i++) {
        uint32_t code = inputs[i] == UINT32_MAX ? zero : code_at(s, &at, output, inputs[i]);
        if (s->bits == 8)
            to[5 + i] = (uint8_t)(code - 128);
        else
            put_code(to + 4, i, s->bits, code & ((1u << s->bits) - 1));
    }
}
