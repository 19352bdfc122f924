/* Tests PyTorch checkpoints as a whole: archive, pickle and storages. The tests write
 * checkpoints, damage them, and open them. Parts that do not fit together must be refused, and
 * an accepted tensor must lie inside the file. COX_WRITE_CORPUS=DIR writes the fuzzer's seeds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/random.h"
#include "common/model/files/torch_file.h"
#include "tests/unit/common/model/put_file.c"
#include "tests/unit/common/model/torch_writer.c"

#define LIT(text)                                                                                  \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }
#define F32(key)   P_STORAGE("FloatStorage", key, "\6")
#define MATRIX     P_TUPLE2("\2", "\3") P_TUPLE2("\3", "\1")
#define ONE(value) P_BEGIN P_TEXT1("w") value P_END

/* `every` has a matrix under two names, a part of the matrix, a scalar, an empty tensor, and a
 * tensor of five dimensions. */
static const struct zip_part every[] = {
    {"x/data.pkl",
     LIT(P_BEGIN P_TEXT1("w") P_TENSOR(F32("0"), "\0", P_TUPLE2("\2", "\3"),
                                       P_TUPLE2("\3", "\1")) "q\0" P_TEXT1("t") "h\0" P_TEXT1("p")
             P_TENSOR(F32("0"), "\3", P_TUPLE1("\3"), P_TUPLE1("\1")) P_TEXT1("s")
                 P_TENSOR(P_STORAGE("BFloat16Storage", "1", "\1"), "\0", ")", ")") P_TEXT1("e")
                     P_TENSOR(P_STORAGE("HalfStorage", "2", "\0"), "\0", P_TUPLE2("\0", "\7"),
                              P_TUPLE2("\7", "\1")) P_TEXT1("5")
                         P_TENSOR(F32("0"), "\1", "(K\1K\1K\1K\1K\2t", "(K\2K\2K\2K\2K\1t") P_END)},
    {"x/byteorder", LIT("little")},
    {"x/data/0", LIT("abcdefghijklmnopqrstuvwx")},
    {"x/data/1", LIT("xy")},
    {"x/data/2", LIT("")},
    {"x/version", LIT("3\n")}};
enum { N_EVERY = sizeof every / sizeof *every };

static const struct {
    const char *name;
    enum dtype dtype;
    uint32_t n_dims;
    uint64_t shape[4];
    const char *bytes;
} want_every[] = {
    {"t", DTYPE_F32, 2, {2, 3, 1, 1}, "abcdefghijklmnopqrstuvwx"},
    {"w", DTYPE_F32, 2, {2, 3, 1, 1}, "abcdefghijklmnopqrstuvwx"},
    {"p", DTYPE_F32, 1, {3, 1, 1, 1}, "mnopqrstuvwx"},
    {"s", DTYPE_BF16, 0, {1, 1, 1, 1}, "xy"},
    {"e", DTYPE_F16, 2, {0, 7, 1, 1}, ""},
};

static void check_every(const struct torch_file *f)
{
    assert_int_equal(torch_file_n_tensors(f), 5);
    for (size_t i = 0; i < 5; i++) {
        const struct tensor *t = torch_file_tensor_at(f, i);
        assert_true(str_eq_c(t->name, want_every[i].name) && t->name.ptr[t->name.len] == '\0');
        assert_int_equal(t->dtype, want_every[i].dtype);
        assert_int_equal(t->n_dims, want_every[i].n_dims);
        assert_memory_equal(t->shape, want_every[i].shape, sizeof t->shape);
        assert_int_equal(t->n_bytes, strlen(want_every[i].bytes));
        assert_memory_equal(t->data, want_every[i].bytes, t->n_bytes);
        assert_true(torch_file_holds(f, want_every[i].name));
    }
    assert_null(torch_file_tensor_at(f, 5));
    assert_true(torch_file_holds(f, "5"));
    assert_false(torch_file_holds(f, "x"));
    assert_true(str_eq(torch_file_pickle(f), every[0].data));
}

static void test_reads(void **state)
{
    char path[] = "/tmp/cox-torch-test-XXXXXX";
    struct strbuf b;
    struct torch_file *f;
    struct error err = {0};
    strbuf_init(&b, 0);
    (void)zip_put_archive(&b, every, N_EVERY, false);
    if (torch_file_open_memory(b.ptr, b.len, "x", &f, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    check_every(f);
    assert_true(torch_file_bytes(f).ptr == b.ptr && torch_file_bytes(f).len == b.len);
    torch_file_close(f);
    close(mkstemp(path));
    put_file("/", path, strbuf_str(&b));
    assert_int_equal(torch_file_open(path, &f, &err), STATUS_OK);
    check_every(f);
    torch_file_close(f);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(torch_file_open(path, &f, &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, path));
    torch_file_close(NULL);
    strbuf_fini(&b);
}

#define BYTES24 "abcdefghijklmnopqrstuvwx"
static const struct {
    const char *name;
    struct zip_part parts[3];
    enum status want;
    const char *text;
} wrong[] = {
    {"no_pickle", {{"x/data/0", LIT(BYTES24)}}, STATUS_INVALID, "without data.pkl"},
    {"no_folder", {{"data.pkl", LIT("\x80\2}.")}}, STATUS_INVALID, "without data.pkl"},
    {"script", {{"x/constants.pkl", LIT("")}}, STATUS_UNSUPPORTED, "TorchScript"},
    {"big_endian",
     {{"x/data.pkl", LIT("\x80\2}.")}, {"x/byteorder", LIT("big")}},
     STATUS_UNSUPPORTED,
     "byte order"},
    {"evil",
     {{"x/data.pkl", LIT(ONE("cposix\nsystem\nX\2\0\0\0ls\x85R"))}},
     STATUS_UNSUPPORTED,
     "needs posix.system"},
    {"no_storage",
     {{"x/data.pkl",
       LIT(ONE(P_TENSOR(F32("7"), "\0", P_TUPLE2("\2", "\3"), P_TUPLE2("\3", "\1"))))}},
     STATUS_INVALID,
     "tensor w: its storage data/7 is not in the archive"},
    {"short_storage",
     {{"x/data.pkl",
       LIT(ONE(P_TENSOR(F32("0"), "\0", P_TUPLE2("\2", "\3"), P_TUPLE2("\3", "\1"))))},
      {"x/data/0", LIT("abcdefghijklmnopqrstuvw")}},
     STATUS_INVALID,
     "tensor w: its storage x/data/0 has 23 bytes, which is too few for 6 elements of F32"},
    {"beyond",
     {{"x/data.pkl",
       LIT(ONE(P_TENSOR(F32("0"), "\1", P_TUPLE2("\2", "\3"), P_TUPLE2("\3", "\1"))))},
      {"x/data/0", LIT(BYTES24)}},
     STATUS_INVALID,
     "tensor w ends after the end of its storage (6 elements of F32 from element 1, in 24 bytes)"},
    {"beyond_its_elements",
     {{"x/data.pkl", LIT(ONE(P_TENSOR(P_STORAGE("FloatStorage", "0", "\5"), "\0", P_TUPLE1("\6"),
                                      P_TUPLE1("\1"))))},
      {"x/data/0", LIT(BYTES24)}},
     STATUS_INVALID,
     "tensor w ends after the end of its storage"},
    {"another_dtype",
     {{"x/data.pkl", LIT(ONE(P_TENSOR(P_STORAGE("DoubleStorage", "0", "\6"), "\0", P_TUPLE1("\6"),
                                      P_TUPLE1("\1"))))},
      {"x/data/0", LIT(BYTES24)}},
     STATUS_INVALID,
     "too few for 6 elements of F64"},
    {"first_2_60",
     {{"x/data.pkl", LIT(ONE("ctorch._utils\n_rebuild_tensor_v2\n(" F32(
                         "0") "\x8A\10\0\0\0\0\0\0\0\x10" MATRIX P_HOOKS "tR"))},
      {"x/data/0", LIT(BYTES24)}},
     STATUS_INVALID,
     "tensor w ends after the end of its storage (6 elements of F32 from element "
     "1152921504606846976"},
    {"first_2_62",
     {{"x/data.pkl", LIT(ONE("ctorch._utils\n_rebuild_tensor_v2\n(" F32(
                         "0") "\x8A\10\0\0\0\0\0\0\0\x40" MATRIX P_HOOKS "tR"))},
      {"x/data/0", LIT(BYTES24)}},
     STATUS_INVALID,
     "tensor w ends after the end of its storage"},
    {"size_2_60",
     {{"x/data.pkl",
       LIT(ONE(P_TENSOR(F32("0"), "\0", "\x8A\10\0\0\0\0\0\0\0\x10\x85", P_TUPLE1("\1"))))},
      {"x/data/0", LIT(BYTES24)}},
     STATUS_INVALID,
     "tensor w ends after the end of its storage"},
    {"sizes_2_120",
     {{"x/data.pkl",
       LIT(ONE(P_TENSOR(F32("0"), "\0", "\x8A\10\0\0\0\0\0\0\0\x10\x8A\10\0\0\0\0\0\0\0\x10\x86",
                        P_TUPLE2("\1", "\1"))))},
      {"x/data/0", LIT(BYTES24)}},
     STATUS_INVALID,
     "tensor w: its shape has too many elements for any file"},
    {"storage_2_60",
     {{"x/data.pkl",
       LIT(ONE(
           "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\n" P_TEXT1(
               "0") P_TEXT1("c") "\x8A\10\0\0\0\0\0\0\0\x10tQK\0" MATRIX P_HOOKS "tR"))},
      {"x/data/0", LIT(BYTES24)}},
     STATUS_INVALID,
     "too few for 1152921504606846976 elements"},
    {"transposed",
     {{"x/data.pkl",
       LIT(ONE(P_TENSOR(F32("0"), "\0", P_TUPLE2("\2", "\3"), P_TUPLE2("\1", "\2"))))},
      {"x/data/0", LIT(BYTES24)}},
     STATUS_UNSUPPORTED,
     "tensor w is not contiguous in memory"},
    {"expanded",
     {{"x/data.pkl",
       LIT(ONE(P_TENSOR(F32("0"), "\0", P_TUPLE2("\2", "\3"), P_TUPLE2("\0", "\1"))))},
      {"x/data/0", LIT(BYTES24)}},
     STATUS_UNSUPPORTED,
     "tensor w is not contiguous in memory"},
    {"twice",
     {{"x/data.pkl",
       LIT(P_BEGIN P_TEXT1("w") P_TENSOR(F32("0"), "\0", P_TUPLE1("\1"), P_TUPLE1("\1"))
               P_TEXT1("w") P_TENSOR(F32("0"), "\1", P_TUPLE1("\1"), P_TUPLE1("\1")) P_END)},
      {"x/data/0", LIT(BYTES24)}},
     STATUS_INVALID,
     "contains the tensor w twice"},
};
enum { N_WRONG = sizeof wrong / sizeof *wrong };

static size_t n_parts(const struct zip_part *p)
{
    size_t n = 0;
    while (n < 3 && p[n].name)
        n++;
    return n;
}

static void test_wrong(void **state)
{
    for (size_t i = 0; i < N_WRONG; i++) {
        struct strbuf b;
        struct torch_file *f;
        struct error err = {0};
        strbuf_init(&b, 0);
        (void)zip_put_archive(&b, wrong[i].parts, n_parts(wrong[i].parts), i % 2 == 0);
        enum status got = torch_file_open_memory(b.ptr, b.len, "the-file", &f, &err);
        if (got != wrong[i].want || !strstr(err.text, wrong[i].text) ||
            !strstr(err.text, "the-file") || f)
            fail_msg("%s: %s: %s", wrong[i].name, status_name(got), err.text);
        strbuf_fini(&b);
    }
}

static void test_other_files(void **state)
{
    static const struct {
        struct str bytes;
        enum status want;
        const char *text;
    } cases[] = {
        {LIT(""), STATUS_INVALID, "is not a PyTorch checkpoint (0 bytes)"},
        {LIT("{}"), STATUS_INVALID, "is not a PyTorch checkpoint"},
        {LIT("version https://git-lfs.github.com/spec/v1\n"), STATUS_INVALID, "is not a PyTorch"},
        {LIT("\x80\2\x8A\nl\xFC\x9C"
             "F\xF9 j\xA8P\31.\x80\2M\xE9\3."),
         STATUS_UNSUPPORTED, "of PyTorch before 1.6"},
        {LIT("PK\3\4"), STATUS_INVALID, "Check that the download is complete"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct torch_file *f;
        struct error err = {0};
        enum status got =
            torch_file_open_memory(cases[i].bytes.ptr, cases[i].bytes.len, "f", &f, &err);
        if (got != cases[i].want || !strstr(err.text, cases[i].text) || f)
            fail_msg("%zu: %s: %s", i, status_name(got), err.text);
    }
}

/* After bits were flipped, every tensor of a file that still opens must lie inside the file. */
static void test_flipped_bits(void **state)
{
    struct rng r = {33};
    struct strbuf b;
    int n_good = 0;
    strbuf_init(&b, 0);
    (void)zip_put_archive(&b, every, N_EVERY, true);
    char *bad = malloc(b.len);
    for (int i = 0; i < 20000; i++) {
        struct torch_file *f;
        struct error err = {0};
        memcpy(bad, b.ptr, b.len);
        for (uint64_t k = 1 + rng_below(&r, 3); k > 0; k--)
            bad[rng_below(&r, b.len)] ^= (char)(1u << rng_below(&r, 8));
        if (torch_file_open_memory(bad, b.len, "bad", &f, &err) != STATUS_OK) {
            assert_true(!f && strstr(err.text, "bad"));
            continue;
        }
        n_good++; /* the flip changed data, a name, or an ignored part */
        for (uint64_t t = 0; t < torch_file_n_tensors(f); t++) {
            const struct tensor *x = torch_file_tensor_at(f, t);
            uint64_t offset = (uint64_t)(x->data - (const uint8_t *)bad);
            assert_true(offset <= b.len && x->n_bytes <= b.len - offset);
        }
        torch_file_close(f);
    }
    assert_in_range(n_good, 1, 19999);
    free(bad);
    strbuf_fini(&b);
}

static void write_corpus(const char *dir)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    (void)zip_put_archive(&b, every, N_EVERY, false);
    put_file(dir, "every", strbuf_str(&b));
    strbuf_reset(&b);
    (void)zip_put_archive(&b, every, N_EVERY, true);
    put_file(dir, "every_64", strbuf_str(&b));
    for (int i = 0; i < N_WRONG; i++) {
        strbuf_reset(&b);
        (void)zip_put_archive(&b, wrong[i].parts, n_parts(wrong[i].parts), i % 2 == 0);
        put_file(dir, wrong[i].name, strbuf_str(&b));
    }
    strbuf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads),
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_other_files),
        cmocka_unit_test(test_flipped_bits),
    };
    const char *corpus = getenv("COX_WRITE_CORPUS");
    if (corpus) {
        write_corpus(corpus);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
