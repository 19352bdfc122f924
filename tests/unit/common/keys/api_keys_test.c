/* Tests API keys from files and options, the headers that carry them, and files that change. */
#include "common/keys/api_keys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* The hash is sha256("key-h"), the output of `printf %s key-h | sha256sum`. */
#define HASH_OF_KEY_H "81e6d02d2d54b0748bc868cd3daec1a7e652c0840655a82bcecee91d73fa5070"

static char path[] = "/tmp/cox-api-keys-XXXXXX";
static const char *flag_keys[] = {"flag-key"};
static const struct option_list flags = {flag_keys, 1}, no_flags = {NULL, 0};

static void write_file(const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static bool knows(const struct api_keys *k, const char *authorization, const char *bare)
{
    return api_keys_know(k, str_from(authorization), str_from(bare));
}

static void keys_that_are_known(void **state)
{
    static const struct {
        const char *authorization, *bare;
        bool known;
    } cases[] = {
        {"Bearer flag-key", "", true},
        {"bearer  flag-key ", "", true},
        {"Bearer key-a", "", true},
        {"Bearer key-h", "", true},
        {"", "key-h", true},
        {"AWS4-HMAC-SHA256 Credential=x", "key-a", true},
        {"AWS4-HMAC-SHA256 Credential=x", "", false},
        {"Bearer no", "key-a", false}, /* the first header decides, and its key is unknown */
        {"Bearer " HASH_OF_KEY_H, "", false},
        {"Bearer sha256:" HASH_OF_KEY_H, "", false},
        {"Bearer acme", "", false},
        {"Bearer # comment", "", false},
        {"Bearer key-", "", false},
        {"Bearer key-aa", "", false},
        {"Basic key-a", "", false},
        {"Bearer ", "", false},
        {"", "", false},
    };
    struct api_keys k;
    struct error err = {0};
    write_file("# comment\n\n key-a acme rate=5\nsha256:" HASH_OF_KEY_H "\n");
    assert_int_equal(api_keys_init(&k, &flags, path, &err), STATUS_OK);
    assert_int_equal(k.n, 3);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (knows(&k, cases[i].authorization, cases[i].bare) != cases[i].known)
            fail_msg("\"%s\" \"%s\"", cases[i].authorization, cases[i].bare);
    api_keys_fini(&k);
}

static void without_any(void **state)
{
    struct api_keys k;
    struct error err = {0};
    bool changed = true;
    assert_int_equal(api_keys_init(&k, &no_flags, NULL, &err), STATUS_OK);
    assert_int_equal(k.n, 0);
    assert_false(knows(&k, "Bearer x", ""));
    assert_int_equal(api_keys_look(&k, &changed, &err), STATUS_OK);
    assert_false(changed);
    api_keys_fini(&k);
}

static void files_that_are_none(void **state)
{
    static char long_line[KEY_LINE_BYTES + 10];
    memset(long_line, 'x', sizeof long_line - 1);
    const struct {
        const char *text, *says;
    } cases[] = {
        {"# nothing\n", "no key"},
        {"a-good-one\nsha256:hidden\n", "line 2"},
        {long_line, "the line is longer than"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct api_keys k;
        struct error err = {0};
        write_file(cases[i].text);
        assert_int_equal(api_keys_init(&k, &flags, path, &err), STATUS_INVALID);
        if (!strstr(err.text, cases[i].says) || !strstr(err.text, path) ||
            strstr(err.text, "hidden"))
            fail_msg("%zu: %s", i, err.text);
    }
    struct api_keys k;
    struct error err = {0};
    assert_int_equal(api_keys_init(&k, &no_flags, "/nowhere/keys", &err), STATUS_NOT_FOUND);
    flag_keys[0] = "";
    assert_int_equal(api_keys_init(&k, &flags, NULL, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "--api-key"));
    flag_keys[0] = "flag-key";
}

static void a_file_that_changes(void **state)
{
    struct api_keys k;
    struct error err = {0};
    bool changed;
    write_file("one\n");
    assert_int_equal(api_keys_init(&k, &flags, path, &err), STATUS_OK);
    write_file("another\n"); /* the new file has another size */
    assert_int_equal(api_keys_look(&k, &changed, &err), STATUS_OK);
    assert_false(changed); /* the file may still be half written */
    assert_int_equal(api_keys_look(&k, &changed, &err), STATUS_OK);
    assert_true(changed);
    assert_true(knows(&k, "", "another") && knows(&k, "", "flag-key") && !knows(&k, "", "one"));
    write_file("sha256:xx\n");
    assert_int_equal(api_keys_look(&k, &changed, &err), STATUS_OK);
    assert_int_equal(api_keys_look(&k, &changed, &err), STATUS_INVALID);
    assert_int_equal(api_keys_look(&k, &changed, &err), STATUS_OK); /* the error is reported once */
    assert_true(knows(&k, "", "another"));
    (void)unlink(path);
    assert_int_equal(api_keys_look(&k, &changed, &err), STATUS_OK);
    assert_int_equal(api_keys_look(&k, &changed, &err), STATUS_NOT_FOUND);
    assert_true(knows(&k, "", "another"));
    api_keys_fini(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_that_are_known),
        cmocka_unit_test(without_any),
        cmocka_unit_test(files_that_are_none),
        cmocka_unit_test(a_file_that_changes),
    };
    int fd = mkstemp(path);
    if (fd < 0 || close(fd) != 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(path);
    return failed;
}
