/* Tests manifests of downloaded models. A written manifest is read back and opened, and a
 * damaged manifest is reported. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/model/info/info.h"
#include "common/model/info/open.h"
#include "common/model/info/pulled.h"
#include "tests/unit/common/model/gguf_writer.c"
#include "tests/unit/common/model/put_file.c"

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

struct world {
    char cache[64];
    struct model_ref ref;
    char *folder;
};

static int setup(void **state)
{
    struct world *w = mem_zalloc(sizeof *w);
    struct error err = {0};
    snprintf(w->cache, sizeof w->cache, "/tmp/cox-pulled-test-XXXXXX");
    char path[512];
    if (!mkdtemp(w->cache) || model_ref_parse("org/tiny", &w->ref, &err) != STATUS_OK)
        return -1;
    w->folder = pulled_folder(&w->ref, w->cache);
    snprintf(path, sizeof path, "%s/models", w->cache);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/models/pulled", w->cache);
    mkdir(path, 0700);
    *state = w;
    return mkdir(w->folder, 0700);
}

static int teardown(void **state)
{
    struct world *w = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", w->cache);
    int rc = system(command);
    mem_free(w->folder);
    model_ref_fini(&w->ref);
    mem_free(w);
    return rc;
}

static void put_model(struct world *w)
{
    struct strbuf b;
    struct error err = {0};
    strbuf_init(&b, 0);
    put_tiny_model(&b, "gemma3", 77, 1, 8);
    put_file(w->folder, "tiny.gguf", strbuf_str(&b));
    struct pulled_file f = {.name = (char *)"tiny.gguf", .n_bytes = b.len, .sha256 = HEX64};
    struct pulled p = {.folder = w->folder, .commit = (char *)"c0ffee", .files = &f, .n_files = 1};
    assert_int_equal(pulled_write(&w->ref, &p, &err), STATUS_OK);
    strbuf_fini(&b);
}

static void test_round(void **state)
{
    struct world *w = *state;
    struct error err = {0};
    struct pulled p;
    put_model(w);
    assert_int_equal(pulled_open(&w->ref, w->cache, &p, &err), STATUS_OK);
    assert_string_equal(p.commit, "c0ffee");
    assert_true(p.n_files == 1 && p.n_bytes == p.files[0].n_bytes && p.n_bytes > 0);
    assert_string_equal(p.files[0].sha256, HEX64);
    pulled_fini(&p);
}

static void test_as_model(void **state)
{
    struct world *w = *state;
    struct error err = {0};
    struct model_info m;
    put_model(w);
    static const char *const names[] = {"org/tiny", "hf:org/tiny", "hf:org/tiny@main"};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(model_info_open(names[i], w->cache, &m, &err), STATUS_OK);
        assert_string_equal(m.name, "org/tiny");
        assert_int_equal(m.max_model_len, 77);
        model_info_fini(&m);
    }
}

static void test_not_there(void **state)
{
    struct world *w = *state;
    static const struct {
        const char *model, *words[2];
    } cases[] = {
        {"hf:org/other@v1", {"not in the cache", "`cox pull hf:org/other@v1` first"}},
        {"org/other",
         {"there is no file or folder \"org/other\"", "`cox pull hf:org/other@main` first"}},
        {"s3://bucket/a", {"not in the cache", "`cox pull s3://bucket/a` first"}},
        {"https://h/m.gguf", {"not in the cache", "`cox pull https://h/m.gguf` first"}},
        {"demo", {"not at", "`cox pull demo` first"}},
        {"demo-base", {"not at", "`cox pull demo-base` first"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error err = {0};
        struct model_info m;
        assert_int_equal(model_info_open(cases[i].model, w->cache, &m, &err), STATUS_NOT_FOUND);
        for (size_t j = 0; j < 2; j++)
            if (!strstr(err.text, cases[i].words[j]))
                fail_msg("%s: %s", cases[i].model, err.text);
    }
}

static void test_damaged(void **state)
{
    struct world *w = *state;
#define MANIFEST(files) "{\"version\": 1, \"commit\": \"\", \"files\": [" files "]}"
    static const char *const cases[][2] = {
        {"{", "cox-pull.json"},
        {"[]", "cox-pull.json"},
        {"{\"version\": 2, \"commit\": \"\", \"files\": []}", "was written by another version"},
        {MANIFEST(""), "was written by another version"},
        {MANIFEST("{\"name\": \"../x\", \"bytes\": 1, \"sha256\": \"" HEX64 "\"}"), "file 0"},
        {MANIFEST("{\"name\": \"x\", \"bytes\": -1, \"sha256\": \"" HEX64 "\"}"), "file 0"},
        {MANIFEST("{\"name\": \"x\", \"bytes\": 1, \"sha256\": \"12\"}"), "file 0"},
        {MANIFEST("{\"name\": \"x\", \"bytes\": 1, \"sha256\": \"" HEX64 "\"}"),
         "the file x is missing"},
        {MANIFEST("{\"name\": \"tiny.gguf\", \"bytes\": 1, \"sha256\": \"" HEX64 "\"}"),
         "had 1 when it was pulled"},
    };
    put_model(w);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error err = {0};
        struct model_info m;
        put_file(w->folder, PULLED_MANIFEST, str_from(cases[i][0]));
        assert_int_equal(model_info_open("hf:org/tiny", w->cache, &m, &err), STATUS_INVALID);
        if (!strstr(err.text, cases[i][1]) || !strstr(err.text, "to fetch it again"))
            fail_msg("%s: %s", cases[i][0], err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round, setup, teardown),
        cmocka_unit_test_setup_teardown(test_as_model, setup, teardown),
        cmocka_unit_test_setup_teardown(test_not_there, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
