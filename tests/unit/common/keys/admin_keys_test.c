/* Tests files of admin keys: names, hashes, comments, and contents that are refused. */
#include "common/keys/admin_keys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* The hash is sha256("key-of-bob"), the output of `printf %s key-of-bob | sha256sum`. */
#define HASH_OF_BOBS "808a1d81b5de08d72083995df738947d519d230a20c236003268f0f4b65ee475"

static char path[] = "/tmp/cox-admin-keys-XXXXXX";

static enum status read_text(const char *text, struct admin_keys *out, struct error *err)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    return admin_keys_read(path, out, err);
}

static void a_key_has_a_name(void **state)
{
    static const struct {
        const char *sent, *who;
    } cases[] = {
        {"Bearer key-of-alice", "alice"},
        {"bearer key-of-bob", "bob"},
        {"Bearer nobodys-key", "admin"},
        {"Bearer another-key", "admin key 4"},
        {"Bearer key-of-alic", NULL},
        {"Bearer sha256:" HASH_OF_BOBS, NULL},
        {"Bearer ", NULL},
        {"Basic key-of-alice", NULL},
        {"", NULL},
    };
    struct admin_keys k;
    struct error err = {0};
    assert_int_equal(read_text("nobodys-key\n# those of the team\n\n  key-of-alice alice # she\n"
                               "sha256:" HASH_OF_BOBS " bob\nanother-key",
                               &k, &err),
                     STATUS_OK);
    assert_int_equal(k.n, 4);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *who = admin_keys_who(&k, str_from(cases[i].sent));
        if (cases[i].who)
            assert_string_equal(who, cases[i].who);
        else
            assert_null(who);
        assert_int_equal(admin_keys_admit(&k, str_from(cases[i].sent)), who != NULL);
    }
    admin_keys_fini(&k);
    assert_true(admin_keys_admit(&k, STR("")));
}

static void marks_of_other_systems_are_no_part_of_a_key(void **state)
{
    struct admin_keys k;
    struct error err = {0};
    assert_int_equal(read_text("\xEF\xBB\xBFkey-of-alice alice\r\nkey-of-bob b\xC3\xB6"
                               "b\r\n",
                               &k, &err),
                     STATUS_OK);
    assert_string_equal(admin_keys_who(&k, STR("Bearer key-of-alice")), "alice");
    assert_string_equal(admin_keys_who(&k, STR("Bearer key-of-bob")), "b\xC3\xB6"
                                                                      "b");
    admin_keys_fini(&k);
}

static void wrong_files_are_named_and_no_key_is_said(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "the key file contains no key. Write at least one key into it"},
        {"# nothing\n\n", "the key file contains no key. Write at least one key into it"},
        {"short\n", "line 1: an admin key must have at least 8 characters"},
        {"long-enough\nsha256:12\n",
         "line 2: a key that begins with sha256: must have 64 hexadecimal digits after it"},
        {"long-enough a name\n", "line 1: the line must be KEY [NAME]"},
        {"long-enough a\033[31m\n", "line 1: the NAME of the key contains a control character"},
        {"long-enough a\302\233m\n", "line 1: the NAME of the key contains a control character"},
        {"long-enough \377\n",
         "line 1: the NAME of the key contains a control character or is not UTF-8"},
        {"key-of-bob bob\nsha256:" HASH_OF_BOBS " eve\n",
         "line 2: an earlier line has the same key"},
    };
    struct admin_keys k;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct error err = {0};
        assert_int_not_equal(read_text(cases[i].text, &k, &err), STATUS_OK);
        assert_non_null(strstr(err.text, cases[i].why));
        assert_non_null(strstr(err.text, path));
        assert_null(strstr(err.text, "long-enough"));
        assert_int_equal(k.n, 0);
    }
    struct error err = {0};
    assert_int_equal(admin_keys_read("/nowhere/at/all", &k, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "/nowhere/at/all"));
}

static void there_are_bounds(void **state)
{
    struct admin_keys k;
    struct error err = {0};
    struct strbuf b;
    strbuf_init(&b, 0);
    for (int i = 0; i < ADMIN_KEYS_MAX; i++)
        strbuf_printf(&b, "the-key-%d\n", i);
    strbuf_append_c(&b, "");
    assert_int_equal(read_text(b.ptr, &k, &err), STATUS_OK);
    assert_int_equal(k.n, ADMIN_KEYS_MAX);
    admin_keys_fini(&k);
    strbuf_append_c(&b, "one-too-many\n");
    assert_int_equal(read_text(b.ptr, &k, &err), STATUS_LIMIT);
    strbuf_reset(&b);
    for (int i = 0; i < KEY_LINE_BYTES; i++)
        strbuf_append_c(&b, "k");
    assert_int_equal(read_text(b.ptr, &k, &err), STATUS_INVALID);
    strbuf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_has_a_name),
        cmocka_unit_test(marks_of_other_systems_are_no_part_of_a_key),
        cmocka_unit_test(wrong_files_are_named_and_no_key_is_said),
        cmocka_unit_test(there_are_bounds),
    };
    int fd = mkstemp(path);
    if (fd < 0)
        return 1;
    close(fd);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
