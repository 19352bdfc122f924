/* Tests the reader of safetensors. The tests write valid and damaged files and open them. A
 * damaged file must be refused with a reason, and an accepted tensor must lie inside the file.
 * COX_WRITE_CORPUS=DIR writes the fuzzer's seeds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/random.h"
#include "common/model/files/safetensors.h"
#include "tests/unit/common/model/put_file.c"
#include "tests/unit/common/model/safetensors_writer.c"

/* `every` has a scalar, empty tensors, a tensor of five dimensions and a tensor of an unknown
 * dtype, not in the order of their data. Blanks pad the JSON, as writers do. */
static const char every[] = "{'__metadata__':{'format':'pt'},"
                            "'none':{'dtype':'F32','shape':[0],'data_offsets':[85,85]},"
                            "'f32':{'dtype':'F32','shape':[2,3],'data_offsets':[0,24]},"
                            "'bf16':{'dtype':'BF16','shape':[3],'data_offsets':[24,30]},"
                            "'f16':{'dtype':'F16','shape':[1,1,1,2],'data_offsets':[30,34]},"
                            "'scalar':{'dtype':'U64','shape':[],'data_offsets':[77,85]},"
                            "'i8':{'dtype':'I8','shape':[1],'data_offsets':[34,35]},"
                            "'i64':{'dtype':'I64','shape':[1],'data_offsets':[35,43]},"
                            "'f64':{'dtype':'F64','shape':[1],'data_offsets':[43,51],'more':[{}]},"
                            "'empty':{'dtype':'F32','shape':[0,7],'data_offsets':[51,51]},"
                            "'five':{'dtype':'F16','shape':[1,1,2,1,2],'data_offsets':[51,59]},"
                            "'odd':{'dtype':'F4','shape':[5],'data_offsets':[59,62]},"
                            "'f8':{'dtype':'F8_E4M3','shape':[15],'data_offsets':[62,77]}}   ";
enum { EVERY_DATA = 85 };

static const struct {
    const char *name;
    enum dtype dtype;
    uint32_t n_dims;
    uint64_t shape[4], offset, n_bytes;
} want_every[] = {
    {"f32", DTYPE_F32, 2, {2, 3, 1, 1}, 0, 24},      {"bf16", DTYPE_BF16, 1, {3, 1, 1, 1}, 24, 6},
    {"f16", DTYPE_F16, 4, {1, 1, 1, 2}, 30, 4},      {"i8", DTYPE_I8, 1, {1, 1, 1, 1}, 34, 1},
    {"i64", DTYPE_I64, 1, {1, 1, 1, 1}, 35, 8},      {"f64", DTYPE_F64, 1, {1, 1, 1, 1}, 43, 8},
    {"empty", DTYPE_F32, 2, {0, 7, 1, 1}, 51, 0},    {"odd", DTYPE_OPAQUE, 1, {5, 1, 1, 1}, 59, 3},
    {"f8", DTYPE_F8_E4M3, 1, {15, 1, 1, 1}, 62, 15}, {"scalar", DTYPE_U64, 0, {1, 1, 1, 1}, 77, 8},
    {"none", DTYPE_F32, 1, {0, 1, 1, 1}, 85, 0},
};
enum { N_EVERY = sizeof want_every / sizeof *want_every };

static void check_every(const struct safetensors *s, size_t n_file)
{
    const uint8_t *data = (const uint8_t *)safetensors_header(s).ptr + safetensors_header(s).len;
    assert_int_equal(safetensors_file_bytes(s), n_file);
    assert_int_equal(safetensors_header(s).len, n_file - EVERY_DATA);
    assert_int_equal(safetensors_n_tensors(s), N_EVERY);
    assert_null(safetensors_tensor_at(s, N_EVERY));
    for (uint64_t i = 0; i < N_EVERY; i++) {
        const struct tensor *t = safetensors_tensor_at(s, i);
        assert_true(str_eq_c(t->name, want_every[i].name));
        assert_int_equal(t->name.ptr[t->name.len], 0);
        assert_int_equal(t->dtype, want_every[i].dtype);
        assert_int_equal(t->n_dims, want_every[i].n_dims);
        assert_memory_equal(t->shape, want_every[i].shape, sizeof t->shape);
        assert_int_equal(t->n_bytes, want_every[i].n_bytes);
        assert_ptr_equal(t->data, data + want_every[i].offset);
        assert_ptr_equal(safetensors_find(s, want_every[i].name), t);
        assert_true(safetensors_holds(s, want_every[i].name));
    }
    assert_null(safetensors_find(s, "five"));
    assert_true(safetensors_holds(s, "five"));
    assert_null(safetensors_find(s, "__metadata__"));
    assert_false(safetensors_holds(s, "f3"));
}

static void test_reads_every_kind(void **state)
{
    struct strbuf b;
    struct safetensors *s;
    struct error err = {0};
    strbuf_init(&b, 0);
    put_safetensors(&b, every, 0, EVERY_DATA);
    if (safetensors_open_memory(b.ptr, b.len, "test", &s, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    check_every(s, b.len);
    safetensors_close(s);
    safetensors_close(NULL);
    strbuf_fini(&b);
}

static void test_no_tensors(void **state)
{
    struct strbuf b;
    struct safetensors *s;
    struct error err;
    strbuf_init(&b, 0);
    put_safetensors(&b, "{}", 0, 0);
    assert_int_equal(safetensors_open_memory(b.ptr, b.len, "test", &s, &err), STATUS_OK);
    assert_int_equal(safetensors_n_tensors(s), 0);
    assert_null(safetensors_find(s, "w"));
    safetensors_close(s);
    strbuf_fini(&b);
}

/* A clone without git-lfs has this text in place of a checkpoint. */
static void test_lfs_pointer(void **state)
{
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\n"
                                  "oid sha256:0123\nsize 2200119668\n";
    struct safetensors *s;
    struct error err = {0};
    assert_int_equal(safetensors_open_memory(pointer, sizeof pointer - 1, "m", &s, &err),
                     STATUS_INVALID);
    assert_non_null(strstr(err.text, "m is only a Git LFS pointer"));
}

/* Every file that is too short or too long is refused. */
static void test_wrong_length(void **state)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    put_safetensors(&b, every, 0, EVERY_DATA + 1);
    for (size_t n = 0; n <= b.len; n++) {
        struct safetensors *s;
        struct error err = {0};
        char *cut = malloc(n ? n : 1);
        memcpy(cut, b.ptr, n);
        enum status want = n == b.len - 1 ? STATUS_OK : STATUS_INVALID;
        assert_int_equal(safetensors_open_memory(cut, n, "cut", &s, &err), want);
        assert_true(want == STATUS_OK ? s != NULL : !s && err.text[0] != '\0');
        safetensors_close(s);
        free(cut);
    }
    strbuf_fini(&b);
}

static void test_flipped_bits(void **state)
{
    struct strbuf b;
    struct rng r = {12};
    int n_good = 0;
    strbuf_init(&b, 0);
    put_safetensors(&b, every, 0, EVERY_DATA);
    char *bad = malloc(b.len);
    for (int i = 0; i < 10000; i++) {
        struct safetensors *s;
        struct error err;
        memcpy(bad, b.ptr, b.len);
        for (uint64_t k = 1 + rng_below(&r, 3); k > 0; k--)
            bad[rng_below(&r, b.len)] ^= (char)(1u << rng_below(&r, 8));
        if (safetensors_open_memory(bad, b.len, "bad", &s, &err) != STATUS_OK)
            continue;
        n_good++; /* the flip changed data, a name, or an ignored part */
        uint64_t at = 0;
        for (uint64_t t = 0; t < safetensors_n_tensors(s); t++) {
            const struct tensor *x = safetensors_tensor_at(s, t);
            uint64_t offset = (uint64_t)(x->data - (const uint8_t *)bad);
            assert_true(offset >= at && offset <= b.len && x->n_bytes <= b.len - offset);
            at = offset + x->n_bytes;
        }
        safetensors_close(s);
    }
    assert_in_range(n_good, 1, 9999);
    free(bad);
    strbuf_fini(&b);
}

#define W(rest) "{'w':{" rest "}}"
static const struct {
    const char *name, *header, *text;
    uint64_t length;
    size_t n_data;
} wrong[] = {
    {"huge_length", "{}", "header of 18446744073709551615", UINT64_MAX, 0},
    {"over_the_limit", "{}", "at most 100000000", 100000001, 0},
    {"length_beyond", "{}", "header of 3 bytes", 3, 0},
    {"empty_header", "", "does not begin", 0, 8},
    {"blank_first", " {}", "does not begin", 0, 0},
    {"list", "[]", "does not begin", 0, 0},
    {"not_json", "{'w':", "not valid JSON at byte", 0, 0},
    {"trailing", "{}{}", "not valid JSON at byte", 0, 0},
    {"nul_in_name", "{'w\\u0000x':{'dtype':'F32','shape':[1],'data_offsets':[0,4]}}",
     "not valid JSON at byte", 0, 4},
    {"twice",
     "{'w':{'dtype':'U8','shape':[1],'data_offsets':[0,1]},"
     "'w':{'dtype':'U8','shape':[1],'data_offsets':[1,2]}}",
     "duplicate", 0, 2},
    {"key_twice", W("'dtype':'U8','dtype':'U8','shape':[1],'data_offsets':[0,1]"), "duplicate", 0,
     1},
    {"no_object", "{'w':[1]}", "tensor w", 0, 0},
    {"no_dtype", W("'shape':[1],'data_offsets':[0,4]"), "tensor w: its dtype", 0, 4},
    {"dtype_number", W("'dtype':0,'shape':[1],'data_offsets':[0,4]"), "tensor w: its dtype", 0, 4},
    {"no_shape", W("'dtype':'F32','data_offsets':[0,4]"), "tensor w: its shape is", 0, 4},
    {"shape_number", W("'dtype':'F32','shape':1,'data_offsets':[0,4]"), "tensor w: its shape is", 0,
     4},
    {"negative_size", W("'dtype':'F32','shape':[-1],'data_offsets':[0,4]"), "not a size", 0, 4},
    {"both_negative", W("'dtype':'F32','shape':[-1,-1],'data_offsets':[0,4]"), "not a size", 0, 4},
    {"real_size", W("'dtype':'F32','shape':[1.0],'data_offsets':[0,4]"), "not a size", 0, 4},
    {"size_too_long", W("'dtype':'F32','shape':[18446744073709551617],'data_offsets':[0,4]"),
     "too big integer", 0, 4},
    {"product_overflows", W("'dtype':'F32','shape':[4294967296,4294967296],'data_offsets':[0,0]"),
     "too many elements", 0, 0},
    {"bytes_overflow", W("'dtype':'F32','shape':[4611686018427387904],'data_offsets':[0,0]"),
     "do not need 0 bytes", 0, 0},
    {"five_overflow", W("'dtype':'F32','shape':[2,2,1,2147483648,4294967296],'data_offsets':[0,0]"),
     "too many elements", 0, 0},
    {"five_size", W("'dtype':'F32','shape':[1,1,1,1,2],'data_offsets':[0,4]"), "do not need 4", 0,
     4},
    {"no_offsets", W("'dtype':'F32','shape':[1]"), "data_offsets", 0, 4},
    {"one_offset", W("'dtype':'F32','shape':[1],'data_offsets':[0]"), "data_offsets", 0, 4},
    {"three_offsets", W("'dtype':'F32','shape':[1],'data_offsets':[0,4,8]"), "data_offsets", 0, 4},
    {"real_offset", W("'dtype':'F32','shape':[1],'data_offsets':[0,4.0]"), "data_offsets", 0, 4},
    {"negative_offset", W("'dtype':'F32','shape':[1],'data_offsets':[-4,0]"), "data_offsets", 0, 4},
    {"backwards", W("'dtype':'F32','shape':[1],'data_offsets':[4,0]"), "data_offsets", 0, 4},
    {"beyond", W("'dtype':'F32','shape':[2],'data_offsets':[0,8]"), "download is complete", 0, 7},
    {"far_beyond",
     W("'dtype':'F32','shape':[1],'data_offsets':[9223372036854775803,9223372036854775807]"),
     "download is complete", 0, 4},
    {"wrong_size", W("'dtype':'F32','shape':[2],'data_offsets':[0,4]"), "2 elements of F32", 0, 4},
    {"wrong_dtype", W("'dtype':'BF16','shape':[1],'data_offsets':[0,4]"), "1 elements of BF16", 0,
     4},
    {"overlap",
     "{'a':{'dtype':'U8','shape':[4],'data_offsets':[0,4]},"
     "'b':{'dtype':'U8','shape':[4],'data_offsets':[3,7]}}",
     "tensor b begins at byte 3, which is inside", 0, 7},
    {"same_place",
     "{'a':{'dtype':'U8','shape':[4],'data_offsets':[0,4]},"
     "'b':{'dtype':'U8','shape':[4],'data_offsets':[0,4]}}",
     "tensor b begins at byte 0, which is inside", 0, 4},
    {"opaque_overlap",
     "{'a':{'dtype':'U8','shape':[4],'data_offsets':[0,4]},"
     "'b':{'dtype':'F4','shape':[4],'data_offsets':[2,6]}}",
     "tensor b begins at byte 2, which is inside", 0, 6},
    {"hole",
     "{'a':{'dtype':'U8','shape':[4],'data_offsets':[0,4]},"
     "'b':{'dtype':'U8','shape':[4],'data_offsets':[5,9]}}",
     "leaves a gap", 0, 9},
    {"hole_first", W("'dtype':'U8','shape':[4],'data_offsets':[1,5]"), "leaves a gap", 0, 5},
    {"more_data", W("'dtype':'U8','shape':[4],'data_offsets':[0,4]"), "use only 4 of them", 0, 5},
};
enum { N_WRONG = sizeof wrong / sizeof *wrong };

static void test_wrong_files(void **state)
{
    for (int i = 0; i < N_WRONG; i++) {
        struct strbuf b;
        struct safetensors *s;
        struct error err = {0};
        strbuf_init(&b, 0);
        put_safetensors(&b, wrong[i].header, wrong[i].length, wrong[i].n_data);
        enum status got = safetensors_open_memory(b.ptr, b.len, "the-file", &s, &err);
        if (got != STATUS_INVALID || !strstr(err.text, wrong[i].text) ||
            !strstr(err.text, "the-file") || s)
            fail_msg("%s: %s: %s", wrong[i].name, status_name(got), err.text);
        strbuf_fini(&b);
    }
}

/* Nested arrays as deep as the header is long are refused by the JSON reader's own limit. */
static void test_deep(void **state)
{
    struct strbuf b;
    struct safetensors *s;
    struct error err = {0};
    enum { DEPTH = 1 << 20 };
    char *header = malloc(DEPTH + 6);
    memcpy(header, "{'w':", 5);
    memset(header + 5, '[', DEPTH);
    header[5 + DEPTH] = '\0';
    strbuf_init(&b, 0);
    put_safetensors(&b, header, 0, 0);
    assert_int_equal(safetensors_open_memory(b.ptr, b.len, "deep", &s, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "depth"));
    free(header);
    strbuf_fini(&b);
}

/* A header with more values than any model has must be refused before the tree takes fifty times
 * the file's size. */
static void test_wide(void **state)
{
    struct strbuf b;
    struct safetensors *s;
    struct error err = {0};
    enum { N = 1 << 22 };
    char *header = malloc(2 * N + 8);
    memcpy(header, "{'w':[", 6);
    for (size_t i = 0; i < N; i++)
        memcpy(header + 6 + 2 * i, "0,", 2);
    memcpy(header + 6 + 2 * N - 1, "]}", 3);
    strbuf_init(&b, 0);
    put_safetensors(&b, header, 0, 0);
    assert_int_equal(safetensors_open_memory(b.ptr, b.len, "wide", &s, &err), STATUS_INVALID);
    assert_string_equal(err.text, "the header of wide has more than 4194304 values, the limit");
    free(header);
    strbuf_fini(&b);
}

static void test_files(void **state)
{
    char path[] = "/tmp/cox-safetensors-test-XXXXXX";
    struct strbuf b;
    struct safetensors *s;
    struct error err;
    FILE *f = fdopen(mkstemp(path), "wb");
    assert_non_null(f);
    strbuf_init(&b, 0);
    put_safetensors(&b, every, 0, EVERY_DATA);
    assert_int_equal(fwrite(b.ptr, 1, b.len, f), b.len);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(safetensors_open(path, &s, &err), STATUS_OK);
    check_every(s, b.len);
    safetensors_close(s);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(safetensors_open(path, &s, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(remove(path), 0);
    assert_int_equal(safetensors_open(path, &s, &err), STATUS_NOT_FOUND);
    assert_int_equal(safetensors_open("/tmp", &s, &err), STATUS_INVALID);
    strbuf_fini(&b);
}

static void write_corpus(const char *dir)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    put_safetensors(&b, every, 0, EVERY_DATA);
    put_file(dir, "every", strbuf_str(&b));
    for (int i = 0; i < N_WRONG; i++) {
        strbuf_reset(&b);
        put_safetensors(&b, wrong[i].header, wrong[i].length, wrong[i].n_data);
        put_file(dir, wrong[i].name, strbuf_str(&b));
    }
    strbuf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_every_kind),
        cmocka_unit_test(test_no_tensors),
        cmocka_unit_test(test_lfs_pointer),
        cmocka_unit_test(test_wrong_length),
        cmocka_unit_test(test_flipped_bits),
        cmocka_unit_test(test_wrong_files),
        cmocka_unit_test(test_deep),
        cmocka_unit_test(test_wide),
        cmocka_unit_test(test_files),
    };
    const char *corpus = getenv("COX_WRITE_CORPUS");
    if (corpus) {
        write_corpus(corpus);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
