/* Tests which files are taken from a hub's listing and from an index's page, and the resulting
 * lists of files. The input is the text of a listing. The output is a `struct pull_list`.
 * Invariants: a path never leaves the model's folder, and a malformed listing is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cli/pull/files/list.h"
#include "cli/pull/sources/hub.h"
#include "cli/pull/sources/index.h"
#include "common/base/mem.h"
#include "common/model/info/pulled.h"

#define COMMIT "0123456789012345678901234567890123456789"
#define HEX64  "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define FILE_OF(name, size)                                                                        \
    "{\"rfilename\":\"" name "\",\"size\":" #size ",\"blobId\":\"" COMMIT "\"}"
#define LFS_OF(name, size)                                                                         \
    "{\"rfilename\":\"" name "\",\"size\":" #size ",\"lfs\":{\"sha256\":\"" HEX64                  \
    "\",\"size\":" #size "}}"
#define LISTING(files) "{\"sha\":\"" COMMIT "\",\"siblings\":[" files "]}"

static void names_of(struct pull_list *l, char *out, size_t size)
{
    out[0] = '\0';
    pull_list_finish(l);
    for (uint32_t i = 0; i < l->n_files; i++) {
        size_t at = strlen(out);
        snprintf(out + at, size - at, "%s%s", i ? " " : "", l->files[i].name);
    }
}

static void test_hub(void **state)
{
    static const struct {
        const char *model, *listing,
            *want; /* names in the order of the downloads; NULL = refused */
    } cases[] = {
        {"hf:o/n",
         LISTING(LFS_OF("model.safetensors", 9) "," FILE_OF("config.json", 2) "," FILE_OF(
             "README.md", 1) "," FILE_OF("1_Pooling/config.json", 3) "," FILE_OF("onnx/model.onnx",
                                                                                 1)),
         "1_Pooling/config.json config.json model.safetensors"},
        {"hf:o/n",
         LISTING(LFS_OF("model.safetensors", 9) "," FILE_OF("config.json", 2) "," FILE_OF(
             "additional_chat_templates/tool_use.jinja",
             3) "," FILE_OF("additional_chat_templates/x.py",
                            1) "," FILE_OF("additional_chat_templates/a/b.jinja", 1)),
         "additional_chat_templates/tool_use.jinja config.json model.safetensors"},
        {"hf:o/n",
         LISTING(
             LFS_OF("pytorch_model-00001-of-00002.bin", 9) "," FILE_OF("config.json", 2) "," LFS_OF(
                 "training_args.bin", 9) "," FILE_OF("pytorch_model.bin.index.json", 3)),
         "config.json pytorch_model.bin.index.json pytorch_model-00001-of-00002.bin"},
        {"hf:o/n",
         LISTING(LFS_OF("pytorch_model.bin", 9) "," FILE_OF("config.json", 2) "," LFS_OF(
             "a.safetensors", 9) "," FILE_OF("model.safetensors.index.json", 3)),
         "config.json model.safetensors.index.json a.safetensors"},
        {"hf:o/n", LISTING(FILE_OF("config.json", 2)), NULL},
        {"hf:o/n", LISTING(LFS_OF("a.safetensors", 2)), NULL},
        {"hf:o/n", LISTING(LFS_OF("a.gguf", 2)), NULL},
        {"hf:o/n", LISTING(LFS_OF("adapter_model.safetensors", 2) "," FILE_OF("config.json", 2)),
         NULL},
        {"hf:o/n/a.gguf", LISTING(LFS_OF("a.gguf", 2) "," LFS_OF("b.gguf", 2)), "a.gguf"},
        {"hf:o/n/q/a.gguf", LISTING(LFS_OF("a.gguf", 2) "," LFS_OF("q/a.gguf", 2)), "a.gguf"},
        {"hf:o/n/a-00001-of-00002.gguf",
         LISTING(
             LFS_OF("a-00002-of-00002.gguf", 2) "," LFS_OF("a-00001-of-00002.gguf", 2) "," LFS_OF(
                 "a-00001-of-00003.gguf", 2) "," LFS_OF("b-00001-of-00002.gguf",
                                                        2) "," LFS_OF("a.gguf", 2)),
         "a-00001-of-00002.gguf a-00002-of-00002.gguf"},
        {"hf:o/n/c.gguf", LISTING(LFS_OF("a.gguf", 2)), NULL},
        {"hf:o/n",
         LISTING(FILE_OF("config.json", 2) "," LFS_OF("a.safetensors",
                                                      2) "," LFS_OF("a.safetensors", 2)),
         NULL},
        {"hf:o/n", LISTING(FILE_OF("config.json", 2) "," LFS_OF(".a.safetensors", 2)), NULL},
        {"hf:o/n", LISTING(FILE_OF("config.json", 2) "," LFS_OF("a\\u0007.safetensors", 2)), NULL},
        {"hf:o/n",
         LISTING(FILE_OF("config.json", 2) "," LFS_OF("a.safetensors", 9000000000000000000)), NULL},
        {"hf:o/n", "{\"sha\":\"main\",\"siblings\":[]}", NULL},
        {"hf:o/n", "{\"sha\":\"" COMMIT "\"}", NULL},
        {"hf:o/n", "[]", NULL},
        {"hf:o/n", LISTING("1,null,{},{\"rfilename\":7}"), NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_ref r;
        struct pull_list l = {0};
        struct error err = {0};
        char names[512];
        assert_int_equal(model_ref_parse(cases[i].model, &r, &err), STATUS_OK);
        enum status s = pull_hub_read(str_from(cases[i].listing), &r, "https://h", &l, &err);
        names_of(&l, names, sizeof names);
        if ((s == STATUS_OK) != (cases[i].want != NULL))
            fail_msg("%zu: %s: %s", i, status_name(s), err.text);
        if (cases[i].want)
            assert_string_equal(names, cases[i].want);
        pull_list_fini(&l);
        model_ref_fini(&r);
    }
}

static void test_hub_file(void **state)
{
    struct model_ref r;
    struct pull_list l = {0};
    struct error err = {0};
    static const char listing[] =
        LISTING(FILE_OF("config.json", 2) "," LFS_OF("a b#?%.safetensors", 9));
    assert_int_equal(model_ref_parse("o/n", &r, &err), STATUS_OK);
    assert_int_equal(pull_hub_read(str_from(listing), &r, "https://h/hub", &l, &err), STATUS_OK);
    pull_list_finish(&l);
    assert_string_equal(l.commit, COMMIT);
    assert_string_equal(l.files[0].url, "https://h/hub/o/n/resolve/" COMMIT "/config.json");
    assert_string_equal(l.files[0].git_id, COMMIT);
    assert_string_equal(l.files[0].sha256, "");
    assert_string_equal(l.files[1].url,
                        "https://h/hub/o/n/resolve/" COMMIT "/a%20b%23%3F%25.safetensors");
    assert_string_equal(l.files[1].sha256, HEX64);
    assert_string_equal(l.files[1].git_id, "");
    assert_true(pull_list_bytes(&l) == 11);
    pull_list_fini(&l);
    model_ref_fini(&r);
}

static enum status add(struct pull_list *l, const char *name, uint64_t n_bytes)
{
    struct error err = {0};
    return pull_list_add(l, name, mem_strdup("u"), n_bytes, &err);
}

/* `identity` depends on every name, size and etag of the listing, so that parts of different
 * versions are not mixed. */
static void test_list(void **state)
{
    struct pull_list a = {0}, b = {0};
    assert_int_equal(add(&a, "m/a", 5), STATUS_OK);
    assert_int_equal(add(&a, "m", 5), STATUS_PROTOCOL);
    assert_int_equal(add(&a, "m/a/b", 5), STATUS_PROTOCOL);
    assert_int_equal(add(&a, "m/a", 5), STATUS_PROTOCOL);
    assert_int_equal(add(&a, PULLED_MANIFEST, 5), STATUS_PROTOCOL);
    assert_int_equal(add(&a, "../m", 5), STATUS_PROTOCOL);
    assert_int_equal(add(&a, "large", PULL_MAX_FILE_BYTES + 1), STATUS_LIMIT);
    assert_int_equal(add(&a, "m/ab", 5), STATUS_OK);
    assert_int_equal(add(&b, "m/ab", 5), STATUS_OK);
    assert_int_equal(add(&b, "m/a", 5), STATUS_OK);
    pull_list_finish(&a);
    pull_list_finish(&b);
    assert_string_equal(a.identity, b.identity);
    assert_int_equal(strlen(a.identity), 64);
    b.files[0].n_bytes++;
    pull_list_finish(&b);
    assert_string_not_equal(a.identity, b.identity);
    b.files[0].n_bytes--;
    snprintf(b.files[1].etag, sizeof b.files[1].etag, "\"e\"");
    pull_list_finish(&b);
    assert_string_not_equal(a.identity, b.identity);
    pull_list_fini(&a);
    pull_list_fini(&b);
    for (int i = 0; i < 5; i++)
        assert_int_equal(add(&a, (char[]){(char)('a' + i), '\0'}, PULL_MAX_FILE_BYTES),
                         i < 4 ? STATUS_OK : STATUS_LIMIT);
    pull_list_fini(&a);
}

static void test_index(void **state)
{
    static const struct {
        const char *page;
        enum status want;
        const char *link, *sha256;
        uint64_t n_bytes;
    } cases[] = {
        {"{\"files\":[{\"filename\":\"x.whl\",\"url\":\"../p/"
         "x.whl\",\"hashes\":{\"sha256\":\"" HEX64 "\"},\"size\":7}]}",
         STATUS_OK, "../p/x.whl", HEX64, 7},
        {"{\"files\":[{\"filename\":\"x.whl\",\"url\":\"https://h/x.whl#sha256=" HEX64 "\"}]}",
         STATUS_OK, "https://h/x.whl", HEX64, FETCH_UNKNOWN},
        {"{\"files\":[{\"filename\":\"x.whl\",\"url\":\"https://h/y.whl\"}]}", STATUS_NOT_FOUND,
         NULL, NULL, 0},
        {"{\"files\":[7,{},{\"filename\":\"xx.whl\",\"url\":\"/xx.whl\"}]}", STATUS_NOT_FOUND, NULL,
         NULL, 0},
        {"{\"files\":{}}", STATUS_PROTOCOL, NULL, NULL, 0},
        {"{", STATUS_PROTOCOL, NULL, NULL, 0},
        {" \n", STATUS_PROTOCOL, NULL, NULL, 0},
        {"<a href=\"/p/xx.whl\">xx.whl</a><a class=\"c\" href=\"/p/x.whl#sha256=" HEX64
         "\">x.whl</a>",
         STATUS_OK, "/p/x.whl", HEX64, FETCH_UNKNOWN},
        {"<a href=\"/p/x.whl?v=1#md5=1\">", STATUS_OK, "/p/x.whl?v=1", "", FETCH_UNKNOWN},
        {"<a href=\"x.whl\">", STATUS_NOT_FOUND, NULL, NULL, 0},
        {"<a href=\"/p/x.whl", STATUS_NOT_FOUND, NULL, NULL, 0},
        {"<a href=\"/p/x.whl.metadata\"><a href=\"\"><a href=\"#\">", STATUS_NOT_FOUND, NULL, NULL,
         0},
        {"not found", STATUS_NOT_FOUND, NULL, NULL, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct index_file f;
        struct error err = {0};
        enum status s = pull_index_read(str_from(cases[i].page), "x.whl", &f, &err);
        if (s != cases[i].want)
            fail_msg("%s: %s %s", cases[i].page, status_name(s), err.text);
        if (s == STATUS_OK) {
            assert_string_equal(f.link, cases[i].link);
            assert_string_equal(f.sha256, cases[i].sha256);
            assert_true(f.n_bytes == cases[i].n_bytes);
            mem_free(f.link);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_hub), cmocka_unit_test(test_hub_file),
                                       cmocka_unit_test(test_list), cmocka_unit_test(test_index)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
