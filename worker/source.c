#include "worker/source.h"

#include <stdio.h>
#include <string.h>

#include "kernels/cpu/pack.h"
#include "worker/dummy.h"

enum { BLOCK = 32, INT4_BYTES = 20, FP8_BYTES = 36, MXFP4_BYTES = 17 };

/* ---- finding ---- */

static void shape_text(const uint64_t *shape, uint32_t n_dims, char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "[");
    for (uint32_t i = 0; i < n_dims && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%llu", i ? ", " : "",
                                 (unsigned long long)shape[i]);
    if (used < size)
        (void)snprintf(out + used, size - used, "]");
}

enum status source_check_shape(const struct tensor *t, const char *name, uint32_t n_dims,
                               const uint32_t *want, struct error *err)
{
    bool same = t->n_dims == n_dims;
    uint64_t w[TENSOR_MAX_DIMS] = {0};
    for (uint32_t i = 0; i < n_dims; i++) {
        w[i] = want[i];
        same = same && t->shape[i] == want[i];
    }
    if (same)
        return STATUS_OK;
    char have[128], wanted[128];
    shape_text(t->shape, t->n_dims, have, sizeof have);
    shape_text(w, n_dims, wanted, sizeof wanted);
    return error_set(err, STATUS_INVALID, "tensor %s has shape %s; the configuration wants %s",
                     name, have, wanted);
}

enum status source_missing(const char *name, struct error *err)
{
    return error_set(err, STATUS_INVALID, "tensor %s is missing from the model's files", name);
}

static enum status wrong_dtype(const struct tensor *t, const char *name, const char *want,
                               struct error *err)
{
    return error_set(err, STATUS_UNSUPPORTED, "tensor %s is %s; want %s", name,
                     dtype_traits(t->dtype).name, want);
}

/* A tensor beside the matrix: its name with another end for ".weight". */
struct beside {
    char name[TENSOR_NAME_MAX + 16];
    const struct tensor *t;
};
static struct beside find_beside(const struct weights *w, const char *name, const char *end)
{
    struct beside b;
    size_t n = strlen(name), cut = n > 7 && strcmp(name + n - 7, ".weight") == 0 ? 7 : 0;
    snprintf(b.name, sizeof b.name, "%.*s%s", (int)(n - cut), name, end);
    b.t = weights_find(w, b.name);
    return b;
}

static enum status check_beside(const struct beside *b, enum dtype dtype, uint32_t n_dims,
                                const uint32_t *shape, struct error *err)
{
    if (!b->t)
        return source_missing(b->name, err);
    TRY(source_check_shape(b->t, b->name, n_dims, shape, err));
    return b->t->dtype == dtype ? STATUS_OK
                                : wrong_dtype(b->t, b->name, dtype_traits(dtype).name, err);
}

static enum status find_int4(const struct program *p, const struct weights *w,
                             const struct op_weight *x, struct source *s, struct error *err)
{
    const struct quant_config *q = &p->config->quant;
    struct source_place at = source_place(x);
    struct beside values = find_beside(w, s->name, ".qweight");
    struct beside zeros = find_beside(w, s->name, ".qzeros");
    struct beside scales = find_beside(w, s->name, ".scales");
    struct beside order = find_beside(w, s->name, ".g_idx");
    bool awq = q->method == QUANT_AWQ;
    if (x->part.transposed || x->part.of_experts)
        return error_set(
            err, STATUS_UNSUPPORTED,
            "tensor %s: this build does not take %s weights apart head by head, or out "
            "of a stack of experts",
            values.name, awq ? "AWQ" : "GPTQ");
    s->group = q->group ? q->group : at.n_columns;
    if (at.n_columns % s->group != 0 || s->group % BLOCK != 0 || at.n_rows % 8 != 0)
        return error_set(
            err, STATUS_UNSUPPORTED,
            "tensor %s: %u outputs, %u inputs in groups of %u; want multiples of 8 and "
            "of the group, which is one of %d",
            values.name, at.n_rows, at.n_columns, s->group, BLOCK);
    uint32_t n_groups = at.n_columns / s->group;
    TRY(check_beside(&values, DTYPE_I32, 2,
                     awq ? (const uint32_t[]){at.n_columns, at.n_rows / 8}
                         : (const uint32_t[]){at.n_columns / 8, at.n_rows},
                     err));
    TRY(check_beside(&zeros, DTYPE_I32, 2, (const uint32_t[]){n_groups, at.n_rows / 8}, err));
    TRY(check_beside(&scales, DTYPE_F16, 2, (const uint32_t[]){n_groups, at.n_rows}, err));
    if (order.t && !awq) {
        TRY(check_beside(&order, DTYPE_I32, 1, &at.n_columns, err));
        for (uint32_t i = 0; i < at.n_columns; i++) {
            uint32_t g;
            memcpy(&g, order.t->data + 4ull * i, sizeof g);
            if (g != i / s->group)
                return error_set(err, STATUS_UNSUPPORTED,
                                 "tensor %s is in another order (desc_act), which this build does "
                                 "not run yet",
                                 order.name);
        }
    }
    *s = (struct source){.kind = awq ? SOURCE_AWQ : SOURCE_GPTQ,
                         .dtype = DTYPE_INT4,
                         .values = values.t,
                         .zeros = zeros.t,
                         .scales = scales.t,
                         .group = s->group};
    memcpy(s->name, values.name, sizeof s->name);
    return STATUS_OK;
}

static bool is_plain_float(const struct tensor *t)
{
    return t->dtype == DTYPE_F32 || t->dtype == DTYPE_F16 || t->dtype == DTYPE_BF16;
}

/* One scale for the tensor, one for each output, or one for each block. */
static enum status find_fp8(const struct program *p, const struct weights *w,
                            const struct op_weight *x, struct source *s, struct error *err)
{
    const struct quant_config *q = &p->config->quant;
    struct source_place at = source_place(x);
    struct beside scales = find_beside(w, s->name, ".weight_scale_inv");
    if (!scales.t)
        scales = find_beside(w, s->name, ".weight_scale");
    if (!scales.t)
        return source_missing(scales.name, err);
    if (!is_plain_float(scales.t))
        return wrong_dtype(scales.t, scales.name, "F32, F16 or BF16", err);
    const uint64_t *shape = scales.t->shape;
    uint32_t n_dims = scales.t->n_dims;
    s->kind = SOURCE_FP8;
    s->dtype = DTYPE_FP8;
    s->scales = scales.t;
    s->group = at.n_columns;
    if (n_dims == 0 || (n_dims == 1 && shape[0] == 1)) {
        s->scale_rows = 0;
        return STATUS_OK;
    }
    if (shape[0] == at.n_rows && (n_dims == 1 || (n_dims == 2 && shape[1] == 1))) {
        s->scale_rows = 1;
        return STATUS_OK;
    }
    if (q->block_rows == 0 || q->block_columns % BLOCK != 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "tensor %s: scales of blocks of %u x %u; want a multiple of %d inputs",
                         scales.name, q->block_rows, q->block_columns, BLOCK);
    s->scale_rows = q->block_rows;
    s->group = q->block_columns;
    const uint32_t want[] = {(at.n_rows + s->scale_rows - 1) / s->scale_rows,
                             (at.n_columns + s->group - 1) / s->group};
    return source_check_shape(scales.t, scales.name, 2, want, err);
}

static enum status find_mxfp4(const struct weights *w, const struct op_weight *x, struct source *s,
                              struct error *err)
{
    struct source_place at = source_place(x);
    struct beside values = find_beside(w, s->name, "_blocks");
    struct beside scales = find_beside(w, s->name, "_scales");
    uint32_t n_blocks = at.n_columns / BLOCK;
    if (at.n_columns % BLOCK != 0 || !x->part.of_experts)
        return error_set(err, STATUS_UNSUPPORTED, "tensor %s: %u inputs, want a multiple of %d",
                         values.name, at.n_columns, BLOCK);
    TRY(check_beside(&values, DTYPE_U8, 4,
                     (const uint32_t[]){x->n_experts, at.n_rows, n_blocks, BLOCK / 2}, err));
    TRY(check_beside(&scales, DTYPE_U8, 3, (const uint32_t[]){x->n_experts, at.n_rows, n_blocks},
                     err));
    s->kind = SOURCE_MXFP4;
    s->dtype = DTYPE_MXFP4;
    s->values = values.t;
    s->scales = scales.t;
    s->group = BLOCK;
    return STATUS_OK;
}

static enum status check_rows(const struct source *s, const struct op_weight *x, struct error *err)
{
    struct source_place at = source_place(x);
    uint32_t shape[3] = {x->n_experts, at.n_rows, at.n_columns}, skip = !x->part.of_experts;
    if (x->part.transposed) {
        shape[1] = at.n_columns;
        shape[2] = at.n_rows;
    }
    bool is_vector = skip && at.n_rows == 1 && s->values->n_dims == 1; /* of a GGUF */
    if (is_vector)
        skip = 2;
    TRY(source_check_shape(s->values, s->name, 3 - skip, shape + skip, err));
    if (!x->part.transposed || is_plain_float(s->values))
        return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "tensor %s is %s and would have to be transposed, which this build does for "
                     "F32, F16 and BF16 alone",
                     s->name, dtype_traits(s->values->dtype).name);
}

enum status source_find(const struct program *p, const struct weights *w, const struct op_weight *x,
                        struct source *out, struct error *err)
{
    struct source s = {.kind = SOURCE_ROWS};
    if (!w)
        return dummy_find(p, x, out, err);
    enum quant_method method = p->config->quant.method;
    tensor_name_format(&x->name, p->config->format, x->layer, x->expert, s.name);
    s.values = weights_find(w, s.name);
    if (s.values) {
        s.dtype = s.values->dtype;
        TRY(check_rows(&s, x, err));
        if (s.dtype == DTYPE_F8_E4M3)
            TRY(find_fp8(p, w, x, &s, err));
    } else if ((method == QUANT_AWQ || method == QUANT_GPTQ) &&
               find_beside(w, s.name, ".qweight").t) {
        TRY(find_int4(p, w, x, &s, err));
    } else if (method == QUANT_MXFP4 && find_beside(w, s.name, "_blocks").t) {
        TRY(find_mxfp4(w, x, &s, err));
    } else {
        return source_missing(s.name, err);
    }
    *out = s;
    if (s.kind == SOURCE_ROWS || (x->k0 % BLOCK == 0 && x->k_len % BLOCK == 0))
        return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "tensor %s is %s, in blocks of %d, and a rank's inputs %u to %u of %u are no "
                     "whole number of them: take fewer ranks",
                     s.name, dtype_traits(s.dtype).name, BLOCK, x->k0, x->k0 + x->k_len, x->k);
}

/* ---- rows ---- */

static uint32_t word_at(const struct tensor *t, uint64_t i)
{
    uint32_t u;
    memcpy(&u, t->data + 4 * i, sizeof u);
    return u;
}

/* AutoAWQ's order of the eight outputs in a word. */
static uint32_t awq_nibble(uint64_t output)
{
    return (uint32_t)(output % 2 == 0 ? output % 8 / 2 : 4 + output % 8 / 2);
}

static void make_int4_block(const struct source *s, const struct op_weight *x, uint64_t output,
                            uint32_t input, uint8_t *to)
{
    uint64_t n = source_place(x).n_rows, g = input / s->group;
    bool awq = s->kind == SOURCE_AWQ;
    uint32_t nibble = awq ? awq_nibble(output) : (uint32_t)(output % 8);
    uint32_t zero = word_at(s->zeros, g * (n / 8) + output / 8) >> 4 * nibble & 15;
    memcpy(to, s->scales->data + 2 * (g * n + output), 2);
    to[2] = (uint8_t)(awq ? zero : zero + 1); /* GPTQ stores one less */
    to[3] = 0;
    for (uint32_t i = 0; i < BLOCK; i++) {
        uint64_t k = input + i;
        uint32_t code = awq ? word_at(s->values, k * (n / 8) + output / 8) >> 4 * nibble
                            : word_at(s->values, k / 8 * n + output) >> 4 * (k % 8);
        uint8_t *byte = &to[4 + i / 2];
        *byte = i % 2 == 0 ? code & 15 : (uint8_t)(*byte | (code & 15) << 4);
    }
}

static float fp8_scale(const struct source *s, uint64_t output, uint32_t input)
{
    uint64_t i = 0;
    float scale = 0;
    if (s->scale_rows > 0) {
        uint64_t per_row = s->scales->n_dims == 2 ? s->scales->shape[1] : 1;
        i = output / s->scale_rows * per_row + (per_row > 1 ? input / s->group : 0);
    }
    (void)dequantize_row(s->scales->dtype,
                         s->scales->data + i * dtype_traits(s->scales->dtype).block_bytes, 1,
                         &scale);
    return scale;
}

static void make_fp8_block(const struct source *s, const struct op_weight *x, uint64_t output,
                           uint32_t input, uint8_t *to)
{
    float scale = fp8_scale(s, output, input);
    memcpy(to, &scale, sizeof scale);
    memcpy(to + sizeof scale, s->values->data + output * source_place(x).n_columns + input, BLOCK);
}

/* Neighbours share a byte there, elements 16 apart in GGML's block. */
static void make_mxfp4_block(const struct source *s, const struct op_weight *x, uint64_t output,
                             uint32_t input, uint8_t *to)
{
    struct source_place at = source_place(x);
    uint64_t block =
        (x->expert * (uint64_t)at.n_rows + output) * (at.n_columns / BLOCK) + input / BLOCK;
    const uint8_t *from = s->values->data + block * (BLOCK / 2);
    to[0] = s->scales->data[block];
    for (uint32_t i = 0; i < BLOCK / 2; i++) {
        uint32_t low = from[i / 2] >> 4 * (i % 2) & 15, high = from[8 + i / 2] >> 4 * (i % 2) & 15;
        to[1 + i] = (uint8_t)(low | high << 4);
    }
}

void source_make_rows(const struct source *s, const struct op_weight *x, uint8_t *to)
{
    for (uint32_t i = 0; i < x->n_len; i++) {
        uint64_t output = source_row(x, i);
        for (uint32_t k = x->k0; k < x->k0 + x->k_len; k += BLOCK) {
            uint32_t input = x->part.first_in + k;
            if (s->kind == SOURCE_FP8) {
                make_fp8_block(s, x, output, input, to);
                to += FP8_BYTES;
            } else if (s->kind == SOURCE_MXFP4) {
                make_mxfp4_block(s, x, output, input, to);
                to += MXFP4_BYTES;
            } else {
                make_int4_block(s, x, output, input, to);
                to += INT4_BYTES;
            }
        }
    }
}
