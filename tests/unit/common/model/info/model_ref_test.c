/* Tests references to models: the kind, source and folder of each, and the refused ones.
 * `model_ref_parse` reads a text into a `struct model_ref`. Two models must never share a
 * folder, and a folder's name must never leave its parent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/model/info/ref.h"

#define HEX64       "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define HEX64_LARGE "0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF"

struct good {
    const char *text;
    enum model_ref_kind kind;
    const char *spelling, *name;
};

static void test_good(void **state)
{
    static const struct good cases[] = {
        {"null", MODEL_REF_NULL, "null", "null"},
        {"demo", MODEL_REF_DEMO, "demo", "demo"},
        {"demo-base", MODEL_REF_DEMO, "demo-base", "demo-base"},
        {"demo-", MODEL_REF_PATH, "demo-", "demo-"},
        {"/a/b.gguf", MODEL_REF_PATH, "/a/b.gguf", "b"},
        {"folder", MODEL_REF_PATH, "folder", "folder"},
        {"./org/name", MODEL_REF_PATH, "./org/name", "name"},
        {"../name", MODEL_REF_PATH, "../name", "name"},
        {"a/b/c", MODEL_REF_PATH, "a/b/c", "c"},
        {"a/b.gguf", MODEL_REF_PATH, "a/b.gguf", "b"},
        {"/a\nb", MODEL_REF_PATH, "/a\nb", "a\nb"},
        {"file:/a/b.gguf", MODEL_REF_PATH, "/a/b.gguf", "b"},
        {"file:///a/b", MODEL_REF_PATH, "/a/b", "b"},
        {"file:a/b", MODEL_REF_PATH, "a/b", "b"},
        {"org/name", MODEL_REF_HUB, "hf:org/name@main", "org/name"},
        {"org/name@v1.0", MODEL_REF_HUB, "hf:org/name@v1.0", "org/name"},
        {"hf:org/name", MODEL_REF_HUB, "hf:org/name@main", "org/name"},
        {"hf:gpt2", MODEL_REF_HUB, "hf:gpt2@main", "gpt2"},
        {"hf:o/n@refs/pr/1", MODEL_REF_HUB, "hf:o/n@refs/pr/1", "o/n"},
        {"hf:o/n/q4/m-00001-of-00002.gguf@abc", MODEL_REF_HUB,
         "hf:o/n/q4/m-00001-of-00002.gguf@abc", "m"},
        {"https://huggingface.co/org/name", MODEL_REF_HUB, "hf:org/name@main", "org/name"},
        {"https://hf.co/org/name/", MODEL_REF_HUB, "hf:org/name@main", "org/name"},
        {"https://huggingface.co/org/name.git", MODEL_REF_HUB, "hf:org/name@main", "org/name"},
        {"https://huggingface.co/org/name?a=b#c", MODEL_REF_HUB, "hf:org/name@main", "org/name"},
        {"https://huggingface.co/org/name@v1", MODEL_REF_HUB, "hf:org/name@v1", "org/name"},
        {"https://huggingface.co/o/n/tree/refs/pr/1", MODEL_REF_HUB, "hf:o/n@refs/pr/1", "o/n"},
        {"https://huggingface.co/o/n/blob/v1/q4/m.gguf", MODEL_REF_HUB, "hf:o/n/q4/m.gguf@v1", "m"},
        {"https://huggingface.co/o/n/resolve/main/m.gguf", MODEL_REF_URL,
         "https://huggingface.co/o/n/resolve/main/m.gguf", "m"},
        {"https://h/x/m.gguf", MODEL_REF_URL, "https://h/x/m.gguf", "m"},
        {"https://h:8443/m.gguf#sha256=" HEX64_LARGE, MODEL_REF_URL, "https://h:8443/m.gguf", "m"},
        {"http://h/m.gguf?sig=SECRET#sha256=" HEX64, MODEL_REF_URL, "http://h/m.gguf", "m"},
        {"s3://bucket", MODEL_REF_S3, "s3://bucket", "bucket"},
        {"s3://bucket/", MODEL_REF_S3, "s3://bucket", "bucket"},
        {"s3://bucket/a/b c/", MODEL_REF_S3, "s3://bucket/a/b c", "b c"},
        {"s3://bucket/a/m.gguf", MODEL_REF_S3, "s3://bucket/a/m.gguf", "m"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct good *c = &cases[i];
        struct model_ref r;
        struct error err = {0};
        if (model_ref_parse(c->text, &r, &err) != STATUS_OK)
            fail_msg("%s: %s", c->text, err.text);
        if (r.kind != c->kind || strcmp(r.text, c->spelling) != 0 || strcmp(r.name, c->name) != 0)
            fail_msg("%s: kind %d, \"%s\", name \"%s\"", c->text, r.kind, r.text, r.name);
        assert_int_equal(model_ref_is_remote(&r), r.folder != NULL);
        if (r.folder)
            assert_true(model_ref_name_is_safe(r.folder));
        model_ref_fini(&r);
    }
}

static void test_bad(void **state)
{
    static const char *const cases[] = {
        "",
        "file:",
        "file://host/a",
        "hf:",
        "hf:/n",
        "hf:o/",
        "hf:o/n/",
        "hf:o/n/x.bin",
        "hf:o/n/../x.gguf",
        "hf:o/n/.gguf",
        "hf:o/n//x.gguf",
        "hf:../n",
        "hf:o/..",
        "hf:o/n@",
        "hf:o/n@a..b",
        "hf:o/n@/a",
        "hf:o/n@a//b",
        "hf:o/n@a b",
        "hf:o n/m",
        "hf:-o/n",
        "hf:o/n\n",
        "hf:o/n/a\x1b[2Jb.gguf",
        "hf:o/n/\xff.gguf",
        "https://",
        "https://h",
        "https:///m.gguf",
        "https://h/",
        "https://h/.gguf",
        "https://h/m.bin",
        "https://h/org/name",
        "https://huggingface.co/",
        "https://huggingface.co/name",
        "https://huggingface.co/../name",
        "https://huggingface.co/o/..",
        "https://huggingface.co//n",
        "https://huggingface.co/o/n/tree/",
        "https://huggingface.co/o/n/tree/..",
        "https://huggingface.co/o/n/blob/main/README.md",
        "https://huggingface.co/o/n/blob/main/../x.gguf",
        "https://huggingface.co/o/n/blob/main/.gguf",
        "https://huggingface.co/o/n/blob//x.gguf",
        "https://huggingface.co.example/o/n",
        "http://huggingface.co/o/n",
        "https://u:p@h/m.gguf",
        "https://u@h/m.gguf",
        "https://h/m.gguf#md5=1",
        "https://h/m.gguf#sha256=12",
        "https://h/m.gguf?sig=SECRET",
        "https://h/a b.gguf",
        "http://h/m.gguf",
        "https://h/m.gguf\r\nX: 1",
        "s3://",
        "s3://ab",
        "s3://../a",
        "s3://bucket//a",
        "s3://bucket/../a",
        "s3://bucket/a/../../b",
        "s3://bucket/a\tb",
        "s3://b cket/a",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_ref r;
        struct error err = {0};
        if (model_ref_parse(cases[i], &r, &err) != STATUS_INVALID)
            fail_msg("%s is taken", cases[i]);
        assert_null(r.text);
        assert_int_not_equal(err.text[0], 0);
        assert_null(strstr(err.text, "SECRET"));
    }
    char *large = mem_zalloc(MODEL_REF_MAX_BYTES + 64);
    memset(large, 'a', MODEL_REF_MAX_BYTES + 8);
    memcpy(large, "s3://", 5);
    struct model_ref r;
    struct error err = {0};
    assert_int_equal(model_ref_parse(large, &r, &err), STATUS_INVALID);
    mem_free(large);
}

static char *folder_of(const char *text)
{
    struct model_ref r;
    struct error err = {0};
    assert_int_equal(model_ref_parse(text, &r, &err), STATUS_OK);
    char *out = mem_strdup(r.folder);
    model_ref_fini(&r);
    return out;
}

/* All spellings of one model give one folder. References that differ in any other character have
 * different folders. */
static void test_folders(void **state)
{
    static const char *const texts[] = {
        "hf:o/n",           "hf:o/n@v1",        "hf:O/n",
        "hf:o-n",           "hf:o/n/m.gguf",    "hf:o/n/q/m.gguf",
        "https://h/m.gguf", "https://g/m.gguf", ("https://h/m.gguf#sha256=" HEX64),
        "s3://bucket/o/n",  "s3://bucket/o-n",
    };
    enum { N = sizeof texts / sizeof *texts };
    char *folders[N];
    for (size_t i = 0; i < N; i++) {
        folders[i] = folder_of(texts[i]);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(folders[i], folders[j]);
    }
    static const char *const same[][2] = {
        {"o/n", "hf:o/n@main"},
        {"s3://bucket/a/", "s3://bucket/a"},
        {"https://h/m.gguf?a=1#sha256=" HEX64, "https://h/m.gguf?a=2#sha256=" HEX64_LARGE},
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        char *a = folder_of(same[i][0]), *b = folder_of(same[i][1]);
        assert_string_equal(a, b);
        mem_free(a);
        mem_free(b);
    }
    for (size_t i = 0; i < N; i++)
        mem_free(folders[i]);
}

static void test_names(void **state)
{
    static const char *const safe[] = {"a", "a.b", "a/b-c_d (1)+=@.gguf", "\xc3\xa4"};
    static const char *const unsafe[] = {"",     "/a",   "a/",     "a//b",     "..",
                                         ".",    "../a", "a/../b", "a/.b",     "a\\b",
                                         "a\nb", "\x7f", "\x1b",   "\xc2\x9b", "\xff"};
    for (size_t i = 0; i < sizeof safe / sizeof *safe; i++)
        assert_true(model_ref_name_is_safe(safe[i]));
    for (size_t i = 0; i < sizeof unsafe / sizeof *unsafe; i++)
        if (model_ref_name_is_safe(unsafe[i]))
            fail_msg("\"%s\" is taken", unsafe[i]);
    char long_name[300];
    memset(long_name, 'a', sizeof long_name);
    long_name[256] = '\0';
    assert_false(model_ref_name_is_safe(long_name));
    long_name[255] = '\0';
    assert_true(model_ref_name_is_safe(long_name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_good), cmocka_unit_test(test_bad),
                                       cmocka_unit_test(test_folders),
                                       cmocka_unit_test(test_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
