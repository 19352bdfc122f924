/* Tests keys and signatures of minisign. Debian's minisign 0.11 wrote the vectors: two throw-away
 * keys, and signatures of one text in both kinds. A change of any byte that counts must be found.
 */
#include "cli/verify/minisign.h"

#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TEXT    "Coxswain signs this text.\n"
#define COMMENT "coxswain 1.2.3 x86_64 cpu"
#define HEAD    "untrusted comment: signature from minisign secret key\n"

static const char key_a[] = "untrusted comment: minisign public key 7499551B1133D6D4\n"
                            "RWTU1jMRG1WZdHwyji4k1VOinKdpEBr37M7WpvPOMZJ5w9ZvxN6W25H/\n";
static const char key_b[] = "untrusted comment: minisign public key F0E176D9F7A216C3\n"
                            "RWTDFqL32Xbh8IYYMCvDcFmBUbeUUZcW6mnRkHa1w5vO08M2sItRT+S1\n";
static const char hashed[] = HEAD
    "RUTU1jMRG1WZdMGk9HG2m11d78hmnMiVWtZkfZIEDaeKPqyKFraWeObMy8bkzn6h+D3cd2PynhnvFSDZd72atzRS"
    "4WhHOGZv7A0=\n"
    "trusted comment: " COMMENT "\n"
    "MbcmWdIGa/ZLZgQ5FwfrZgV4UILbpBNNLoYsbk3mdL0Rd2jsq/IQhFkcH7tpRZ4aP56T51gUMAgC4sStxyJNCg==\n";
static const char legacy[] = HEAD
    "RWTU1jMRG1WZdEf9glDRAGmBZcardT5b0qH7ZtwDSPZ4oWaRsqTaczdpkXCsMqYNqxuAeztaDnT44TOAJRsSo6Ey"
    "sfWwBZoqcQk=\n"
    "trusted comment: " COMMENT "\n"
    "yCf2knXZvbucB3lcFMj+QzwMeKxjII0YAjEVBzrJMvJpLjr5GJw4oiAL6ZZG/5PJdT561tZ3VJmP5Ba/jiS7Dw==\n";

/* Reads and checks `n` bytes of a signature file. The bytes are copied to the heap's end, so that
 * a sanitizer finds a read beyond them. */
static enum status check(const char *key, const char *signature, size_t n, const char *content,
                         struct error *err)
{
    struct minisign_key k;
    struct minisign_signature s;
    char *copy = test_malloc(n + 1);
    memcpy(copy, signature, n);
    assert_int_equal(minisign_read_key(str_from(key), "k.pub", &k, err), STATUS_OK);
    enum status r = minisign_read_signature((struct str){copy, n}, "x.minisig", &s, err);
    if (r == STATUS_OK)
        r = minisign_check(&k, &s, str_from(content), err);
    if (r == STATUS_OK)
        assert_true(str_eq(s.comment, STR(COMMENT)));
    test_free(copy);
    return r;
}

static void test_good(void **state)
{
    struct error err;
    struct minisign_key k;
    char id[MINISIGN_ID_TEXT];
    assert_int_equal(check(key_a, hashed, sizeof hashed - 1, TEXT, &err), STATUS_OK);
    assert_int_equal(check(key_a, legacy, sizeof legacy - 1, TEXT, &err), STATUS_OK);
    assert_int_equal(minisign_read_key(str_from(key_a), "k", &k, &err), STATUS_OK);
    minisign_id_text(k.id, id);
    assert_string_equal(id, "7499551B1133D6D4");
}

static void test_other_content_or_key(void **state)
{
    static const char *const signatures[] = {hashed, legacy};
    struct error err;
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(signatures[i]);
        assert_int_equal(check(key_a, signatures[i], n, TEXT "x", &err), STATUS_DENIED);
        assert_non_null(strstr(err.text, "does not belong to the content"));
        assert_int_equal(check(key_a, signatures[i], n, "", &err), STATUS_DENIED);
        assert_int_equal(check(key_b, signatures[i], n, TEXT, &err), STATUS_DENIED);
        assert_non_null(strstr(err.text, "by the key 7499551B1133D6D4, not by the key "
                                         "F0E176D9F7A216C3"));
    }
}

/* Changes each byte and cuts the file at each byte. Only the untrusted comment may change. */
static void test_each_byte_counts(void **state)
{
    static const char changes[] = {1, 0x20, 0x40, '\x80'};
    static const char *const signatures[] = {hashed, legacy};
    struct error err;
    size_t from = strlen("untrusted comment: "), to = strlen(HEAD) - 1;
    for (int s = 0; s < 2; s++) {
        char copy[sizeof hashed];
        size_t n = strlen(signatures[s]);
        for (size_t i = 0; i < n; i++) {
            for (size_t c = 0; c < sizeof changes; c++) {
                memcpy(copy, signatures[s], n);
                copy[i] ^= changes[c];
                bool is_free = i >= from && i < to && copy[i] != '\n';
                if ((check(key_a, copy, n, TEXT, &err) == STATUS_OK) != is_free)
                    fail_msg("signature %d, byte %zu changed by %d", s, i, changes[c]);
            }
            if (i < n - 1 && check(key_a, signatures[s], i, TEXT, &err) == STATUS_OK)
                fail_msg("signature %d, cut to %zu bytes", s, i);
        }
    }
}

static void test_mixed_parts(void **state)
{
    struct error err;
    char mixed[sizeof hashed + 64];
    const char *comment = strstr(legacy, "trusted comment: " COMMENT);
    /* the global signature of another signature */
    snprintf(mixed, sizeof mixed, "%.*s%s",
             (int)(strstr(hashed, "trusted comment: " COMMENT) - hashed), hashed, comment);
    assert_int_equal(check(key_a, mixed, strlen(mixed), TEXT, &err), STATUS_DENIED);
    assert_non_null(strstr(err.text, "trusted comment"));
    snprintf(mixed, sizeof mixed, "%sx", hashed);
    assert_int_equal(check(key_a, mixed, strlen(mixed), TEXT, &err), STATUS_INVALID);
    snprintf(mixed, sizeof mixed, "%s\n", hashed);
    assert_int_equal(check(key_a, mixed, strlen(mixed), TEXT, &err), STATUS_INVALID);
}

static void test_long_comment(void **state)
{
    struct error err;
    struct minisign_signature s;
    const char *end = strstr(hashed, COMMENT "\n");
    struct strbuf b;
    strbuf_init(&b, 0);
    strbuf_append(&b, hashed, (size_t)(end - hashed));
    for (int i = 0; i <= MINISIGN_COMMENT_MAX; i++)
        strbuf_append_c(&b, "c");
    strbuf_append_c(&b, end + strlen(COMMENT));
    assert_int_equal(minisign_read_signature(strbuf_str(&b), "x", &s, &err), STATUS_INVALID);
    strbuf_fini(&b);
}

static void test_keys_of_other_forms(void **state)
{
    static const char *const wrong[] = {
        "",
        "untrusted comment: x",
        "RWTU1jMRG1WZdHwyji4k1VOinKdpEBr37M7WpvPOMZJ5w9ZvxN6W25H/\n",
        "untrusted comment: x\nRWTU1jMRG1WZdHwyji4k1VOinKdpEBr37M7WpvPOMZJ5w9ZvxN6W25H\n",
        "untrusted comment: x\nRWTU1jMRG1WZdHwyji4k1VOinKdpEBr37M7WpvPOMZJ5w9ZvxN6W25H/AAAA\n",
        "untrusted comment: x\nRUTU1jMRG1WZdHwyji4k1VOinKdpEBr37M7WpvPOMZJ5w9ZvxN6W25H/\n",
        "untrusted comment: x\nRWTU1jMRG1WZdHwyji4k1VOinKdpEBr37M7WpvPOMZJ5w9ZvxN6W25H/\nmore\n",
        "untrusted comment: x\nRWTU1jMRG1WZ HwyvvvvvvvvvvvvvvvvvvvvvvvpvPOMZJ5w9ZvxN6W25H/\n",
    };
    struct error err;
    struct minisign_key k;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (minisign_read_key(str_from(wrong[i]), "wrong.pub", &k, &err) != STATUS_INVALID ||
            !strstr(err.text, "wrong.pub is not a public key of minisign"))
            fail_msg("key %zu was accepted", i);
    /* a file from Windows has other line ends, and the last line may lack one */
    assert_int_equal(
        minisign_read_key(
            STR("untrusted comment: x\r\nRWTU1jMRG1WZdHwyji4k1VOinKdpEBr37M7WpvPOMZJ5w9ZvxN6W25H/"),
            "k", &k, &err),
        STATUS_OK);
}

static int start_sodium(void **state)
{
    return sodium_init() < 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),         cmocka_unit_test(test_other_content_or_key),
        cmocka_unit_test(test_mixed_parts),  cmocka_unit_test(test_each_byte_counts),
        cmocka_unit_test(test_long_comment), cmocka_unit_test(test_keys_of_other_forms),
    };
    return cmocka_run_group_tests(tests, start_sodium, NULL);
}
