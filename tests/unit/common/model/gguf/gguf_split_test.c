/* Tests a GGUF in several files. The tests write parts into a folder and open the model from the
 * folder or from any part. The parts are one model only when all of them are there and belong
 * together, and errors name the missing or wrong part. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/model/info/open.h"
#include "common/model/info/ref.h"
#include "common/model/weights/weights.h"
#include "tests/unit/common/model/gguf_writer.c"
#include "tests/unit/common/model/put_file.c"

enum { MAX_PARTS = 4, NO_KEY = -1 };
static char dir[64];

/* `part` describes one file. `letters` are the names of its tensors, each a row of eight F32.
 * `cut` is the number of bytes that are missing at the end. */
struct part {
    const char *name;
    int no, count, all;
    const char *letters;
    size_t cut;
};

static void put_split_key(struct strbuf *b, const char *key, uint32_t type, int value)
{
    put_key(b, key, type);
    put_bytes(b, &value, type == GGUF_U16 ? 2 : 4);
}

static void write_part(const struct part *p)
{
    struct strbuf b;
    bool is_first = p->no <= 0;
    size_t n = strlen(p->letters);
    strbuf_init(&b, 0);
    put_header(&b, 3, n,
               (is_first ? 3 : 0) + (p->no != NO_KEY) + (p->count != NO_KEY) + (p->all != NO_KEY));
    if (is_first) {
        put_kv_str(&b, "general.architecture", "llama");
        put_kv_u32(&b, "llama.context_length", 64);
        put_kv_strs(&b, "tokenizer.ggml.tokens", writer_tokens, 6);
    }
    if (p->no != NO_KEY)
        put_split_key(&b, "split.no", GGUF_U16, p->no);
    if (p->count != NO_KEY)
        put_split_key(&b, "split.count", GGUF_U16, p->count);
    if (p->all != NO_KEY)
        put_split_key(&b, "split.tensors.count", GGUF_I32, p->all);
    for (size_t i = 0; i < n; i++) {
        const char name[] = {p->letters[i], '\0'};
        put_tensor(&b, name, DTYPE_F32, 8, 1, 32 * i);
    }
    put_padding(&b, 32);
    for (size_t i = 0; i < 32 * n; i++)
        put_bytes(&b, &p->letters[i / 32], 1);
    put_file(dir, p->name, (struct str){b.ptr, b.len - p->cut});
    strbuf_fini(&b);
}

static void write_parts(const struct part *parts)
{
    for (int i = 0; i < MAX_PARTS && parts[i].name; i++)
        write_part(&parts[i]);
}

static void remove_parts(const struct part *parts)
{
    for (int i = 0; i < MAX_PARTS && parts[i].name; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", dir, parts[i].name);
        assert_int_equal(unlink(path), 0);
    }
}

static int setup(void **state)
{
    snprintf(dir, sizeof dir, "/tmp/cox-split-test-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    return rmdir(dir);
}

static enum status open_both(const char *path, struct model_info *m, struct weights **w,
                             struct error *err)
{
    *w = NULL;
    TRY(model_info_open(path, NULL, m, err));
    return weights_open(m, w, err);
}

static const struct part whole[MAX_PARTS] = {{"m-00001-of-00003.gguf", 0, 3, 4, "b", 0},
                                             {"m-00002-of-00003.gguf", 1, 3, 4, "da", 0},
                                             {"m-00003-of-00003.gguf", 2, 3, 4, "c", 0}};
/* `bare` has parts as gguf-split --no-tensor-first-split makes them: the first has no tensors. */
static const struct part bare[MAX_PARTS] = {{"m-00001-of-00002.gguf", 0, 2, 2, "", 0},
                                            {"m-00002-of-00002.gguf", 1, 2, 2, "ab", 0}};
static const struct part single[MAX_PARTS] = {{"m-00001-of-00001.gguf", 0, 1, 2, "ab", 0}};

static void test_opens(void **state)
{
    static const struct {
        const struct part *parts;
        const char *name, *first, *tensors; /* names of the tensors, in order */
    } cases[] = {
        {whole, "", "m-00001-of-00003.gguf", "bdac"},
        {whole, "/m-00001-of-00003.gguf", "m-00001-of-00003.gguf", "bdac"},
        {whole, "/m-00003-of-00003.gguf", "m-00001-of-00003.gguf", "bdac"},
        {bare, "", "m-00001-of-00002.gguf", "ab"},
        {bare, "/m-00002-of-00002.gguf", "m-00001-of-00002.gguf", "ab"},
        {single, "", "m-00001-of-00001.gguf", "ab"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[256];
        struct model_info m;
        struct weights *w;
        struct error err = {0};
        uint64_t n_bytes = 0;
        write_parts(cases[i].parts);
        snprintf(path, sizeof path, "%s%s", dir, cases[i].name);
        if (open_both(path, &m, &w, &err) != STATUS_OK)
            fail_msg("%zu: %s", i, err.text);
        assert_string_equal(m.name, cases[i].name[0] ? "m" : dir + strlen("/tmp/"));
        assert_int_equal(m.format, MODEL_GGUF);
        snprintf(path, sizeof path, "%s/%s", dir, cases[i].first);
        assert_string_equal(m.path, path);
        assert_string_equal(m.tokenizer_path, path);
        assert_int_equal(weights_n_tensors(w), strlen(cases[i].tensors));
        for (uint64_t k = 0; k < weights_n_tensors(w); k++) {
            const char name[] = {cases[i].tensors[k], '\0'};
            const struct tensor *t = weights_tensor_at(w, k);
            assert_ptr_equal(weights_find(w, name), t);
            assert_int_equal(t->data[0], name[0]);
            assert_int_equal(t->data[31], name[0]);
            weights_done(w, t->data, t->n_bytes);
        }
        for (int k = 0; k < MAX_PARTS && cases[i].parts[k].name; k++) {
            struct stat st;
            snprintf(path, sizeof path, "%s/%s", dir, cases[i].parts[k].name);
            assert_int_equal(stat(path, &st), 0);
            n_bytes += (uint64_t)st.st_size;
        }
        assert_int_equal(weights_file_bytes(w), n_bytes);
        weights_close(w);
        model_info_fini(&m);
        remove_parts(cases[i].parts);
    }
}

/* A different header in one part makes another model. Another folder does not. */
static void test_identity(void **state)
{
    static const struct part other[MAX_PARTS] = {{"m-00001-of-00003.gguf", 0, 3, 4, "b", 0},
                                                 {"m-00002-of-00003.gguf", 1, 3, 4, "da", 0},
                                                 {"m-00003-of-00003.gguf", 2, 3, 4, "e", 0}};
    const struct part *const models[] = {whole, whole, other};
    uint8_t identity[3][16];
    for (size_t i = 0; i < 3; i++) {
        struct model_info m;
        struct weights *w;
        struct error err = {0};
        write_parts(models[i]);
        assert_int_equal(open_both(dir, &m, &w, &err), STATUS_OK);
        weights_identity(w, identity[i]);
        weights_close(w);
        model_info_fini(&m);
        remove_parts(models[i]);
    }
    assert_memory_equal(identity[0], identity[1], 16);
    assert_memory_not_equal(identity[0], identity[2], 16);
}

static const struct {
    const char *name, *open;
    struct part parts[MAX_PARTS];
    enum status want;
    const char *text;
} bad[] = {
    {"no second",
     "/m-00001-of-00002.gguf",
     {{"m-00001-of-00002.gguf", 0, 2, 2, "a", 0}},
     STATUS_INVALID,
     "/m-00002-of-00002.gguf is missing; it is part 2 of 2"},
    {"no first",
     "/m-00002-of-00002.gguf",
     {{"m-00002-of-00002.gguf", 1, 2, 2, "a", 0}},
     STATUS_NOT_FOUND,
     "/m-00001-of-00002.gguf: No such file"},
    {"no first, from its folder",
     "",
     {{"m-00002-of-00002.gguf", 1, 2, 2, "a", 0}},
     STATUS_NOT_FOUND,
     "/m-00001-of-00002.gguf: No such file"},
    {"the same part again",
     "",
     {{"m-00001-of-00002.gguf", 0, 2, 2, "a", 0}, {"m-00002-of-00002.gguf", 0, 2, 2, "b", 0}},
     STATUS_INVALID,
     "/m-00002-of-00002.gguf must be part 2 of 2 with 2 tensors in total, but says that it is "
     "part 1 of 2 with 2"},
    {"the second is first",
     "",
     {{"m-00001-of-00002.gguf", 1, 2, 2, "a", 0}, {"m-00002-of-00002.gguf", 0, 2, 2, "b", 0}},
     STATUS_INVALID,
     "must be part 1 of 2 with 2 tensors in total, but says that it is part 2"},
    {"of another split",
     "",
     {{"m-00001-of-00002.gguf", 0, 2, 2, "a", 0}, {"m-00002-of-00002.gguf", 1, 3, 2, "b", 0}},
     STATUS_INVALID,
     "part 2 of 3 with 2"},
    {"of another model",
     "",
     {{"m-00001-of-00002.gguf", 0, 2, 2, "a", 0}, {"m-00002-of-00002.gguf", 1, 2, 3, "b", 0}},
     STATUS_INVALID,
     "part 2 of 2 with 3"},
    {"no part at all",
     "",
     {{"m-00001-of-00002.gguf", 0, 2, 2, "a", 0},
      {"m-00002-of-00002.gguf", NO_KEY, NO_KEY, NO_KEY, "b", 0}},
     STATUS_INVALID,
     "part 0 of 0"},
    {"one tensor in two",
     "",
     {{"m-00001-of-00002.gguf", 0, 2, 3, "ab", 0}, {"m-00002-of-00002.gguf", 1, 2, 3, "a", 0}},
     STATUS_INVALID,
     "/m-00002-of-00002.gguf both contain the tensor a"},
    {"a tensor is missing",
     "",
     {{"m-00001-of-00002.gguf", 0, 2, 3, "a", 0}, {"m-00002-of-00002.gguf", 1, 2, 3, "b", 0}},
     STATUS_INVALID,
     "the 2 parts have 2 tensors, but split.tensors.count is 3"},
    {"cut short",
     "",
     {{"m-00001-of-00002.gguf", 0, 2, 2, "a", 0}, {"m-00002-of-00002.gguf", 1, 2, 2, "b", 1}},
     STATUS_INVALID,
     "/m-00002-of-00002.gguf: tensor b ends after the end of the file"},
    {"another name",
     "",
     {{"m.gguf", 0, 2, 2, "a", 0}},
     STATUS_INVALID,
     "/m.gguf is one of 2 parts, but its name does not end in -00001-of-00002.gguf"},
    {"a name of another split",
     "",
     {{"m-00001-of-00003.gguf", 0, 2, 2, "a", 0}},
     STATUS_INVALID,
     "does not end in -00001-of-00002.gguf"},
    {"60000 parts",
     "",
     {{"m-00001-of-60000.gguf", 0, 60000, 2, "a", 0}},
     STATUS_LIMIT,
     "one of 60000 parts"},
    {"two models",
     "",
     {{"m.gguf", NO_KEY, NO_KEY, NO_KEY, "a", 0}, {"n.gguf", NO_KEY, NO_KEY, NO_KEY, "a", 0}},
     STATUS_INVALID,
     "contains more than one model (m.gguf and n.gguf)"},
    {"a whole one beside its split",
     "",
     {{"m.gguf", NO_KEY, NO_KEY, NO_KEY, "ab", 0},
      {"m-00001-of-00002.gguf", 0, 2, 2, "a", 0},
      {"m-00002-of-00002.gguf", 1, 2, 2, "b", 0}},
     STATUS_INVALID,
     "m.gguf). Give the path of one file"},
    {"two splits",
     "",
     {{"m-00001-of-00002.gguf", 0, 2, 3, "a", 0}, {"m-00001-of-00003.gguf", 0, 3, 3, "a", 0}},
     STATUS_INVALID,
     "more than one model (m-00001-of-00002.gguf and m-00001-of-00003.gguf). Give the path"},
    {"no model", "", {{"m.txt", NO_KEY, NO_KEY, NO_KEY, "a", 0}}, STATUS_NOT_FOUND, "config.json"},
};

static void test_refused(void **state)
{
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char path[256];
        struct model_info m;
        struct weights *w;
        struct error err = {0};
        write_parts(bad[i].parts);
        snprintf(path, sizeof path, "%s%s", dir, bad[i].open);
        enum status got = open_both(path, &m, &w, &err);
        if (got != bad[i].want || !strstr(err.text, bad[i].text) || !strstr(err.text, dir) || w)
            fail_msg("%s: %s: %s", bad[i].name, status_name(got), err.text);
        model_info_fini(&m);
        remove_parts(bad[i].parts);
    }
}

/* A download cache has links whose names are right and whose files have other names. The model
 * must open. */
static void test_links(void **state)
{
    static const struct part blobs[MAX_PARTS] = {{"f00d", 0, 2, 2, "a", 0},
                                                 {"beef", 1, 2, 2, "b", 0}};
    static const char *const links[] = {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"};
    char path[256];
    struct model_info m;
    struct weights *w;
    struct error err = {0};
    write_parts(blobs);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, links[i]);
        assert_int_equal(symlink(blobs[i].name, path), 0);
    }
    if (open_both(path, &m, &w, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(weights_n_tensors(w), 2);
    assert_string_equal(m.name, "m");
    weights_close(w);
    model_info_fini(&m);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, links[i]);
        assert_int_equal(unlink(path), 0);
    }
    remove_parts(blobs);
}

static void test_names(void **state)
{
    static const struct {
        const char *path, *name;
    } cases[] = {
        {"/a/b/Model-Q4.gguf", "Model-Q4"},
        {"Model", "Model"},
        {"/a/Model/", "Model"},
        {"x-00001-of-00002.gguf", "x"},
        {"/a/x-00002-of-00001.gguf", "x-00002-of-00001"},
        {"x-00001-of-00002", "x-00001-of-00002"},
        {"-00001-of-00002.gguf", "-00001-of-00002"},
        {"x-0001-of-00002.gguf", "x-0001-of-00002"},
        {"x-00000-of-00002.gguf", "x-00000-of-00002"},
        {".gguf", ".gguf"},
        {"/", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!str_eq_c(model_name_of(cases[i].path), cases[i].name))
            fail_msg("%s: " STR_FMT, cases[i].path, STR_ARG(model_name_of(cases[i].path)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_opens, setup, teardown),
        cmocka_unit_test_setup_teardown(test_identity, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_links, setup, teardown),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
