/* Makes random weights for `--load-format dummy`. A matrix is a window on one long line of
 * random blocks: row r begins at block r of the line. The line is short (rows + columns / 32
 * blocks), so it is made as fast as memory is written. Any part of a row can be made without the
 * parts before it. loader.c calls dummy_find for the format and dummy_pack for the numbers.
 * Invariants: the numbers depend only on the tensor's name and the position in it, so all cuts
 * of a model have the same weights. All values are small. One thread runs all functions. */
#include "worker/weights/dummy.h"

#include "worker/weights/quantise.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/base/random.h"

enum { BLOCK = 32 };

/* ---- formats ---- */

/* Returns true when the checkpoint would have this matrix quantised. Published checkpoints do
 * not quantise routers, embeddings and heads, nor the matrix that latent attention uses head by
 * head. */
static bool is_quantised(const struct program *p, const struct op_weight *x)
{
    bool vocabulary = (program_is_first(p) && x == &p->weights[p->i_embedding]) ||
                      (program_is_last(p) && x == &p->weights[p->i_head]);
    bool plain = vocabulary || x->out == REG_ROUTER || x->out == REG_SHARE || x->part.transposed;
    return p->config->quant.method == QUANT_MXFP4 ? x->part.of_experts : !plain;
}

static enum dtype dtype_of(const struct program *p, const struct op_weight *x)
{
    static const enum dtype of_bits[] = {
        [2] = DTYPE_INT2, [3] = DTYPE_INT3, [4] = DTYPE_INT4, [8] = DTYPE_INT8};
    const struct quant_config *q = &p->config->quant;
    if (q->at_load != QUANT_AT_LOAD_NONE)
        return quantise_dtype(p, x, p->config->stored_dtype);
    if (q->method == QUANT_NONE || !is_quantised(p, x))
        return p->config->stored_dtype;
    if (q->method == QUANT_FP8 || q->method == QUANT_MXFP4)
        return q->method == QUANT_FP8 ? DTYPE_FP8 : DTYPE_MXFP4;
    return of_bits[q->bits]; /* bits is 2, 3, 4 or 8 */
}

/* ---- small numbers ---- */

static void keep(uint8_t *p, uint16_t mask, uint16_t set)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    v = (v & mask) | set;
    memcpy(p, &v, sizeof v);
}

/* Fixes the exponent, so that values are from 2^-7 to 2^-6 with either sign. */
static void tame_f32(uint8_t *p)
{
    for (uint32_t i = 0; i < BLOCK; i++)
        keep(p + 4ul * i + 2, 0x807f, 0x3c00);
}

static void tame_f16(uint8_t *p)
{
    for (uint32_t i = 0; i < BLOCK; i++)
        keep(p + 2ul * i, 0x83ff, 0x2000);
}

static void tame_bf16(uint8_t *p)
{
    for (uint32_t i = 0; i < BLOCK; i++)
        keep(p + 2ul * i, 0x807f, 0x3c00);
}

/* Sets the scale to 2^-9, and the zero point to the middle of the codes. */
static void tame_int2(uint8_t *p)
{
    keep(p, 0, 0x1800);
    keep(p + 2, 0, 2);
}
static void tame_int3(uint8_t *p)
{
    keep(p, 0, 0x1800);
    keep(p + 2, 0, 4);
}
static void tame_int4(uint8_t *p)
{
    keep(p, 0, 0x1800);
    keep(p + 2, 0, 8);
}

/* Sets the scale to 2^-13. */
static void tame_int8(uint8_t *p)
{
    const float d = 0x1p-13f;
    memcpy(p, &d, sizeof d);
    p[4] = 0;
}

/* Sets the scale to 2^-13. */
static void tame_q8_0(uint8_t *p)
{
    keep(p, 0, 0x0800);
}
/* Sets the scale to 2^-9. */
static void tame_q4_0(uint8_t *p)
{
    keep(p, 0, 0x1800);
}

/* Sets the scale to 2^-7 and makes all codes smaller than 2 in size, since two of the other
 * codes are not numbers. */
static void tame_fp8(uint8_t *p)
{
    const float d = 0x1p-7f;
    memcpy(p, &d, sizeof d);
    for (int i = 0; i < BLOCK; i++)
        p[4 + i] &= 0xbf;
}

static void tame_mxfp4(uint8_t *p)
{
    p[0] = 120; /* the scale is 2^-7 */
}

struct dummy_format {
    enum dtype dtype;
    void (*tame)(uint8_t *block); /* makes 32 elements of random bits small */
};
static const struct dummy_format formats[] = {
    {DTYPE_F32, tame_f32},   {DTYPE_F16, tame_f16},     {DTYPE_BF16, tame_bf16},
    {DTYPE_INT2, tame_int2}, {DTYPE_INT3, tame_int3},   {DTYPE_INT4, tame_int4},
    {DTYPE_INT8, tame_int8}, {DTYPE_Q8_0, tame_q8_0},   {DTYPE_Q4_0, tame_q4_0},
    {DTYPE_FP8, tame_fp8},   {DTYPE_MXFP4, tame_mxfp4},
};

static const struct dummy_format *format_of(enum dtype dtype)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].dtype == dtype)
            return &formats[i];
    return NULL;
}

/* ---- finding and packing ---- */

/* Returns the number of inputs that would share a scale in the files; 0 = all. */
static uint32_t group_of(const struct quant_config *q)
{
    enum { COMPRESSED_INT4 = 128 }; /* the usual published value; config.json's is not read */
    if (q->method == QUANT_COMPRESSED)
        return q->bits == 4 ? COMPRESSED_INT4 : 0;
    return q->method == QUANT_FP8 ? q->block_columns : q->group;
}

enum status dummy_find(const struct program *p, const struct op_weight *x, struct source *out,
                       struct error *err)
{
    struct source s = {
        .kind = SOURCE_DUMMY, .dtype = dtype_of(p, x), .group = group_of(&p->config->quant)};
    tensor_name_format(&x->name, p->config->format, x->layer, x->expert, s.name);
    *out = s;
    if (!format_of(s.dtype))
        return error_set(err, STATUS_UNSUPPORTED,
                         "tensor %s: no dummy weights can be made for the torch_dtype or "
                         "quantization_config in config.json. Use a model in another format",
                         s.name);
    uint32_t block = dtype_traits(s.dtype).block_elems;
    if (x->k % block == 0 && x->k0 % block == 0 && x->k_len % block == 0)
        return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "tensor %s is %s in blocks of %u, and a rank's inputs %u to %u of %u do not "
                     "divide into whole blocks: use fewer ranks",
                     s.name, dtype_traits(s.dtype).name, block, x->k0, x->k0 + x->k_len, x->k);
}

static uint64_t seed_of(const struct source *s, const struct op_weight *x)
{
    uint64_t h = 0xcbf29ce484222325u ^ x->expert; /* FNV-1a's start value */
    for (const char *c = s->name; *c; c++)
        h = (h ^ (uint8_t)*c) * 0x100000001b3u;
    return h;
}

/* Makes blocks begin .. begin + n of the line. `to` must have space for 8 bytes more than the
 * blocks take. */
static void make_line(const struct dummy_format *f, uint64_t seed, uint64_t begin, uint64_t n,
                      uint32_t block_bytes, uint8_t *to)
{
    for (uint64_t i = begin; i < begin + n; i++, to += block_bytes) {
        struct rng rng = {seed + i * 0xd1342543de82ef95u};
        for (uint32_t at = 0; at < block_bytes; at += 8) {
            uint64_t word = rng_next(&rng);
            memcpy(to + at, &word, sizeof word);
        }
        f->tame(to);
    }
}

enum status dummy_pack(struct device *d, struct op_weight *x, const struct source *s,
                       struct error *err)
{
    uint32_t step = x->part.step ? x->part.step : 1, input = x->part.first_in + x->k0;
    uint64_t first = source_row(x, 0), block_bytes = 0, skip = 0;
    (void)dtype_bytes(s->dtype, BLOCK, 1, &block_bytes);
    (void)dtype_bytes(s->dtype, input % BLOCK, 1, &skip);
    uint64_t n = (uint64_t)(x->n_len - 1) * step + x->k_len / BLOCK + 2;
    uint8_t *line = mem_try_alloc((n + 1) * block_bytes);
    if (!line)
        return error_set(
            err, STATUS_NO_MEMORY,
            "not enough memory for the random numbers of tensor %s. Free memory on this machine",
            s->name);
    make_line(format_of(s->dtype), seed_of(s, x), first + input / BLOCK, n, (uint32_t)block_bytes,
              line);
    d->ops->loading.weight_pack(d, &x->w, &(struct weight_rows){line + skip, step * block_bytes});
    mem_free(line);
    return STATUS_OK;
}
