/* Tests the gateway's API keys: which request headers hold a key, and how the file of keys is read
 * again after a change. The tests write a key file, call `auth_look` as the gateway's loop does,
 * and look keys up with `auth_find`. Invariants: error messages never contain a key, and a key
 * that is still in use outlives its line in the file. */
#include "gateway/auth/auth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/cox-auth-XXXXXX";

static void write_file(const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* Returns the tenant of the key in these headers, or -1 when the key is unknown. */
static int64_t tenant_of(const struct auth *a, const char *authorization, const char *bare)
{
    const struct api_key *k = auth_find(a, str_from(authorization), str_from(bare));
    return k ? (int64_t)(k->tenant >> 1) : -1;
}

/* `HASH_OF_KEY_H` is sha256("key-h"), the output of `printf %s key-h | sha256sum`. */
#define HASH_OF_KEY_H "81e6d02d2d54b0748bc868cd3daec1a7e652c0840655a82bcecee91d73fa5070"

static void test_keys(void **state)
{
    static const struct {
        const char *header, *bare;
        bool ok;
        const char *tenant; /* name of the tenant; NULL = the key is a tenant of its own */
    } cases[] = {
        {"Bearer flag-key", "", true, NULL},
        {"bearer  flag-key ", "", true, NULL},
        {"Bearer key-a", "", true, "acme"},
        {"Bearer key-a2", "", true, "acme"},
        {"Bearer key-b", "", true, NULL},
        {"Bearer key-h", "", true, "acme"},
        {"Bearer key-o", "", true, NULL},
        {"", "key-a", true, "acme"},
        {"Bearer no", "key-a", false, ""}, /* the first of two headers decides */
        {"Bearer sha256:" HASH_OF_KEY_H, "", false, ""},
        {"Bearer " HASH_OF_KEY_H, "", false, ""},
        {"Bearer key-c", "", false, ""},
        {"Bearer ", "", false, ""},
        {"Bearer key-", "", false, ""},
        {"Bearer key-aa", "", false, ""},
        {"Basic flag-key", "", false, ""},
        {"flag-key", "", false, ""},
        {"", "", false, ""},
        {"Bearer # comment", "", false, ""},
    };
    struct auth a;
    struct error err = {0};
    const char *flag[] = {"flag-key"};
    struct option_list keys = {flag, 1};
    write_file("# comment\n\nkey-a acme\nkey-a2 acme rate=5\n  key-b\n"
               "sha256:" HASH_OF_KEY_H " acme streams=2 models=m\nkey-o priority=3\n");
    assert_int_equal(auth_init(&a, &keys, path, &err), STATUS_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t got = tenant_of(&a, cases[i].header, cases[i].bare);
        int64_t acme = (int64_t)(auth_tenant_id(STR("acme")) >> 1);
        if ((got >= 0) != cases[i].ok || (cases[i].tenant && *cases[i].tenant && got != acme))
            fail_msg("\"%s\" \"%s\"", cases[i].header, cases[i].bare);
    }
    /* A key without a name is a tenant of its own. */
    int64_t f = tenant_of(&a, "Bearer flag-key", ""), b = tenant_of(&a, "Bearer key-b", "");
    assert_true(f != 0 && b != 0 && f != b && f == tenant_of(&a, "", "flag-key"));
    const struct api_key *h = auth_find(&a, STR(""), STR("key-h"));
    assert_int_equal(h->limits.max_open, 2);
    assert_string_equal(h->limits.models, "m");
    assert_int_equal(auth_find(&a, STR(""), STR("key-o"))->limits.priority, 3);
    assert_int_equal(auth_count_priorities(&a), 1);
    auth_fini(&a);
}

static void test_no_keys(void **state)
{
    struct auth a;
    struct option_list none = {0};
    bool changed;
    assert_int_equal(auth_init(&a, &none, NULL, NULL), STATUS_OK);
    assert_int_equal(a.n_entries, 0);
    assert_null(auth_find(&a, STR("Bearer x"), STR("")));
    /* boto3 signs its requests. A signature is not a key, and does not hide the key in another
     * header. */
    assert_null(auth_find(&a, STR("AWS4-HMAC-SHA256 Credential=x"), STR("")));
    assert_int_equal(auth_look(&a, &changed, NULL), STATUS_OK);
    assert_false(changed);
    auth_fini(&a);
}

static void test_bad_files(void **state)
{
    static const char *const bad[] = {
        "",
        "# only\n",
        "k t extra\n",
        "k a\nk b\n",
        "k a rate=\n",
        "k a rate=1 b\n",
        "k secret-extra=1\n",
        "sha256:extra\n",
        "sha256:" HASH_OF_KEY_H "0\n",
        "key-h\nsha256:" HASH_OF_KEY_H "\n",
    };
    struct option_list none = {0};
    struct auth a;
    struct error err = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file(bad[i]);
        if (auth_init(&a, &none, path, &err) == STATUS_OK)
            fail_msg("%s", bad[i]);
        assert_non_null(strstr(err.text, path));
        assert_null(strstr(err.text, "extra")); /* a message never contains a key */
    }
    assert_int_equal(auth_init(&a, &none, "/nonexistent/keys", &err), STATUS_NOT_FOUND);
    static const char *const flags[] = {"", "a b", "a\n", "\ta", "a\x7F"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        const char *one[] = {flags[i]};
        struct option_list keys = {one, 1};
        assert_int_equal(auth_init(&a, &keys, NULL, &err), STATUS_INVALID);
        assert_non_null(strstr(err.text, "--api-key"));
    }
}

/* Calls `auth_look` twice, because at the first call the file may still be half written. */
static enum status look_twice(struct auth *a, bool *changed, struct error *err)
{
    assert_int_equal(auth_look(a, changed, err), STATUS_OK);
    assert_false(*changed);
    return auth_look(a, changed, err);
}

static void test_file_changes(void **state)
{
    struct auth a;
    struct error err = {0};
    bool changed;
    const char *flag[] = {"flag-key"};
    struct option_list keys = {flag, 1};
    write_file("stays one streams=3\ngoes two\n");
    assert_int_equal(auth_init(&a, &keys, path, &err), STATUS_OK);
    struct api_key *stays = auth_find(&a, STR(""), STR("stays"));
    struct api_key *goes = auth_find(&a, STR(""), STR("goes"));
    limits_open(stays);
    limits_open(goes);
    assert_int_equal(look_twice(&a, &changed, &err), STATUS_OK);
    assert_false(changed);

    write_file("comes three\nstays four streams=1 models=m\n");
    assert_int_equal(look_twice(&a, &changed, &err), STATUS_OK);
    assert_true(changed);
    /* the key is the same object after the change, with its open requests */
    assert_ptr_equal(auth_find(&a, STR(""), STR("stays")), stays);
    assert_int_equal(stays->n_open, 1);
    assert_int_equal(stays->limits.max_open, 1);
    assert_string_equal(stays->limits.models, "m");
    assert_true(stays->tenant == auth_tenant_id(STR("four")));
    assert_null(auth_find(&a, STR(""), STR("goes")));
    assert_int_equal(goes->n_open, 1); /* the open request of the key still uses it */
    limits_close(goes);
    assert_non_null(auth_find(&a, STR(""), STR("comes")));
    assert_non_null(auth_find(&a, STR(""), STR("flag-key")));

    static const char *const broken[] = {"comes three\nstays rate=x\n", "", "# none any more\n"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        write_file(broken[i]);
        assert_int_not_equal(look_twice(&a, &changed, &err), STATUS_OK);
        assert_false(changed);
        /* `auth_look` reports the change once */
        assert_int_equal(auth_look(&a, &changed, &err), STATUS_OK);
        assert_ptr_equal(auth_find(&a, STR(""), STR("stays")), stays);
        assert_int_equal(a.n_entries, 3);
    }
    assert_int_equal(unlink(path), 0);
    assert_int_not_equal(look_twice(&a, &changed, &err), STATUS_OK);
    assert_ptr_equal(auth_find(&a, STR(""), STR("stays")), stays);
    write_file("last five rate=1\n");
    assert_int_equal(look_twice(&a, &changed, &err), STATUS_OK);
    assert_true(changed);
    assert_int_equal(a.n_entries, 2);
    assert_null(auth_find(&a, STR(""), STR("comes")));
    limits_close(stays);
    auth_fini(&a);
}

static int make_file(void **state)
{
    int fd = mkstemp(path);
    return fd < 0 || close(fd) != 0;
}

static int remove_file(void **state)
{
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_no_keys),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_file_changes),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
