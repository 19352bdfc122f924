/* Tests quantised matrices that consist of codes and scales in several tensors. The tests write
 * a safetensors file with known bytes, open a `source` for a matrix and read rows as floats,
 * packed integers or FP8. The expected values follow the rules of AWQ, GPTQ, compressed-tensors
 * and FP8. Invariants: rows do not depend on how many are read at a time, and layouts without a
 * rule are refused. All tests run on one thread. */
#include "worker/weights/source.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "kernels/host/blocks.h"
#include "tests/unit/common/model/put_file.c"
#include "tests/unit/common/model/safetensors_writer.c"

/* Returns byte i of a file's data, which is i * 7 + 1. Tensors are adjacent. */
static uint8_t byte_at(uint64_t i)
{
    return (uint8_t)(i * 7 + 1);
}
static uint32_t word_at(uint64_t at, uint64_t i)
{
    uint32_t w = 0;
    for (uint32_t b = 0; b < 4; b++)
        w |= (uint32_t)byte_at(at + 4 * i + b) << 8 * b;
    return w;
}

struct fixture {
    char folder[32], path[64];
    struct model_config config;
    struct program program;
    struct weights *weights;
};

/* Opens a file whose data end with `tail` in place of the pattern. */
static void open_with_tail(struct fixture *f, const struct quant_config *q, const char *header,
                           size_t n_data, const void *tail, size_t n_tail)
{
    struct error err;
    struct strbuf b;
    *f = (struct fixture){.folder = "/tmp/cox-source-XXXXXX"};
    f->config = (struct model_config){.format = MODEL_HF, .quant = *q};
    f->program = (struct program){.config = &f->config, .tp = 1};
    assert_non_null(mkdtemp(f->folder));
    strbuf_init(&b, 0);
    put_safetensors(&b, header, 0, n_data);
    if (n_tail > 0)
        memcpy((char *)strbuf_str(&b).ptr + strbuf_str(&b).len - n_tail, tail, n_tail);
    put_file(f->folder, "model.safetensors", strbuf_str(&b));
    put_file(f->folder, "config.json", STR("{}"));
    strbuf_fini(&b);
    const struct model_info m = {.format = MODEL_HF, .path = f->folder, .name = f->folder};
    if (weights_open(&m, &f->weights, &err) != STATUS_OK)
        fail_msg("%s: %s", header, err.text);
}

static void open_fixture(struct fixture *f, const struct quant_config *q, const char *header,
                         size_t n_data)
{
    open_with_tail(f, q, header, n_data, NULL, 0);
}

static void close_fixture(struct fixture *f)
{
    static const char *const files[] = {"model.safetensors", "config.json"};
    weights_close(f->weights);
    for (int i = 0; i < 2; i++) {
        snprintf(f->path, sizeof f->path, "%s/%s", f->folder, files[i]);
        assert_int_equal(unlink(f->path), 0);
    }
    assert_int_equal(rmdir(f->folder), 0);
}

/* Returns a matrix of 16 outputs and 64 inputs. This rank has the outputs from 8 on and the
 * inputs from 32 on. */
static struct op_weight matrix(void)
{
    return (struct op_weight){
        .name = {"m.weight", NULL}, .n = 16, .k = 64, .n0 = 8, .n_len = 8, .k0 = 32, .k_len = 32};
}

static float *values_of(const struct fixture *f, const struct op_weight *x, enum source_kind kind)
{
    struct source s;
    struct error err;
    uint64_t stride;
    if (source_find(&f->program, f->weights, x, &s, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(s.kind, kind);
    assert_true(dtype_bytes(s.dtype, x->k_len, 1, &stride));
    uint8_t *rows = mem_array(x->n_len, stride);
    float *values = mem_array((size_t)x->n_len * x->k_len, sizeof *values);
    source_make_rows(&s, x, rows);
    for (uint32_t i = 0; i < x->n_len; i++)
        assert_true(
            dequantize_row(s.dtype, rows + i * stride, x->k_len, values + (size_t)i * x->k_len));
    mem_free(rows);
    return values;
}

static float half(uint64_t at, uint64_t i)
{
    uint16_t h = (uint16_t)(byte_at(at + 2 * i) | byte_at(at + 2 * i + 1) << 8);
    float f;
    assert_true(dequantize_row(DTYPE_F16, &h, 1, &f));
    return f;
}

#define AWQ                                                                                        \
    "{'m.qweight':{'dtype':'I32','shape':[64,2],'data_offsets':[0,512]},"                          \
    "'m.qzeros':{'dtype':'I32','shape':[2,2],'data_offsets':[512,528]},"                           \
    "'m.scales':{'dtype':'F16','shape':[2,16],'data_offsets':[528,592]}}"
#define GPTQ_VALUES "{'m.qweight':{'dtype':'I32','shape':[8,16],'data_offsets':[0,512]},"
#define GPTQ                                                                                       \
    GPTQ_VALUES "'m.qzeros':{'dtype':'I32','shape':[2,2],'data_offsets':[512,528]},"               \
                "'m.scales':{'dtype':'F16','shape':[2,16],'data_offsets':[528,592]}"

/* In AutoAWQ, nibble i of a word is column [0, 2, 4, 6, 1, 3, 5, 7][i]. In GPTQ, a word has
 * eight inputs, and zeros are stored less one. */
static void int4_is_made(void **state)
{
    static const uint32_t order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    for (int awq = 0; awq < 2; awq++) {
        struct fixture f;
        struct op_weight x = matrix();
        const struct quant_config q = {
            .method = awq ? QUANT_AWQ : QUANT_GPTQ, .bits = 4, .group = 32};
        open_fixture(&f, &q, awq ? AWQ : GPTQ "}", 592);
        float *got = values_of(&f, &x, SOURCE_INT);
        for (uint32_t n = 8; n < 16; n++)
            for (uint32_t k = 32; k < 64; k++) {
                uint32_t nibble = n % 8, zero, code;
                for (uint32_t i = 0; awq && i < 8; i++)
                    nibble = order[i] == n % 8 ? i : nibble;
                zero = (word_at(512, 2 + n / 8) >> 4 * nibble & 15) + !awq;
                code = awq ? word_at(0, k * 2 + n / 8) >> 4 * nibble & 15
                           : word_at(0, k / 8 * 16 + n) >> 4 * (k % 8) & 15;
                float want = half(528, 16 + n) * ((float)code - (float)zero);
                float have = got[(n - 8) * 32 + k - 32];
                assert_true(have == want || (isnan(have) && isnan(want)));
            }
        mem_free(got);
        close_fixture(&f);
    }
}

/* Rows have the same bytes whether they are made in groups of eight outputs or one at a time. */
static void rows_do_not_depend_on_their_number(void **state)
{
    static const struct {
        uint32_t first, n, step;
    } parts[] = {{0, 16, 1}, {8, 8, 1}, {0, 8, 1}, {3, 8, 1}, {5, 9, 1}, {1, 7, 2}, {0, 8, 2}};
    for (int awq = 0; awq < 2; awq++) {
        struct fixture f;
        struct source s;
        struct error err;
        struct op_weight x = matrix();
        uint8_t alone[16][40], got[16 * 40];
        const struct quant_config q = {
            .method = awq ? QUANT_AWQ : QUANT_GPTQ, .bits = 4, .group = 32};
        open_fixture(&f, &q, awq ? AWQ : GPTQ "}", 592);
        assert_int_equal(source_find(&f.program, f.weights, &x, &s, &err), STATUS_OK);
        x.k0 = 0;
        x.k_len = 64;
        x.n_len = 1;
        for (x.n0 = 0; x.n0 < 16; x.n0++)
            source_make_rows(&s, &x, alone[x.n0]);
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            x.n0 = 0;
            x.n_len = parts[i].n;
            x.part.n_rows = 16;
            x.part.first = parts[i].first;
            x.part.step = parts[i].step;
            source_make_rows(&s, &x, got);
            for (uint32_t n = 0; n < parts[i].n; n++)
                assert_memory_equal(got + n * 40, alone[parts[i].first + n * parts[i].step], 40);
        }
        close_fixture(&f);
    }
}

#define F8(scales)                                                                                 \
    "{'m.weight':{'dtype':'F8_E4M3','shape':[16,64],'data_offsets':[0,1024]}," scales "}"

static void fp8_has_the_scale_of_its_place(void **state)
{
    static const struct {
        const char *scales;
        size_t n_data;
        /* size of a block of scales; per_row: number of scales in a row */
        uint32_t block_rows, block_columns, per_row;
        uint32_t rows, columns; /* outputs and inputs that share a scale */
    } cases[] = {
        {"'m.weight_scale':{'dtype':'F32','shape':[1],'data_offsets':[1024,1028]}", 1028, 0, 0, 1,
         16, 64},
        {"'m.weight_scale':{'dtype':'F32','shape':[],'data_offsets':[1024,1028]}", 1028, 0, 0, 1,
         16, 64},
        {"'m.weight_scale':{'dtype':'F32','shape':[16,1],'data_offsets':[1024,1088]}", 1088, 0, 0,
         1, 1, 64},
        {"'m.weight_scale_inv':{'dtype':'F32','shape':[2,2],'data_offsets':[1024,1040]}", 1040, 12,
         32, 2, 12, 32},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char header[256];
        struct fixture f;
        struct op_weight x = matrix();
        const struct quant_config q = {.method = QUANT_FP8,
                                       .block_rows = cases[i].block_rows,
                                       .block_columns = cases[i].block_columns};
        snprintf(header, sizeof header, F8("%s"), cases[i].scales);
        open_fixture(&f, &q, header, cases[i].n_data);
        float *got = values_of(&f, &x, SOURCE_FP8);
        for (uint32_t n = 8; n < 16; n++)
            for (uint32_t k = 32; k < 64; k++) {
                uint8_t code = byte_at(n * 64 + k);
                int exponent = code >> 3 & 15, mantissa = code & 7;
                float value = ldexpf((float)(exponent ? 8 + mantissa : mantissa),
                                     exponent ? exponent - 10 : -9);
                uint32_t i_scale =
                    n / cases[i].rows * cases[i].per_row + k / cases[i].columns % cases[i].per_row;
                uint32_t bits = word_at(1024, i_scale);
                float scale;
                memcpy(&scale, &bits, sizeof scale);
                float want = scale * (code & 0x80 ? -value : value);
                float have = got[(n - 8) * 32 + k - 32];
                assert_true(have == want || (isnan(have) && isnan(want)));
            }
        mem_free(got);
        close_fixture(&f);
    }
}

static void mxfp4_is_ordered_anew(void **state)
{
    static const float values[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    struct fixture f;
    const struct quant_config q = {.method = QUANT_MXFP4};
    struct op_weight x = matrix();
    x.name.hf = "m";
    x.n_experts = 2;
    x.expert = 1;
    x.n = 8;
    x.n0 = 0;
    x.part = (struct tensor_part){
        .n_rows = 16, .first = 1, .step = 2, .of_experts = true, .transposed = true};
    open_fixture(&f, &q,
                 "{'m_blocks':{'dtype':'U8','shape':[2,16,2,16],'data_offsets':[0,1024]},"
                 "'m_scales':{'dtype':'U8','shape':[2,16,2],'data_offsets':[1024,1088]}}",
                 1088);
    float *got = values_of(&f, &x, SOURCE_MXFP4);
    for (uint32_t n = 0; n < 8; n++)
        for (uint32_t k = 32; k < 64; k++) {
            uint32_t block = (16 + 1 + 2 * n) * 2 + 1;
            uint32_t code = byte_at(block * 16 + (k - 32) / 2) >> 4 * (k % 2) & 15;
            float value = values[code & 7] * (code & 8 ? -1.0f : 1.0f);
            assert_true(got[n * 32 + k - 32] == ldexpf(value, byte_at(1024 + block) - 127));
        }
    mem_free(got);
    close_fixture(&f);
}

/* Returns code i of a line of words that are `stride` apart. 32 codes take `bits` words. The
 * function reads bit by bit. */
static int bits_at(uint64_t at, uint64_t first, uint64_t stride, uint32_t i, uint32_t bits)
{
    int code = 0;
    for (uint32_t b = 0; b < bits; b++) {
        uint32_t bit = i * bits + b;
        code |= (int)(word_at(at, first + bit / 32 * stride) >> bit % 32 & 1) << b;
    }
    return code;
}

enum { N = 32, K = 64 }; /* size of the matrices below, which have two groups of inputs */

static struct op_weight wide_matrix(void)
{
    struct op_weight x = matrix();
    x.n = N;
    return x;
}

static void gptq_of_all_widths(void **state)
{
    static const uint32_t widths[] = {2, 3, 4, 8};
    for (int i = 0; i < 8; i++) {
        char header[512];
        struct fixture f;
        uint32_t b = widths[i / 2], codes = K * N * b / 8, zeros = codes + 2 * N * b / 8;
        bool whole = i % 2;
        struct op_weight x = wide_matrix();
        const struct quant_config q = {
            .method = QUANT_GPTQ, .bits = b, .group = 32, .zeros_are_whole = whole};
        snprintf(header, sizeof header,
                 "{'m.qweight':{'dtype':'I32','shape':[%u,32],'data_offsets':[0,%u]},"
                 "'m.qzeros':{'dtype':'I32','shape':[2,%u],'data_offsets':[%u,%u]},"
                 "'m.scales':{'dtype':'F16','shape':[2,32],'data_offsets':[%u,%u]}}",
                 K * b / 32, codes, N * b / 32, codes, zeros, zeros, zeros + 4 * N);
        open_fixture(&f, &q, header, zeros + 4 * N);
        float *got = values_of(&f, &x, SOURCE_INT);
        for (uint32_t n = 8; n < 16; n++)
            for (uint32_t k = 32; k < 64; k++) {
                int code = bits_at(0, n, N, k, b);
                int zero = bits_at(codes, N * b / 32, 1, n, b) + !whole;
                float want = half(zeros, N + n) * (float)(code - (b == 8 ? zero & 255 : zero));
                float have = got[(n - 8) * 32 + k - 32];
                assert_true(have == want || (isnan(have) && isnan(want)));
            }
        mem_free(got);
        close_fixture(&f);
    }
}

/* Values are codes less the middle of their range. Zero points are packed along the outputs, or
 * there are none. */
static void compressed_integers(void **state)
{
    for (int i = 0; i < 4; i++) {
        char header[512];
        struct fixture f;
        uint32_t b = i < 2 ? 4 : 8, codes = K * N * b / 8, zeros = codes + 2 * N * b / 8;
        bool symmetric = i % 2;
        struct op_weight x = wide_matrix();
        const struct quant_config q = {.method = QUANT_COMPRESSED, .bits = b};
        snprintf(header, sizeof header,
                 "{'m.weight_packed':{'dtype':'I32','shape':[32,%u],'data_offsets':[0,%u]},"
                 "'%s':{'dtype':'I32','shape':[%u,2],'data_offsets':[%u,%u]},"
                 "'m.weight_scale':{'dtype':'F16','shape':[32,2],'data_offsets':[%u,%u]}}",
                 K * b / 32, codes, symmetric ? "other" : "m.weight_zero_point", N * b / 32, codes,
                 zeros, zeros, zeros + 4 * N);
        open_fixture(&f, &q, header, zeros + 4 * N);
        float *got = values_of(&f, &x, SOURCE_INT);
        for (uint32_t n = 8; n < 16; n++)
            for (uint32_t k = 32; k < 64; k++) {
                int code = bits_at(0, n * K * b / 32, 1, k, b);
                int zero = symmetric ? 1 << (b - 1) : bits_at(codes, 1, 2, n, b);
                float want = half(zeros, n * 2 + 1) * (float)(code - zero);
                float have = got[(n - 8) * 32 + k - 32];
                assert_true(have == want || (isnan(have) && isnan(want)));
            }
        mem_free(got);
        close_fixture(&f);
    }
}

static void bytes_with_a_scale_of_each_output(void **state)
{
    struct fixture f;
    const struct quant_config q = {.method = QUANT_COMPRESSED, .bits = 8};
    struct op_weight x = matrix();
    open_fixture(&f, &q,
                 "{'m.weight':{'dtype':'I8','shape':[16,64],'data_offsets':[0,1024]},"
                 "'m.weight_scale':{'dtype':'F16','shape':[16,1],'data_offsets':[1024,1056]}}",
                 1056);
    float *got = values_of(&f, &x, SOURCE_INT);
    for (uint32_t n = 8; n < 16; n++)
        for (uint32_t k = 32; k < 64; k++) {
            float want = half(1024, n) * (float)(int8_t)byte_at(n * 64 + k);
            float have = got[(n - 8) * 32 + k - 32];
            assert_true(have == want || (isnan(have) && isnan(want)));
        }
    mem_free(got);
    close_fixture(&f);
}

/* The inputs of this rank, 32 to 63, belong alternately to two groups. They become two blocks,
 * each half empty. */
static void inputs_are_sorted_by_group(void **state)
{
    struct fixture f;
    struct source s;
    struct error err;
    uint32_t groups[K], order[K];
    struct op_weight x = matrix();
    const struct quant_config q = {.method = QUANT_GPTQ, .bits = 4, .group = 32};
    for (uint32_t i = 0; i < K; i++)
        groups[i] = i % 2;
    open_with_tail(&f, &q, GPTQ ",'m.g_idx':{'dtype':'I32','shape':[64],'data_offsets':[592,848]}}",
                   848, groups, sizeof groups);
    assert_int_equal(source_find(&f.program, f.weights, &x, &s, &err), STATUS_OK);
    assert_true(source_has_order(&s));
    assert_int_equal(source_n_inputs(&s, &x), K);
    source_order(&s, &x, order);
    for (uint32_t i = 0; i < K; i++)
        assert_int_equal(order[i], i % 32 < 16 ? i % 32 * 2 + i / 32 : UINT32_MAX);
    x.w.order = order;
    x.w.k = K;
    uint8_t rows[8 * 2 * 20];
    float values[K];
    source_make_rows(&s, &x, rows);
    for (uint32_t n = 8; n < 16; n++) {
        assert_true(dequantize_row(s.dtype, rows + (n - 8) * 40, K, values));
        for (uint32_t i = 0; i < K; i++) {
            uint32_t k = 32 + order[i], g = i / 32;
            int zero = (int)(word_at(512, g * 2 + n / 8) >> 4 * (n % 8) & 15) + 1;
            int code = order[i] == UINT32_MAX
                           ? zero
                           : (int)(word_at(0, k / 8 * 16 + n) >> 4 * (k % 8) & 15);
            float want = half(528, g * 16 + n) * (float)(code - zero);
            assert_true(values[i] == want || (isnan(values[i]) && isnan(want)));
        }
    }
    close_fixture(&f);
}

/* FP8 with blocks of scales that are tall stays FP8 when it is transposed. FP8 with a scale for
 * each row does not. */
static void codes_are_transposed(void **state)
{
    static const struct {
        const char *scales;
        size_t n_data;
        struct quant_config q;
        enum dtype dtype;
    } cases[] = {
        {"'m.weight_scale_inv':{'dtype':'F32','shape':[2,1],'data_offsets':[1024,1032]}",
         1032,
         {.method = QUANT_FP8, .block_rows = 32, .block_columns = 32},
         DTYPE_FP8},
        {"'m.weight_scale':{'dtype':'F32','shape':[64,1],'data_offsets':[1024,1280]}",
         1280,
         {.method = QUANT_FP8},
         DTYPE_F32},
    };
    for (size_t i = 0; i < 2; i++) {
        char header[256];
        struct fixture f;
        struct source s;
        struct error err;
        uint8_t rows[8 * 32 * 4];
        float values[8 * 32];
        /* in the file the matrix has 64 inputs, each a row of 16 outputs */
        struct op_weight x = matrix();
        x.part = (struct tensor_part){.n_rows = 16, .n_columns = 64, .transposed = true};
        snprintf(header, sizeof header,
                 "{'m.weight':{'dtype':'F8_E4M3','shape':[64,16],'data_offsets':[0,1024]},%s}",
                 cases[i].scales);
        open_fixture(&f, &cases[i].q, header, cases[i].n_data);
        if (source_find(&f.program, f.weights, &x, &s, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        assert_int_equal(s.dtype, cases[i].dtype);
        source_make_rows(&s, &x, rows);
        assert_true(dequantize_row(s.dtype, rows, 8 * 32, values));
        for (uint32_t n = 8; n < 16; n++)
            for (uint32_t k = 32; k < 64; k++) {
                uint8_t block[36] = {0};
                float one[32];
                uint32_t bits = word_at(1024, i == 0 ? k / 32 : k);
                memcpy(block, &bits, 4);
                block[4] = byte_at(k * 16 + n);
                assert_true(dequantize_row(DTYPE_FP8, block, 32, one));
                float have = values[(n - 8) * 32 + k - 32];
                assert_true(have == one[0] || (isnan(have) && isnan(one[0])));
            }
        close_fixture(&f);
    }
}

static const struct {
    const char *name;
    struct quant_config q;
    const char *header;
    size_t n_data;
    enum status want;
    const char *text;
} refused[] = {
    {"nothing",
     {.method = QUANT_AWQ, .bits = 4},
     "{'x':{'dtype':'U8','shape':[1],'data_offsets':[0,1]}}",
     1,
     STATUS_INVALID,
     "m.weight is missing"},
    {"codes without a method",
     {.method = QUANT_NONE},
     AWQ,
     592,
     STATUS_INVALID,
     "m.weight is missing"},
    {"no zeros",
     {.method = QUANT_AWQ, .bits = 4, .group = 32},
     "{'m.qweight':{'dtype':'I32','shape':[64,2],'data_offsets':[0,512]}}",
     512,
     STATUS_INVALID,
     "m.qzeros is missing"},
    {"another layout",
     {.method = QUANT_GPTQ, .bits = 4, .group = 32},
     AWQ,
     592,
     STATUS_INVALID,
     "m.qweight has shape [64, 2], but the model's configuration needs [8, 16]"},
    {"another group",
     {.method = QUANT_AWQ, .bits = 4, .group = 64},
     AWQ,
     592,
     STATUS_INVALID,
     "m.qzeros has shape [2, 2], but the model's configuration needs [1, 2]"},
    {"a group of 16",
     {.method = QUANT_AWQ, .bits = 4, .group = 16},
     AWQ,
     592,
     STATUS_UNSUPPORTED,
     "in groups of 16"},
    {"a group of more",
     {.method = QUANT_AWQ, .bits = 4, .group = 96},
     AWQ,
     592,
     STATUS_INVALID,
     "m.qzeros has shape [2, 2], but the model's configuration needs [1, 2]"},
    {"out of order",
     {.method = QUANT_GPTQ, .bits = 4, .group = 32},
     GPTQ ",'m.g_idx':{'dtype':'I32','shape':[64],'data_offsets':[592,848]}}",
     848,
     STATUS_INVALID,
     "m.g_idx assigns input 0 to group"},
    {"packed in words of six bits",
     {.method = QUANT_COMPRESSED, .bits = 4},
     "{'m.weight_packed':{'dtype':'I32','shape':[16,12],'data_offsets':[0,768]},"
     "'m.weight_scale':{'dtype':'F16','shape':[16,2],'data_offsets':[768,832]}}",
     832,
     STATUS_INVALID,
     "m.weight_packed has shape [16, 12]"},
    {"packed without a scale",
     {.method = QUANT_COMPRESSED, .bits = 4},
     "{'m.weight_packed':{'dtype':'I32','shape':[16,8],'data_offsets':[0,512]}}",
     512,
     STATUS_INVALID,
     "m.weight_scale is missing"},
    {"groups of 16",
     {.method = QUANT_COMPRESSED, .bits = 4},
     "{'m.weight_packed':{'dtype':'I32','shape':[16,8],'data_offsets':[0,512]},"
     "'m.weight_scale':{'dtype':'F16','shape':[16,4],'data_offsets':[512,640]}}",
     640,
     STATUS_UNSUPPORTED,
     "4 scales for 64 inputs"},
    {"codes at a loader that quantises",
     {.at_load = QUANT_AT_LOAD_INT8},
     "{'m.weight':{'dtype':'I16','shape':[16,64],'data_offsets':[0,2048]}}",
     2048,
     STATUS_INVALID,
     "m.weight is already I16"},
    {"few in order",
     {.method = QUANT_GPTQ, .bits = 4, .group = 32},
     GPTQ ",'m.g_idx':{'dtype':'I32','shape':[63],'data_offsets':[592,844]}}",
     844,
     STATUS_INVALID,
     "m.g_idx has shape [63]"},
    {"no scale",
     {.method = QUANT_FP8},
     "{'m.weight':{'dtype':'F8_E4M3','shape':[16,64],'data_offsets':[0,1024]}}",
     1024,
     STATUS_INVALID,
     "m.weight_scale is missing"},
    {"scales of integers",
     {.method = QUANT_FP8},
     F8("'m.weight_scale':{'dtype':'I32','shape':[1],'data_offsets':[1024,1028]}"),
     1028,
     STATUS_UNSUPPORTED,
     "m.weight_scale is I32"},
    {"scales of blocks that nobody told",
     {.method = QUANT_FP8},
     F8("'m.weight_scale_inv':{'dtype':'F32','shape':[2,2],'data_offsets':[1024,1040]}"),
     1040,
     STATUS_UNSUPPORTED,
     "has no weight_block_size"},
    {"too few scales",
     {.method = QUANT_FP8, .block_rows = 8, .block_columns = 32},
     F8("'m.weight_scale_inv':{'dtype':'F32','shape':[2,1],'data_offsets':[1024,1032]}"),
     1032,
     STATUS_INVALID,
     "has shape [2, 1], but the model's configuration needs [2, 2]"},
};

/* FP8 experts in one tensor have different scales. A single scale would be wrong for most
 * experts, so the tensor is refused. */
static void fp8_experts_are_refused(void **state)
{
    struct fixture f;
    struct source s;
    struct error err = {0};
    struct op_weight x = matrix();
    const struct quant_config q = {.method = QUANT_FP8};
    x.expert = 1;
    x.n_experts = 2;
    x.part.of_experts = true;
    open_fixture(&f, &q,
                 "{'m.weight':{'dtype':'F8_E4M3','shape':[2,16,64],'data_offsets':[0,2048]},"
                 "'m.weight_scale':{'dtype':'F32','shape':[1],'data_offsets':[2048,2052]}}",
                 2052);
    assert_int_equal(source_find(&f.program, f.weights, &x, &s, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "m.weight: this build does not support FP8 weights"));
    close_fixture(&f);
}

static void what_does_not_fit_is_refused(void **state)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct fixture f;
        struct source s;
        struct error err = {0};
        struct op_weight x = matrix();
        open_fixture(&f, &refused[i].q, refused[i].header, refused[i].n_data);
        enum status got = source_find(&f.program, f.weights, &x, &s, &err);
        if (got != refused[i].want || !strstr(err.text, refused[i].text))
            fail_msg("%s: %s: %s", refused[i].name, status_name(got), err.text);
        close_fixture(&f);
    }
}

/* `source_group` returns the number of a rank's inputs that share a scale, counted from its
 * first input. */
static void groups_of_a_cut(void **state)
{
    static const struct {
        enum source_kind kind;
        enum dtype dtype;
        uint32_t group, first, k_len;
        bool has_order;
        uint32_t want;
    } cases[] = {
        {SOURCE_INT, DTYPE_INT4, 128, 0, 512, false, 128},
        {SOURCE_INT, DTYPE_INT4, 128, 256, 256, false, 128},
        /* the part begins in the middle of a group */
        {SOURCE_INT, DTYPE_INT4, 128, 192, 192, false, 64},
        {SOURCE_INT, DTYPE_INT4, 96, 32, 128, false, 32},
        {SOURCE_INT, DTYPE_INT4, 128, 64, 64, false, 64}, /* the part is within one group */
        {SOURCE_FP8, DTYPE_FP8, 512, 256, 256, false, 256},
        {SOURCE_INT, DTYPE_INT4, 128, 0, 512, true, 0},
        {SOURCE_INT, DTYPE_F32, 128, 0, 512, false, 0}, /* the codes are converted to floats */
        {SOURCE_QUANTISED, DTYPE_FP8, 0, 256, 256, false, 256},
        {SOURCE_QUANTISED, DTYPE_Q4_0, 0, 256, 256, false, 0},
        {SOURCE_MXFP4, DTYPE_MXFP4, 32, 0, 64, false, 0},
        {SOURCE_ROWS, DTYPE_Q4_K, 0, 0, 512, false, 0},
    };
    const struct tensor order = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct source s = {.kind = cases[i].kind,
                           .dtype = cases[i].dtype,
                           .group = cases[i].group,
                           .order = cases[i].has_order ? &order : NULL};
        struct op_weight x = {.k0 = cases[i].first, .k_len = cases[i].k_len};
        assert_int_equal(source_group(&s, &x), cases[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(int4_is_made),
        cmocka_unit_test(rows_do_not_depend_on_their_number),
        cmocka_unit_test(gptq_of_all_widths),
        cmocka_unit_test(compressed_integers),
        cmocka_unit_test(bytes_with_a_scale_of_each_output),
        cmocka_unit_test(groups_of_a_cut),
        cmocka_unit_test(inputs_are_sorted_by_group),
        cmocka_unit_test(codes_are_transposed),
        cmocka_unit_test(fp8_has_the_scale_of_its_place),
        cmocka_unit_test(mxfp4_is_ordered_anew),
        cmocka_unit_test(fp8_experts_are_refused),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
