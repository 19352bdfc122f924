/* Tests how a model's tensors are found, in a GGUF and in every layout of a folder, hostile ones
 * too. The tests write files into a temporary folder, open it and compare the names and offsets
 * of tensors. The tests also check the identity that distinguishes two models. A tensor must lie
 * inside its file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/model/weights/weights.h"
#include "tests/unit/common/model/gguf_writer.c"
#include "tests/unit/common/model/put_file.c"
#include "tests/unit/common/model/safetensors_writer.c"
#include "tests/unit/common/model/torch_writer.c"

enum { MAX_FILES = 5 };
static char dir[64];

/* `file` describes one file to write. `text` is a safetensors header, followed by n_data bytes.
 * With n_data -1, `text` is the whole file, with ' for ". With n_data -2, `text` holds the
 * letters that name a PyTorch file's tensors. */
struct file {
    const char *name, *text;
    int n_data;
};

static void write_files(const struct file *files)
{
    for (int i = 0; i < MAX_FILES && files[i].name; i++) {
        struct strbuf b;
        strbuf_init(&b, 0);
        if (files[i].n_data == -2)
            put_torch(&b, files[i].text);
        else
            put_safetensors(&b, files[i].text, 0,
                            files[i].n_data > 0 ? (size_t)files[i].n_data : 0);
        size_t skip = files[i].n_data == -1 ? 8 : 0;
        put_file(dir, files[i].name, (struct str){b.ptr + skip, b.len - skip});
        strbuf_fini(&b);
    }
}

static void remove_files(const struct file *files)
{
    for (int i = 0; i < MAX_FILES && files[i].name; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", dir, files[i].name);
        assert_int_equal(unlink(path), 0);
    }
}

static int setup(void **state)
{
    snprintf(dir, sizeof dir, "/tmp/cox-weights-test-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    return rmdir(dir);
}

#define CONFIG                                                                                     \
    {                                                                                              \
        "config.json", "{}", -1                                                                    \
    }
#define INDEX       "model.safetensors.index.json"
#define TORCH_INDEX "pytorch_model.bin.index.json"
#define ONE(name, begin, end)                                                                      \
    "'" name "':{'dtype':'U8','shape':[4],'data_offsets':[" #begin "," #end "]}"
#define MAP(text) "{'metadata':{'total_size':1},'weight_map':{" text "}}"
#define A_B       "{" ONE("a", 0, 4) "," ONE("b", 4, 8) "}", 8

static const struct {
    const char *name;
    struct file files[MAX_FILES];
    /* tensors in order, each with the offset of its first byte in its file's data */
    const char *tensors;
} good[] = {
    {"one file", {CONFIG, {"model.safetensors", A_B}}, "a0 b4 "},
    {"one file before an index and others",
     {CONFIG, {"model.safetensors", A_B}, {INDEX, "[", -1}, {"more.safetensors", A_B}},
     "a0 b4 "},
    {"an index",
     {CONFIG,
      {INDEX, MAP("'c':'2.safetensors','a':'1.safetensors','b':'2.safetensors'"), -1},
      {"1.safetensors", A_B},
      {"2.safetensors", "{" ONE("b", 0, 4) "," ONE("a", 4, 8) "," ONE("c", 8, 12) "}", 12}},
     "a0 b0 c8 "},
    {"all files, sorted",
     {CONFIG,
      {"2.safetensors", "{" ONE("c", 0, 4) "}", 4},
      {"1.safetensors", A_B},
      {".3.safetensors", "junk", -1},
      {"more.bin", "junk", -1}},
     "a0 b4 c0 "},
    {"five dimensions, named by the index",
     {CONFIG,
      {INDEX, MAP("'a':'1.safetensors','five':'1.safetensors'"), -1},
      {"1.safetensors",
       "{" ONE("a", 0, 4) ",'five':{'dtype':'U8','shape':[1,1,1,1,1],'data_offsets':[4,5]}}", 5}},
     "a0 "},
    {"one file of PyTorch's", {CONFIG, {"pytorch_model.bin", "abc", -2}}, "a0 b4 c8 "},
    {"one file of PyTorch's before an index and others",
     {CONFIG,
      {"pytorch_model.bin", "ab", -2},
      {TORCH_INDEX, "[", -1},
      {"more.bin", "c", -2},
      {"x.pt", "d", -2}},
     "a0 b4 "},
    {"an index of PyTorch's",
     {CONFIG,
      {TORCH_INDEX, MAP("'c':'2.bin','a':'1.bin','b':'2.bin'"), -1},
      {"1.bin", "ab", -2},
      {"2.bin", "bac", -2}},
     "a0 b0 c8 "},
    {"all of PyTorch's but what trainers leave",
     {CONFIG,
      {"2.bin", "c", -2},
      {"1.bin", "ab", -2},
      {"training_args.bin", "junk", -1},
      {"x.pt", "junk", -1}},
     "a0 b4 c0 "},
    {"consolidated.pth",
     {CONFIG, {"consolidated.00.pth", "ab", -2}, {"optimizer.pt", "junk", -1}},
     "a0 b4 "},
    {"a name that says so before others",
     {CONFIG, {"pytorch_model.bin", "ab", -2}, {"adapter.safetensors", "{" ONE("x", 0, 4) "}", 4}},
     "a0 b4 "},
    {"safetensors before PyTorch's, by name",
     {CONFIG, {"model.safetensors", A_B}, {"pytorch_model.bin", "xy", -2}},
     "a0 b4 "},
    {"safetensors before PyTorch's",
     {CONFIG, {"one.bin", "xy", -2}, {"one.safetensors", A_B}},
     "a0 b4 "},
};

static void test_folders(void **state)
{
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct model_info m = {.format = MODEL_HF, .path = dir, .name = dir};
        struct weights *w;
        struct error err = {0};
        struct strbuf got;
        strbuf_init(&got, 0);
        write_files(good[i].files);
        if (weights_open(&m, &w, &err) != STATUS_OK)
            fail_msg("%s: %s", good[i].name, err.text);
        for (uint64_t k = 0; k < weights_n_tensors(w); k++) {
            const struct tensor *t = weights_tensor_at(w, k);
            assert_ptr_equal(weights_find(w, t->name.ptr), t);
            strbuf_printf(&got, STR_FMT "%d ", STR_ARG(t->name), (t->data[0] - 1) / 7);
        }
        assert_string_equal(got.ptr, good[i].tensors);
        assert_null(weights_tensor_at(w, weights_n_tensors(w)));
        assert_null(weights_find(w, "five"));
        assert_null(weights_find(w, ""));
        weights_close(w);
        remove_files(good[i].files);
        strbuf_fini(&got);
    }
}

static const struct {
    const char *name;
    struct file files[MAX_FILES];
    enum status want;
    const char *text;
} bad[] = {
    {"no config", {{"model.safetensors", A_B}}, STATUS_NOT_FOUND, "config.json"},
    {"nothing", {CONFIG}, STATUS_NOT_FOUND, "contains no weights: no model.safetensors"},
    {"junk", {CONFIG, {"pytorch_model.bin", "x", -1}}, STATUS_INVALID, "/pytorch_model.bin is not"},
    {"of an old PyTorch",
     {CONFIG, {"pytorch_model.bin", "\x80\2\x8A\nl", -1}},
     STATUS_UNSUPPORTED,
     "/pytorch_model.bin has the file format of PyTorch before 1.6"},
    {"only what trainers leave",
     {CONFIG, {"training_args.bin", "x", -1}},
     STATUS_NOT_FOUND,
     "no other .safetensors file and no PyTorch file such as pytorch_model.bin"},
    {"two of PyTorch's have it",
     {CONFIG, {"1.bin", "ab", -2}, {"2.bin", "cb", -2}},
     STATUS_INVALID,
     "contain the tensor b"},
    {"PyTorch's index is no JSON",
     {CONFIG, {TORCH_INDEX, "{", -1}, {"1.bin", "a", -2}},
     STATUS_INVALID,
     TORCH_INDEX},
    {"PyTorch's index: up",
     {CONFIG, {TORCH_INDEX, MAP("'a':'../1.bin'"), -1}},
     STATUS_INVALID,
     "must be the name of a .bin file in the same folder"},
    {"PyTorch's index: no safetensors",
     {CONFIG, {TORCH_INDEX, MAP("'a':'1.safetensors'"), -1}, {"1.bin", "a", -2}},
     STATUS_INVALID,
     "must be the name of a .bin file in the same folder"},
    {"PyTorch's index: a missing file",
     {CONFIG, {TORCH_INDEX, MAP("'a':'1.bin','c':'2.bin'"), -1}, {"1.bin", "a", -2}},
     STATUS_NOT_FOUND,
     "/2.bin"},
    {"PyTorch's index: not in the file",
     {CONFIG, {TORCH_INDEX, MAP("'a':'1.bin','c':'1.bin'"), -1}, {"1.bin", "ab", -2}},
     STATUS_INVALID,
     "1.bin does not contain the tensor c, although " TORCH_INDEX " says that it does"},
    {"broken file", {CONFIG, {"model.safetensors", "{}", 3}}, STATUS_INVALID, "model.safetensors"},
    {"empty file", {CONFIG, {"model.safetensors", "{}", 0}}, STATUS_NOT_FOUND, "no tensors"},
    {"two have it",
     {CONFIG, {"1.safetensors", A_B}, {"2.safetensors", A_B}},
     STATUS_INVALID,
     "contain the tensor a"},
    {"index is no JSON", {CONFIG, {INDEX, "{", -1}}, STATUS_INVALID, INDEX},
    {"no map", {CONFIG, {INDEX, "{}", -1}}, STATUS_INVALID, "weight_map"},
    {"map is a list", {CONFIG, {INDEX, "{'weight_map':[]}", -1}}, STATUS_INVALID, "weight_map"},
    {"empty map", {CONFIG, {INDEX, MAP(""), -1}}, STATUS_NOT_FOUND, "names no files"},
    {"a number",
     {CONFIG, {INDEX, MAP("'a':1"), -1}},
     STATUS_INVALID,
     "the tensor a is not a string"},
    {"up",
     {CONFIG, {INDEX, MAP("'a':'../x.safetensors'"), -1}},
     STATUS_INVALID,
     "in the same folder"},
    {"up, inside",
     {CONFIG, {INDEX, MAP("'a':'x/../../y.safetensors'"), -1}},
     STATUS_INVALID,
     "in the same folder"},
    {"absolute",
     {CONFIG, {INDEX, MAP("'a':'/x.safetensors'"), -1}},
     STATUS_INVALID,
     "in the same folder"},
    {"below",
     {CONFIG, {INDEX, MAP("'a':'x/y.safetensors'"), -1}},
     STATUS_INVALID,
     "in the same folder"},
    {"another kind",
     {CONFIG, {INDEX, MAP("'a':'config.json'"), -1}},
     STATUS_INVALID,
     "in the same folder"},
    {"hidden",
     {CONFIG, {INDEX, MAP("'a':'.x.safetensors'"), -1}},
     STATUS_INVALID,
     "in the same folder"},
    {"no name", {CONFIG, {INDEX, MAP("'a':''"), -1}}, STATUS_INVALID, "in the same folder"},
    {"NUL",
     {CONFIG, {INDEX, MAP("'a':'1.safetensors\\u0000.safetensors'"), -1}},
     STATUS_INVALID,
     INDEX},
    {"missing file",
     {CONFIG, {INDEX, MAP("'a':'1.safetensors','c':'2.safetensors'"), -1}, {"1.safetensors", A_B}},
     STATUS_NOT_FOUND,
     "/2.safetensors"},
    {"not in the file",
     {CONFIG, {INDEX, MAP("'a':'1.safetensors','c':'1.safetensors'"), -1}, {"1.safetensors", A_B}},
     STATUS_INVALID,
     "1.safetensors does not contain the tensor c"},
};

static void test_folders_refused(void **state)
{
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct model_info m = {.format = MODEL_HF, .path = dir, .name = dir};
        struct weights *w;
        struct error err = {0};
        write_files(bad[i].files);
        enum status got = weights_open(&m, &w, &err);
        if (got != bad[i].want || !strstr(err.text, bad[i].text) || !strstr(err.text, dir) || w)
            fail_msg("%s: %s: %s", bad[i].name, status_name(got), err.text);
        remove_files(bad[i].files);
    }
}

/* With `--load-format` the same folder must give the files of the requested format. */
static void test_kinds(void **state)
{
    static const struct file both[MAX_FILES] = {
        CONFIG, {"model.safetensors", A_B}, {"pytorch_model.bin", "xy", -2}};
    static const struct file one[MAX_FILES] = {CONFIG, {"model.safetensors", A_B}};
    static const struct {
        const struct file *files;
        enum weights_kind kind;
        const char *first; /* first tensor of the opened model; NULL = refused */
    } cases[] = {{both, WEIGHTS_ANY, "a"},
                 {both, WEIGHTS_SAFETENSORS, "a"},
                 {both, WEIGHTS_TORCH, "x"},
                 {one, WEIGHTS_SAFETENSORS, "a"},
                 {one, WEIGHTS_TORCH, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_info m = {.format = MODEL_HF, .path = dir, .name = dir};
        struct weights *w;
        struct error err = {0};
        write_files(cases[i].files);
        enum status s = weights_open_kind(&m, cases[i].kind, &w, &err);
        assert_int_equal(s, cases[i].first ? STATUS_OK : STATUS_NOT_FOUND);
        assert_true(s == STATUS_OK ? weights_find(w, cases[i].first) != NULL
                                   : strstr(err.text, "no weights in pytorch_model.bin") != NULL);
        weights_close(w);
        remove_files(cases[i].files);
    }
}

static enum status open_gguf(const struct strbuf *b, struct weights **w, struct error *err)
{
    char path[128];
    snprintf(path, sizeof path, "%s/x.gguf", dir);
    put_file(dir, "x.gguf", strbuf_str(b));
    struct model_info m = {.format = MODEL_GGUF, .path = path, .name = path};
    enum status s = weights_open(&m, w, err);
    assert_int_equal(unlink(path), 0);
    return s;
}

static void test_gguf(void **state)
{
    struct strbuf b;
    struct weights *w;
    struct error err = {0};
    strbuf_init(&b, 0);
    put_header(&b, 3, 2, 0);
    put_tensor(&b, "b", DTYPE_F32, 3, 2, 0);
    put_tensor(&b, "a", DTYPE_Q4_K, 512, 3, 32);
    put_padding(&b, 32);
    put_data(&b, 32 + 6 * 144);
    if (open_gguf(&b, &w, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    const struct tensor *t = weights_find(w, "a");
    static const uint64_t want[] = {3, 512, 1, 1};
    assert_int_equal(weights_n_tensors(w), 2);
    assert_int_equal(weights_file_bytes(w), b.len);
    assert_ptr_equal(weights_tensor_at(w, 1), t);
    assert_memory_equal(t->shape, want, sizeof want);
    assert_true(t->dtype == DTYPE_Q4_K && t->n_dims == 2 && t->n_bytes == 6 * 144);
    assert_memory_equal(t->data, b.ptr + b.len - t->n_bytes, t->n_bytes);
    assert_null(weights_find(w, "c"));
    weights_close(w);
    strbuf_fini(&b);
}

static void test_gguf_refused(void **state)
{
    static const struct {
        uint64_t n_tensors;
        uint32_t n_files;
        enum status want;
        const char *text;
    } cases[] = {
        {1, 3, STATUS_INVALID, "one of 3 parts"},
        {1, 1, STATUS_OK, ""},
        {1, 0, STATUS_OK, ""},
        {1, 65536, STATUS_INVALID, "split.count"},
        {0, 1, STATUS_NOT_FOUND, "no tensors"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct strbuf b;
        struct weights *w;
        struct error err = {0};
        strbuf_init(&b, 0);
        put_header(&b, 3, cases[i].n_tensors, 1);
        put_kv_u32(&b, "split.count", cases[i].n_files);
        if (cases[i].n_tensors)
            put_tensor(&b, "w", DTYPE_F32, 1, 1, 0);
        put_padding(&b, 32);
        put_data(&b, 32);
        enum status got = open_gguf(&b, &w, &err);
        if (got != cases[i].want || !strstr(err.text, cases[i].text))
            fail_msg("%zu: %s: %s", i, status_name(got), err.text);
        weights_close(w);
        strbuf_fini(&b);
    }
    struct model_info null = {.format = MODEL_NULL, .path = "null", .name = "null"};
    struct weights *w;
    assert_int_equal(weights_open(&null, &w, NULL), STATUS_UNSUPPORTED);
    weights_close(NULL);
}

/* Computes the identity of a model with one tensor of 16 KiB. Byte `flip` of its data is
 * changed, and `config` is the text of config.json. */
static void identity(const char *config, int flip, uint8_t out[16])
{
    enum { N = 16384 };
    struct file files[] = {{"config.json", config, -1}, {"model.safetensors", "", 0}, {0}};
    struct model_info m = {.format = MODEL_HF, .path = dir, .name = dir};
    struct weights *w;
    struct error err = {0};
    struct strbuf b;
    write_files(files);
    strbuf_init(&b, 0);
    put_safetensors(&b, "{'w':{'dtype':'U8','shape':[16384],'data_offsets':[0,16384]}}", 0, N);
    if (flip >= 0)
        b.ptr[b.len - N + (size_t)flip] ^= 1;
    put_file(dir, "model.safetensors", strbuf_str(&b));
    if (weights_open(&m, &w, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    weights_identity(w, out);
    weights_close(w);
    strbuf_fini(&b);
    remove_files(files);
}

static void test_identity(void **state)
{
    static const struct {
        const char *config;
        int flip;
        bool same;
    } cases[] = {
        {"{}", -1, true},    {"{ }", -1, false},   {"{}", 0, false},     {"{}", 4095, false},
        {"{}", 8192, false}, {"{}", 16383, false}, {"{}", 12288, false}, {"{}", 4096, true},
        {"{}", 12287, true}, /* byte 12287 is between the pages that the identity reads */
    };
    uint8_t first[16], other[16];
    identity("{}", -1, first);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        identity(cases[i].config, cases[i].flip, other);
        if ((memcmp(first, other, 16) == 0) != cases[i].same)
            fail_msg("case %zu", i);
    }
}

/* A different file with the same tensors is another model. */
static void test_identity_of_torch(void **state)
{
    static const char *const letters[] = {"ab", "ab", "ba", "abc"};
    uint8_t first[16], other[16];
    for (size_t i = 0; i < 4; i++) {
        struct file files[] = {CONFIG, {"pytorch_model.bin", letters[i], -2}, {0}};
        struct model_info m = {.format = MODEL_HF, .path = dir, .name = dir};
        struct weights *w;
        struct error err = {0};
        write_files(files);
        if (weights_open(&m, &w, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        weights_done(w, weights_tensor_at(w, 0)->data, 4);
        weights_identity(w, i == 0 ? first : other);
        if (i > 0)
            assert_true((memcmp(first, other, 16) == 0) == (i == 1));
        weights_close(w);
        remove_files(files);
    }
}

static size_t resident_pages(const uint8_t *page, size_t n_pages)
{
    char line[256];
    size_t kib = 0;
    bool here = false;
    FILE *f = fopen("/proc/self/smaps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        unsigned long begin, end;
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
            here = begin <= (uintptr_t)page && (uintptr_t)page < end;
        else if (here)
            sscanf(line, "Rss: %zu", &kib);
    }
    fclose(f);
    return kib / 4;
}

/* The whole pages of the range are released, and the pages at its ends stay. Every page can be
 * read again. */
static void test_done(void **state)
{
    struct strbuf b;
    struct weights *w;
    struct error err = {0};
    enum { N = 64 * 4096 };
    uint64_t sum = 0, again = 0;
    if (sysconf(_SC_PAGESIZE) != 4096)
        skip();
    strbuf_init(&b, 0);
    put_header(&b, 3, 1, 0);
    put_tensor(&b, "w", DTYPE_F32, N / 4, 1, 0);
    put_padding(&b, 32);
    put_data(&b, N);
    assert_int_equal(open_gguf(&b, &w, &err), STATUS_OK);
    const struct tensor *t = weights_find(w, "w");
    for (size_t i = 0; i < N; i++)
        sum += t->data[i];
    assert_int_equal(resident_pages(t->data, 64), 65);
    weights_done(w, t->data + 100, 50);
    assert_int_equal(resident_pages(t->data, 64), 65);
    weights_done(w, t->data, N);
    assert_int_equal(resident_pages(t->data, 64), 2);
    for (size_t i = 0; i < N; i++)
        again += t->data[i];
    assert_int_equal(sum, again);
    weights_close(w);
    strbuf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_folders, setup, teardown),
        cmocka_unit_test_setup_teardown(test_folders_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kinds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gguf, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gguf_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_identity, setup, teardown),
        cmocka_unit_test_setup_teardown(test_identity_of_torch, setup, teardown),
        cmocka_unit_test_setup_teardown(test_done, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
