/* Tests the reader of GGUF files with values of every type, and with every kind of wrong file.
 * Each case writes a file byte by byte and opens it. A wrong file must be refused with a reason,
 * and an accepted tensor must lie inside the file. COX_WRITE_CORPUS=DIR writes the fuzzer's
 * seeds. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/random.h"
#include "common/model/gguf/values.h"
#include "tests/unit/common/model/gguf_writer.c"
#include "tests/unit/common/model/put_file.c"

static enum status open_buf(const struct strbuf *b, struct gguf **g, struct error *err)
{
    return gguf_open_memory(b->ptr, b->len, "test.gguf", g, err);
}

static void put_every_type(struct strbuf *b, uint32_t version)
{
    static const int16_t i16s[] = {-2, 300};
    float f = -1.5f;
    double d = 2.25;
    put_header(b, version, 2, 16);
    put_key(b, "u8", GGUF_U8), put_bytes(b, "\xFF", 1);
    put_key(b, "i8", GGUF_I8), put_bytes(b, "\xFF", 1);
    put_key(b, "u16", GGUF_U16), put_bytes(b, "\x34\x12", 2);
    put_key(b, "i16", GGUF_I16), put_bytes(b, "\xFE\xFF", 2);
    put_key(b, "u32", GGUF_U32), put_u32(b, UINT32_MAX);
    put_key(b, "i32", GGUF_I32), put_u32(b, (uint32_t)-7);
    put_key(b, "f32", GGUF_F32), put_bytes(b, &f, sizeof f);
    put_key(b, "bool", GGUF_BOOL), put_bytes(b, "\x01", 1);
    put_kv_str(b, "string", "h\xC3\xA9");
    put_key(b, "u64", GGUF_U64), put_u64(b, UINT64_MAX);
    put_key(b, "i64", GGUF_I64), put_u64(b, (uint64_t)INT64_MIN);
    put_key(b, "f64", GGUF_F64), put_bytes(b, &d, sizeof d);
    put_kv_strs(b, "strings", writer_tokens, 6);
    put_key(b, "i16s", GGUF_ARRAY), put_u32(b, GGUF_I16), put_u64(b, 2), put_bytes(b, i16s, 4);
    put_key(b, "none", GGUF_ARRAY), put_u32(b, GGUF_F32), put_u64(b, 0);
    put_kv_u32(b, "general.alignment", 64);
    put_tensor(b, "b", DTYPE_F32, 3, 2, 0);
    put_tensor(b, "a", DTYPE_Q4_K, 256, 3, 64);
    put_padding(b, 64);
    put_data(b, 64 + 3 * 144);
}

static void check_values(const struct gguf *g)
{
    uint64_t u;
    double d;
    bool flag;
    struct str s;
    struct error err;
    assert_int_equal(gguf_n_values(g), 16);
    assert_true(str_eq_c(gguf_value_at(g, 0)->key, "u8"));
    assert_null(gguf_value_at(g, 16));
    static const struct {
        const char *key;
        enum status want;
        uint64_t value;
    } cases[] = {
        {"u8", STATUS_OK, 255},         {"u16", STATUS_OK, 0x1234},
        {"u32", STATUS_OK, UINT32_MAX}, {"u64", STATUS_OK, UINT64_MAX},
        {"i8", STATUS_INVALID, 0},      {"i64", STATUS_INVALID, 0},
        {"f32", STATUS_INVALID, 0},     {"string", STATUS_INVALID, 0},
        {"nope", STATUS_NOT_FOUND, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum status got = gguf_get_u64(g, cases[i].key, 0, UINT64_MAX, &u, &err);
        if (got != cases[i].want || (got == STATUS_OK && u != cases[i].value))
            fail_msg("%s: %s", cases[i].key, status_name(got));
    }
    assert_int_equal(gguf_get_u64(g, "u16", 0, 100, &u, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "u16"));
    assert_int_equal(gguf_get_f64(g, "f32", &d, &err), STATUS_OK);
    assert_true(d == -1.5);
    assert_int_equal(gguf_get_f64(g, "f64", &d, &err), STATUS_OK);
    assert_true(d == 2.25);
    assert_int_equal(gguf_get_f64(g, "i32", &d, &err), STATUS_OK);
    assert_true(d == -7);
    assert_int_equal(gguf_get_bool(g, "bool", &flag, &err), STATUS_OK);
    assert_true(flag);
    assert_int_equal(gguf_get_str(g, "string", &s, &err), STATUS_OK);
    assert_true(str_eq_c(s, "h\xC3\xA9"));
}

static void check_arrays(const struct gguf *g)
{
    struct gguf_array a;
    struct error err;
    const uint8_t *cursor = NULL;
    struct str s;
    int n = 0;
    assert_int_equal(gguf_get_array(g, "strings", GGUF_U32, &a, &err), STATUS_INVALID);
    assert_int_equal(gguf_get_array(g, "strings", GGUF_STRING, &a, &err), STATUS_OK);
    while (gguf_array_next_str(&a, &cursor, &s))
        assert_true(str_eq_c(s, writer_tokens[n++]));
    assert_int_equal(n, 6);
    assert_int_equal(gguf_array_u64(&a, 0), 0);
    assert_int_equal(gguf_get_array(g, "i16s", GGUF_I16, &a, &err), STATUS_OK);
    assert_int_equal((int64_t)gguf_array_u64(&a, 0), -2);
    assert_int_equal(gguf_array_u64(&a, 1), 300);
    assert_int_equal(gguf_array_u64(&a, 2), 0);
    assert_int_equal(gguf_get_array(g, "none", GGUF_F32, &a, &err), STATUS_OK);
    assert_int_equal(a.n, 0);
    cursor = NULL;
    assert_false(gguf_array_next_str(&a, &cursor, &s));
}

static void test_reads_every_type(void **state)
{
    for (uint32_t version = 2; version <= 3; version++) {
        struct strbuf b;
        struct gguf *g;
        struct error err = {0};
        strbuf_init(&b, 0);
        put_every_type(&b, version);
        if (open_buf(&b, &g, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        assert_int_equal(gguf_file_bytes(g), b.len);
        assert_ptr_equal(gguf_header(g).ptr, b.ptr);
        assert_int_equal((gguf_header(g).len + 63) / 64 * 64, b.len - 64 - 3 * 144);
        check_values(g);
        check_arrays(g);
        const struct gguf_tensor *t = gguf_find_tensor(g, "a");
        assert_int_equal(gguf_n_tensors(g), 2);
        assert_true(str_eq_c(gguf_tensor_at(g, 0)->name, "b"));
        assert_int_equal(gguf_tensor_at(g, 0)->n_bytes, 24);
        assert_true(t->dtype == DTYPE_Q4_K && t->n_dims == 2 && t->shape[0] == 256 &&
                    t->shape[1] == 3 && t->shape[2] == 1);
        assert_int_equal(t->n_bytes, 3 * 144);
        assert_int_equal(t->offset % 64, 0);
        assert_ptr_equal(t->data, (const uint8_t *)b.ptr + t->offset);
        assert_int_equal(t->offset + t->n_bytes, b.len);
        assert_null(gguf_find_tensor(g, "c"));
        gguf_close(g);
        strbuf_fini(&b);
    }
}

/* Every shorter file is refused, because its tables, strings or last tensor do not fit. */
static void test_truncated(void **state)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    put_every_type(&b, 3);
    for (size_t n = 0; n < b.len; n++) {
        struct gguf *g;
        struct error err = {0};
        char *cut = malloc(n ? n : 1);
        memcpy(cut, b.ptr, n);
        assert_int_equal(gguf_open_memory(cut, n, "cut", &g, &err), STATUS_INVALID);
        assert_null(g);
        assert_true(err.text[0] != '\0');
        free(cut);
    }
    strbuf_fini(&b);
}

static void test_flipped_bits(void **state)
{
    struct strbuf b;
    struct rng r = {11};
    strbuf_init(&b, 0);
    put_every_type(&b, 3);
    char *bad = malloc(b.len);
    for (int i = 0; i < 20000; i++) {
        struct gguf *g;
        struct error err;
        memcpy(bad, b.ptr, b.len);
        for (uint64_t k = 1 + rng_below(&r, 3); k > 0; k--)
            bad[rng_below(&r, b.len)] ^= (char)(1u << rng_below(&r, 8));
        if (gguf_open_memory(bad, b.len, "bad", &g, &err) != STATUS_OK)
            continue;
        for (uint64_t t = 0; t < gguf_n_tensors(g); t++) {
            const struct gguf_tensor *x = gguf_tensor_at(g, t);
            assert_true(x->offset <= b.len && x->n_bytes <= b.len - x->offset);
        }
        gguf_close(g);
    }
    free(bad);
    strbuf_fini(&b);
}

/* CASE begins a test that builds one wrong file. The error must name the fault. */
#define CASE(name) static void name(struct strbuf *b)
CASE(wrong_magic)
{
    put_bytes(b, "GGML", 4);
    put_data(b, 60);
}
CASE(version_1)
{
    put_header(b, 1, 0, 0);
}
CASE(big_endian)
{
    put_header(b, 3u << 24, 0, 0);
}
CASE(many_values)
{
    put_header(b, 3, 0, UINT64_MAX);
}
CASE(many_tensors)
{
    put_header(b, 3, 1ull << 60, 0);
    put_data(b, 100);
}
CASE(long_string)
{
    put_header(b, 3, 0, 1);
    put_key(b, "k", GGUF_STRING);
    put_u64(b, UINT64_MAX - 3);
    put_data(b, 64);
}
CASE(unknown_type)
{
    put_header(b, 3, 0, 1);
    put_key(b, "some.key", 77);
    put_u64(b, 0);
}
CASE(nested_array)
{
    put_header(b, 3, 0, 1);
    put_key(b, "some.key", GGUF_ARRAY);
    put_u32(b, GGUF_ARRAY);
    put_u64(b, 1);
}
CASE(huge_array)
{
    put_header(b, 3, 0, 1);
    put_key(b, "some.key", GGUF_ARRAY);
    put_u32(b, GGUF_F64);
    put_u64(b, 1ull << 61); /* multiplied by 8 the number wraps to 0 */
}
CASE(long_array)
{
    put_header(b, 3, 0, 1);
    put_key(b, "some.key", GGUF_ARRAY);
    put_u32(b, GGUF_U32);
    put_u64(b, 1000);
    put_data(b, 100);
}
CASE(odd_bool)
{
    put_header(b, 3, 0, 1);
    put_key(b, "some.key", GGUF_BOOL);
    put_bytes(b, "\x02", 1);
}
CASE(same_key)
{
    put_header(b, 3, 0, 3);
    put_kv_u32(b, "some.key", 1);
    put_kv_u32(b, "other", 1);
    put_kv_u32(b, "some.key", 2);
}
CASE(same_tensor)
{
    put_header(b, 3, 2, 0);
    put_tensor(b, "w", DTYPE_F32, 1, 1, 0);
    put_tensor(b, "w", DTYPE_F32, 1, 1, 0);
    put_data(b, 64);
}
CASE(alignment_no_power)
{
    put_header(b, 3, 0, 1);
    put_kv_u32(b, "general.alignment", 48);
}
CASE(alignment_zero)
{
    put_header(b, 3, 0, 1);
    put_kv_u32(b, "general.alignment", 0);
}
CASE(alignment_string)
{
    put_header(b, 3, 0, 1);
    put_kv_str(b, "general.alignment", "32");
}
CASE(no_dims)
{
    put_header(b, 3, 1, 0);
    put_str(b, "w");
    put_u32(b, 0);
    put_data(b, 64);
}
CASE(five_dims)
{
    put_header(b, 3, 1, 0);
    put_str(b, "w");
    put_u32(b, 5);
    put_data(b, 64);
}
CASE(zero_dim)
{
    put_header(b, 3, 1, 0);
    put_tensor(b, "w", DTYPE_F32, 4, 0, 0);
    put_data(b, 64);
}
CASE(product_overflows)
{
    put_header(b, 3, 1, 0);
    /* the tensor would take 4 * 2^64 bytes */
    put_tensor(b, "w", DTYPE_F32, 1ull << 33, 1ull << 31, 0);
    put_data(b, 64);
}
CASE(half_block)
{
    put_header(b, 3, 1, 0);
    put_tensor(b, "w", DTYPE_Q4_K, 128, 2, 0);
    put_data(b, 256);
}
CASE(unsupported_dtype)
{
    put_header(b, 3, 1, 0);
    put_tensor(b, "w", 16, 256, 1, 0);
    put_data(b, 256);
}
CASE(unknown_dtype)
{
    put_header(b, 3, 1, 0);
    put_tensor(b, "w", 4000000000u, 256, 1, 0);
    put_data(b, 256);
}
CASE(safetensors_dtype)
{
    put_header(b, 3, 1, 0);
    put_tensor(b, "w", DTYPE_U8, 256, 1, 0);
    put_data(b, 256);
}
CASE(offset_unaligned)
{
    put_header(b, 3, 1, 0);
    put_tensor(b, "w", DTYPE_F32, 1, 1, 4);
    put_data(b, 256);
}
CASE(offset_beyond)
{
    put_header(b, 3, 1, 0);
    put_tensor(b, "w", DTYPE_F32, 1, 1, UINT64_MAX - 31);
    put_data(b, 256);
}
CASE(overlap)
{
    put_header(b, 3, 3, 0);
    put_tensor(b, "last", DTYPE_F32, 16, 1, 96);
    put_tensor(b, "first", DTYPE_F32, 16, 1, 0);
    put_tensor(b, "inside", DTYPE_F32, 16, 1, 32);
    put_data(b, 256);
}
CASE(data_short)
{
    put_header(b, 3, 1, 0);
    put_tensor(b, "w", DTYPE_F32, 64, 2, 0);
    put_padding(b, 32);
    put_data(b, 511);
}

static const struct {
    const char *name;
    void (*make)(struct strbuf *b);
    enum status want;
    const char *text;
} wrong[] = {
    {"wrong_magic", wrong_magic, STATUS_INVALID, "not a GGUF"},
    {"version_1", version_1, STATUS_UNSUPPORTED, "version 1"},
    {"big_endian", big_endian, STATUS_UNSUPPORTED, "big-endian"},
    {"many_values", many_values, STATUS_INVALID, "metadata entries"},
    {"many_tensors", many_tensors, STATUS_INVALID, "tensors"},
    {"long_string", long_string, STATUS_INVALID, "string"},
    {"unknown_type", unknown_type, STATUS_INVALID, "some.key"},
    {"nested_array", nested_array, STATUS_UNSUPPORTED, "array of arrays"},
    {"huge_array", huge_array, STATUS_INVALID, "some.key"},
    {"long_array", long_array, STATUS_INVALID, "ends in the middle"},
    {"odd_bool", odd_bool, STATUS_INVALID, "some.key"},
    {"same_key", same_key, STATUS_INVALID, "some.key twice"},
    {"same_tensor", same_tensor, STATUS_INVALID, "tensor w twice"},
    {"alignment_no_power", alignment_no_power, STATUS_INVALID, "48"},
    {"alignment_zero", alignment_zero, STATUS_INVALID, "general.alignment"},
    {"alignment_string", alignment_string, STATUS_INVALID, "general.alignment"},
    {"no_dims", no_dims, STATUS_INVALID, "0 dimensions"},
    {"five_dims", five_dims, STATUS_INVALID, "5 dimensions"},
    {"zero_dim", zero_dim, STATUS_INVALID, "shape"},
    {"product_overflows", product_overflows, STATUS_INVALID, "shape"},
    {"half_block", half_block, STATUS_INVALID, "Q4_K"},
    {"unsupported_dtype", unsupported_dtype, STATUS_UNSUPPORTED, "IQ2_XXS"},
    {"unknown_dtype", unknown_dtype, STATUS_UNSUPPORTED, "4000000000"},
    {"safetensors_dtype", safetensors_dtype, STATUS_UNSUPPORTED, "unknown (65)"},
    {"offset_unaligned", offset_unaligned, STATUS_INVALID, "not a multiple of the alignment"},
    {"offset_beyond", offset_beyond, STATUS_INVALID, "after the end of the file"},
    {"overlap", overlap, STATUS_INVALID, "the tensors first and inside overlap"},
    {"data_short", data_short, STATUS_INVALID, "after the end of the file"},
};
enum { N_WRONG = sizeof wrong / sizeof *wrong };

static void test_wrong_files(void **state)
{
    for (int i = 0; i < N_WRONG; i++) {
        struct strbuf b;
        struct gguf *g;
        struct error err = {0};
        strbuf_init(&b, 0);
        wrong[i].make(&b);
        enum status got = open_buf(&b, &g, &err);
        if (got != wrong[i].want || !strstr(err.text, wrong[i].text))
            fail_msg("%s: %s: %s", wrong[i].name, status_name(got), err.text);
        strbuf_fini(&b);
    }
}

static void test_files(void **state)
{
    char path[] = "/tmp/cox-gguf-test-XXXXXX";
    struct strbuf b;
    struct gguf *g;
    struct error err;
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "wb");
    assert_non_null(f);
    strbuf_init(&b, 0);
    put_every_type(&b, 3);
    assert_int_equal(fwrite(b.ptr, 1, b.len, f), b.len);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(gguf_open(path, &g, &err), STATUS_OK);
    assert_string_equal(gguf_path(g), path);
    check_values(g);
    gguf_close(g);
    assert_int_equal(remove(path), 0);
    assert_int_equal(gguf_open(path, &g, &err), STATUS_NOT_FOUND);
    assert_int_equal(gguf_open("/tmp", &g, &err), STATUS_INVALID);
    gguf_close(NULL);
    strbuf_fini(&b);
}

static void test_dtype_sizes(void **state)
{
    static const struct {
        uint32_t id;
        uint64_t row, rows;
        bool ok;
        uint64_t bytes;
    } cases[] = {
        {DTYPE_F32, 3, 2, true, 24},          {DTYPE_BF16, 5, 1, true, 10},
        {DTYPE_Q4_0, 64, 2, true, 72},        {DTYPE_Q4_1, 32, 1, true, 20},
        {DTYPE_Q5_0, 32, 1, true, 22},        {DTYPE_Q5_1, 32, 1, true, 24},
        {DTYPE_Q8_0, 32, 1, true, 34},        {DTYPE_Q2_K, 256, 1, true, 84},
        {DTYPE_Q3_K, 256, 1, true, 110},      {DTYPE_Q4_K, 512, 1, true, 288},
        {DTYPE_Q5_K, 256, 1, true, 176},      {DTYPE_Q6_K, 256, 1, true, 210},
        {DTYPE_IQ4_NL, 32, 1, true, 18},      {DTYPE_MXFP4, 64, 1, true, 34},
        {DTYPE_Q4_0, 33, 1, false, 0},        {17, 256, 1, false, 0},
        {DTYPE_COUNT, 256, 1, false, 0},      {4, 32, 1, false, 0},
        {DTYPE_F64, 1ull << 62, 1, false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t bytes = 0;
        assert_int_equal(dtype_bytes(cases[i].id, cases[i].row, cases[i].rows, &bytes),
                         cases[i].ok);
        if (cases[i].ok)
            assert_int_equal(bytes, cases[i].bytes);
    }
    assert_string_equal(dtype_traits(5).name, "unknown");
}

static void write_corpus(const char *dir)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    put_every_type(&b, 3);
    put_file(dir, "every_type", strbuf_str(&b));
    strbuf_reset(&b);
    put_tiny_model(&b, "gemma3", 100, 1, 8);
    put_file(dir, "tiny_model", strbuf_str(&b));
    for (int i = 0; i < N_WRONG; i++) {
        strbuf_reset(&b);
        wrong[i].make(&b);
        put_file(dir, wrong[i].name, strbuf_str(&b));
    }
    strbuf_fini(&b);
}

int main(void)
{
    const char *corpus = getenv("COX_WRITE_CORPUS");
    if (corpus)
        write_corpus(corpus);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_every_type),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_flipped_bits),
        cmocka_unit_test(test_wrong_files),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_dtype_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
