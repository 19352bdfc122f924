/* Finds the data of a matrix in a model's files (see source.h), and makes rows from codes.
 * loader.c calls source_find for each matrix, then source_make_rows for parts of its outputs, on
 * several threads. A source describes tensors, format, groups and, with desc_act, the order of
 * the inputs. Rows are made block by block in one of our own formats. Invariants: names, dtypes
 * and shapes are checked when the source is found, so source_make_rows does not check them.
 * Tensors are borrowed and read-only. Blocks are never divided between ranks. */
#include "worker/weights/source.h"

#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "kernels/host/blocks.h"
#include "worker/weights/dummy.h"
#include "worker/weights/quantise.h"
#include "worker/weights/source_file.h"
#include "worker/weights/source_int.h"

enum { BLOCK = SOURCE_BLOCK };

/* ---- finding ---- */

/* Finds the scales: one for the tensor, one for each output, or one for each block. */
static enum status find_fp8_scales(const struct program *p, const struct weights *w,
                                   const struct op_weight *x, struct source *s, struct error *err)
{
    const struct quant_config *q = &p->config->quant;
    struct source_place at = source_file_place(x);
    struct beside scales = source_beside(w, s->name, ".weight_scale_inv");
    if (!scales.t)
        scales = source_beside(w, s->name, ".weight_scale");
    if (!scales.t)
        return source_missing(scales.name, err);
    if (!source_is_plain_float(scales.t))
        return source_wrong_dtype(scales.t, scales.name, "F32, F16 or BF16", err);
    const uint64_t *shape = scales.t->shape;
    uint32_t n_dims = scales.t->n_dims;
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
    if (q->block_rows == 0)
        return error_set(
            err, STATUS_UNSUPPORTED,
            "tensor %s: its shape is neither one scale nor one for each of the %u "
            "outputs, and config.json has no weight_block_size. Use a model in another format",
            scales.name, at.n_rows);
    if (q->block_columns % BLOCK != 0)
        return error_set(
            err, STATUS_UNSUPPORTED,
            "tensor %s: the scales are for blocks of %u x %u, but the number of "
            "inputs in a block must be a multiple of %d. Use a model in another format",
            scales.name, q->block_rows, q->block_columns, BLOCK);
    s->scale_rows = q->block_rows;
    s->group = q->block_columns;
    const uint32_t want[] = {(at.n_rows + s->scale_rows - 1) / s->scale_rows,
                             (at.n_columns + s->group - 1) / s->group};
    return source_check_shape(scales.t, scales.name, 2, want, err);
}

/* Finds FP8 weights. In a transposed matrix a block of 32 inputs lies in a column of the file.
 * It has a single scale only if the file's blocks are tall enough. Otherwise floats are made. */
static enum status find_fp8(const struct program *p, const struct weights *w,
                            const struct op_weight *x, struct source *s, struct error *err)
{
    if (x->part.of_experts)
        return error_set(err, STATUS_UNSUPPORTED,
                         "tensor %s: this build does not support FP8 weights in one tensor of all "
                         "experts. Use a model in another format",
                         s->name);
    TRY(find_fp8_scales(p, w, x, s, err));
    bool blocks =
        x->k % BLOCK == 0 &&
        (s->scale_rows == 0 || (s->scale_rows % BLOCK == 0 && x->part.first_in % BLOCK == 0));
    s->kind = SOURCE_FP8;
    s->dtype = x->part.transposed && !blocks ? DTYPE_F32 : DTYPE_FP8;
    return STATUS_OK;
}

static enum status find_mxfp4(const struct weights *w, const struct op_weight *x, struct source *s,
                              struct error *err)
{
    struct source_place at = source_place(x);
    struct beside values = source_beside(w, s->name, "_blocks");
    struct beside scales = source_beside(w, s->name, "_scales");
    uint32_t n_blocks = at.n_columns / BLOCK;
    if (at.n_columns % BLOCK != 0 || !x->part.of_experts)
        return error_set(err, STATUS_UNSUPPORTED,
                         "tensor %s has %u inputs, but the number must be a multiple of %d. Use a "
                         "model in another format",
                         values.name, at.n_columns, BLOCK);
    TRY(source_check_beside(&values, DTYPE_U8, 4,
                            (const uint32_t[]){x->n_experts, at.n_rows, n_blocks, BLOCK / 2}, err));
    TRY(source_check_beside(&scales, DTYPE_U8, 3,
                            (const uint32_t[]){x->n_experts, at.n_rows, n_blocks}, err));
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
    /* a one-row matrix is a vector in a GGUF */
    bool is_vector = skip && at.n_rows == 1 && s->values->n_dims == 1;
    if (is_vector)
        skip = 2;
    TRY(source_check_shape(s->values, s->name, 3 - skip, shape + skip, err));
    bool coded = s->dtype == DTYPE_F8_E4M3 || s->dtype == DTYPE_I8;
    if (!x->part.transposed || coded || source_is_plain_float(s->values))
        return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "tensor %s is %s and must be transposed, but this build can transpose only "
                     "F32, F16 and BF16. Use a model in another format",
                     s->name, dtype_traits(s->values->dtype).name);
}

static enum status find_quantised(const struct program *p, const struct op_weight *x,
                                  struct source *s, struct error *err)
{
    if (!source_is_plain_float(s->values))
        return error_set(
            err, STATUS_INVALID,
            "--quantization cannot be used: tensor %s is already %s. Remove the option", s->name,
            dtype_traits(s->dtype).name);
    s->kind = SOURCE_QUANTISED;
    s->dtype = quantise_dtype(p, x, s->dtype);
    return STATUS_OK;
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
        else if (quantise_dtype(p, x, s.dtype) != s.dtype)
            TRY(find_quantised(p, x, &s, err));
        else if (s.dtype == DTYPE_I8 && source_beside(w, s.name, ".weight_scale").t)
            TRY(source_find_int(p, w, x, &s, err));
    } else if (((method == QUANT_AWQ || method == QUANT_GPTQ) &&
                source_beside(w, s.name, ".qweight").t) ||
               (method == QUANT_COMPRESSED && source_beside(w, s.name, ".weight_packed").t)) {
        TRY(source_find_int(p, w, x, &s, err));
    } else if (method == QUANT_MXFP4 && source_beside(w, s.name, "_blocks").t) {
        TRY(find_mxfp4(w, x, &s, err));
    } else {
        return source_missing(s.name, err);
    }
    *out = s;
    bool whole = x->k0 % BLOCK == 0 && x->k_len % BLOCK == 0;
    if (s.kind == SOURCE_ROWS || s.dtype == DTYPE_F32 || s.order || whole)
        return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "tensor %s is %s%s in blocks of %d, and a rank's inputs %u to %u of %u do not "
                     "divide into whole blocks: use fewer ranks",
                     s.name, dtype_traits(s.dtype).name,
                     s.kind == SOURCE_QUANTISED ? " by --quantization" : "", BLOCK, x->k0,
                     x->k0 + x->k_len, x->k);
}

/* ---- order of inputs ---- */

static uint32_t group_of_input(const struct source *s, const struct op_weight *x, uint32_t k)
{
    return source_word(s->order, x->part.first_in + x->k0 + k);
}

static uint32_t padded(uint32_t n)
{
    return (n + BLOCK - 1) / BLOCK * BLOCK;
}

/* Returns the place where each group begins among the rank's inputs in order, padded to blocks,
 * and the end. */
static uint32_t *group_begins(const struct source *s, const struct op_weight *x)
{
    uint32_t *begins = mem_array(s->n_groups + 1, sizeof *begins), n = 0;
    memset(begins, 0, (s->n_groups + 1) * sizeof *begins);
    for (uint32_t k = 0; k < x->k_len; k++)
        begins[group_of_input(s, x, k)]++;
    for (uint32_t g = 0; g <= s->n_groups; g++) {
        uint32_t in_group = begins[g];
        begins[g] = n;
        n += padded(in_group);
    }
    return begins;
}

uint32_t source_n_inputs(const struct source *s, const struct op_weight *x)
{
    if (!source_has_order(s))
        return x->k_len;
    uint32_t *begins = group_begins(s, x), n = begins[s->n_groups];
    mem_free(begins);
    return n > 0 ? n : x->k_len;
}

void source_order(const struct source *s, const struct op_weight *x, uint32_t *out)
{
    uint32_t *next = group_begins(s, x);
    for (uint32_t i = 0; i < next[s->n_groups]; i++)
        out[i] = UINT32_MAX;
    for (uint32_t k = 0; k < x->k_len; k++)
        out[next[group_of_input(s, x, k)]++] = k;
    mem_free(next);
}

uint32_t source_group(const struct source *s, const struct op_weight *x)
{
    if (s->kind == SOURCE_QUANTISED && s->dtype == DTYPE_FP8)
        return x->k_len;
    bool several = s->kind == SOURCE_INT || s->kind == SOURCE_FP8 || s->kind == SOURCE_DUMMY;
    if (!several || s->dtype == DTYPE_F32 || s->order)
        return 0;
    uint32_t first = x->part.first_in + x->k0, last = first + x->k_len - 1;
    uint32_t group = x->part.transposed ? s->scale_rows : s->group;
    if (group == 0 || first / group == last / group)
        return x->k_len;
    /* The cut is within a group, so the loop finds the largest divisor of the group that divides
     * the rank's first input. */
    for (uint32_t rest = first; rest != 0;) {
        uint32_t next = group % rest;
        group = rest;
        rest = next;
    }
    return group;
}

/* ---- rows ---- */

/* Returns the scale of the weight at that row and column of the file. */
static float fp8_scale(const struct source *s, uint64_t row, uint32_t column)
{
    uint64_t i = 0;
    if (s->scale_rows > 0) {
        uint64_t per_row = s->scales->n_dims == 2 ? s->scales->shape[1] : 1;
        i = row / s->scale_rows * per_row + (per_row > 1 ? column / s->group : 0);
    }
    return source_float(s->scales, i);
}

static void make_fp8_block(const struct source *s, const struct op_weight *x, uint64_t output,
                           uint32_t input, uint8_t *to)
{
    uint64_t width = source_file_place(x).n_columns;
    bool turned = x->part.transposed;
    float scale = turned ? fp8_scale(s, input, (uint32_t)output) : fp8_scale(s, output, input);
    memcpy(to, &scale, sizeof scale);
    if (!turned)
        memcpy(to + sizeof scale, s->values->data + output * width + input, BLOCK);
    for (uint32_t i = 0; turned && i < BLOCK; i++)
        to[sizeof scale + i] = s->values->data[(input + i) * width + output];
}

/* Returns one weight of a transposed matrix of codes, by row and column of the file. */
static float value_of(const struct source *s, const struct op_weight *x, uint64_t row,
                      uint32_t column)
{
    if (s->kind == SOURCE_INT)
        return source_int_value(s, x, row, column);
    uint8_t block[4 + BLOCK] = {0};
    float scale = fp8_scale(s, row, column), values[BLOCK];
    memcpy(block, &scale, sizeof scale);
    block[4] = s->values->data[row * source_file_place(x).n_columns + column];
    (void)dequantize_row(DTYPE_FP8, block, BLOCK, values);
    return values[0];
}

/* Reorders nibbles. In the file a byte has two neighbouring elements, in GGML's block two
 * elements that are 16 apart. */
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

static void make_float_row(const struct source *s, const struct op_weight *x, uint64_t output,
                           uint8_t *to)
{
    for (uint32_t k = 0; k < x->k_len; k++) {
        float value = value_of(s, x, x->part.first_in + x->k0 + k, (uint32_t)output);
        memcpy(to + k * sizeof value, &value, sizeof value);
    }
}

static void make_block(const struct source *s, const struct op_weight *x, uint64_t output,
                       uint32_t k, uint8_t *to)
{
    uint32_t first = x->part.first_in + x->k0, inputs[BLOCK];
    if (s->kind == SOURCE_FP8) {
        make_fp8_block(s, x, output, first + k, to);
    } else if (s->kind == SOURCE_MXFP4) {
        make_mxfp4_block(s, x, output, first + k, to);
    } else {
        for (uint32_t i = 0; i < BLOCK; i++)
            inputs[i] = first + k + i;
        for (uint32_t i = 0; s->order && i < BLOCK; i++) {
            uint32_t at = x->w.order[k + i];
            inputs[i] = at == UINT32_MAX ? at : first + at;
        }
        source_make_int_block(s, x, output, inputs, to);
    }
}

/* Returns true when a line of the file has codes of several outputs. All codes of such a line
 * are used before the next inputs. */
static bool is_by_inputs(const struct source *s)
{
    return s->kind == SOURCE_INT && (s->layout == INT_AWQ || s->layout == INT_GPTQ);
}

void source_make_rows(const struct source *s, const struct op_weight *x, uint8_t *to)
{
    if (s->kind == SOURCE_QUANTISED) {
        quantise_rows(s, x, to);
        return;
    }
    if (source_make_awq_rows(s, x, to))
        return;
    const uint32_t n_inputs = source_has_order(s) ? x->w.k : x->k_len, n_blocks = n_inputs / BLOCK;
    const uint64_t block_bytes = dtype_traits(s->dtype).block_bytes;
    const bool turned = is_by_inputs(s), floats = s->dtype == DTYPE_F32;
    for (uint32_t i = 0; floats && i < x->n_len; i++, to += n_inputs * sizeof(float))
        make_float_row(s, x, source_row(x, i), to);
    for (uint32_t a = 0; !floats && a < (turned ? n_blocks : x->n_len); a++) {
        for (uint32_t b = 0; b < (turned ? x->n_len : n_blocks); b++) {
            const uint32_t i = turned ? b : a, k = turned ? a : b;
            make_block(s, x, source_row(x, i), k * BLOCK,
                       to + ((uint64_t)i * n_blocks + k) * block_bytes);
        }
    }
}
