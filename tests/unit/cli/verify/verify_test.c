/* Tests the check of installed files: changed, missing and unlisted files, links, FIFOs, compressed
 * manual pages, and the states of the signature. Each test has a prefix of its own in a temporary
 * folder. The key pair and its signatures are made with libsodium. */
#include "cli/verify/verify.h"

#include <fcntl.h>
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <zlib.h>

#include "common/keys/digest.h"

static char prefix[64];
static uint8_t secret[crypto_sign_SECRETKEYBYTES];
static const uint8_t id[MINISIGN_ID_BYTES] = {1, 2, 3, 4, 5, 6, 7, 8};

static const char *at(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", prefix, name);
    return path;
}

static void put(const char *name, const char *text)
{
    FILE *f = fopen(at(name), "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void list_file(struct strbuf *list, const char *name, const char *content)
{
    char hex[DIGEST_HEX_MAX];
    struct digest *d = digest_new(DIGEST_SHA256);
    assert_true(digest_add(d, content, strlen(content)));
    digest_end(d, hex);
    digest_free(d);
    strbuf_printf(list, "%s  %s\n", hex, name);
}

static void write_key(const char *path)
{
    uint8_t raw[42] = "Ed";
    char text[sodium_base64_ENCODED_LEN(sizeof raw, sodium_base64_VARIANT_ORIGINAL)], all[256];
    memcpy(raw + 2, id, 8);
    memcpy(raw + 10, secret + 32, 32);
    sodium_bin2base64(text, sizeof text, raw, sizeof raw, sodium_base64_VARIANT_ORIGINAL);
    snprintf(all, sizeof all, "untrusted comment: test\n%s\n", text);
    put(path, all);
}

static void write_signature(const char *content, const char *comment)
{
    uint8_t raw[74] = "Ed", global[64], signed_bytes[64 + 256];
    char one[sodium_base64_ENCODED_LEN(74, sodium_base64_VARIANT_ORIGINAL)],
        two[sodium_base64_ENCODED_LEN(64, sodium_base64_VARIANT_ORIGINAL)], all[1024];
    memcpy(raw + 2, id, 8);
    crypto_sign_detached(raw + 10, NULL, (const uint8_t *)content, strlen(content), secret);
    memcpy(signed_bytes, raw + 10, 64);
    memcpy(signed_bytes + 64, comment, strlen(comment));
    crypto_sign_detached(global, NULL, signed_bytes, 64 + strlen(comment), secret);
    sodium_bin2base64(one, sizeof one, raw, sizeof raw, sodium_base64_VARIANT_ORIGINAL);
    sodium_bin2base64(two, sizeof two, global, sizeof global, sodium_base64_VARIANT_ORIGINAL);
    snprintf(all, sizeof all, "untrusted comment: test\n%s\ntrusted comment: %s\n%s\n", one,
             comment, two);
    put(VERIFY_SIGNATURE, all);
}

/* Makes a prefix with two programs, a library, a manual page and a document. */
static int make_prefix(void **state)
{
    static const char *const folders[] = {
        "bin",      "lib", "lib/coxswain", "share", "share/coxswain", "share/man", "share/man/man1",
        "share/doc"};
    struct strbuf list;
    strcpy(prefix, "/tmp/cox-verify-XXXXXX");
    assert_non_null(mkdtemp(prefix));
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        assert_int_equal(mkdir(at(folders[i]), 0755), 0);
    strbuf_init(&list, 0);
    static const char *const files[] = {"bin/cox", "bin/cox-head", "lib/coxswain/libx.so",
                                        "share/man/man1/cox.1", "share/doc/copyright"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        put(files[i], files[i]);
        list_file(&list, files[i], files[i]);
    }
    put("bin/unrelated", "another package's program");
    put(VERIFY_LIST, list.ptr);
    strbuf_fini(&list);
    return 0;
}

static int remove_prefix(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", prefix);
    return system(command);
}

/* Verifies the prefix, and compares the findings with `want`: "kind path text; ...". */
static void expect(const char *want)
{
    struct verify_report r;
    struct error err = {0};
    struct strbuf got;
    strbuf_init(&got, 0);
    enum status s = verify_prefix(prefix, NULL, &r, &err);
    if (s != STATUS_OK)
        fail_msg("%s: %s", status_name(s), err.text);
    for (size_t i = 0; i < r.n_findings; i++)
        strbuf_printf(&got, "%s%s %s %.40s", i ? "; " : "", finding_kind_name(r.findings[i].kind),
                      r.findings[i].path, r.findings[i].text);
    assert_string_equal(got.len ? got.ptr : "", want);
    assert_int_equal(verify_is_fine(&r), want[0] == '\0');
    assert_int_equal(r.n_files, 5);
    strbuf_fini(&got);
    verify_fini(&r);
}

static void test_files(void **state)
{
    expect("");
    put("bin/cox-head", "other");
    expect("changed bin/cox-head has changed: its SHA-256 is d9298a10d1b0");
    unlink(at("bin/cox-head"));
    expect("missing bin/cox-head is missing");
    unlink(at("lib/coxswain/libx.so"));
    expect("missing bin/cox-head is missing; missing lib/coxswain/libx.so is missing");
}

static void test_unlisted(void **state)
{
    put("bin/cox-worker", "");
    put("bin/coxswain", ""); /* not one of our names */
    put("lib/coxswain/libevil\033[2J.so", "");
    put("lib/other.so", "");
    expect("unlisted bin/cox-worker is not in the list; unlisted "
           "lib/coxswain/libevil\\x1b[2J.so is not in the list");
}

static void test_links_and_special_files(void **state)
{
    unlink(at("bin/cox-head"));
    assert_int_equal(symlink("cox", at("bin/cox-head")), 0);
    expect("changed bin/cox-head is a symbolic link, or is in a folder th");
    unlink(at("bin/cox-head"));
    assert_int_equal(mkfifo(at("bin/cox-head"), 0600), 0);
    expect("changed bin/cox-head is not a regular file");
    unlink(at("bin/cox-head"));
    assert_int_equal(mkdir(at("bin/cox-head"), 0755), 0);
    expect("changed bin/cox-head is not a regular file");
}

static void test_folder_that_is_a_link(void **state)
{
    char target[128];
    snprintf(target, sizeof target, "%s/elsewhere", prefix);
    assert_int_equal(rename(at("lib/coxswain"), target), 0);
    assert_int_equal(symlink(target, at("lib/coxswain")), 0);
    expect("changed lib/coxswain/libx.so is a symbolic link, or is in a folder th; "
           "changed lib/coxswain is not a folder that can be read");
    unlink(at("lib/coxswain"));
    put("lib/coxswain", "a file");
    expect("missing lib/coxswain/libx.so is missing; changed lib/coxswain is not a folder that can "
           "be read");
}

static void test_huge_file(void **state)
{
    assert_int_equal(truncate(at("bin/cox-head"), (off_t)100 << 30), 0); /* sparse */
    expect("changed bin/cox-head is larger than any file of a package");
}

static void test_pages(void **state)
{
    struct verify_report r;
    struct error err;
    gzFile z = gzopen(at("share/man/man1/cox.1.gz"), "wb");
    assert_true(gzputs(z, "share/man/man1/cox.1") > 0);
    assert_int_equal(gzclose(z), Z_OK);
    put("share/man/man1/cox.1", "wrong"); /* the plain page counts first */
    expect("changed share/man/man1/cox.1 has changed: its SHA-256 is 8810ad581e59");
    unlink(at("share/man/man1/cox.1"));
    expect("");
    assert_int_equal(truncate(at("share/man/man1/cox.1.gz"), 30), 0);
    expect("changed share/man/man1/cox.1 cannot be compared: it cannot be unpacke");
    unlink(at("share/man/man1/cox.1.gz"));
    unlink(at("share/doc/copyright"));
    expect("");
    assert_int_equal(verify_prefix(prefix, NULL, &r, &err), STATUS_OK);
    assert_int_equal(r.n_left_out, 2);
    verify_fini(&r);
}

static void test_lists(void **state)
{
    struct verify_report r;
    struct error err = {0};
    put(VERIFY_LIST, "no list\n");
    assert_int_equal(verify_prefix(prefix, NULL, &r, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "share/coxswain/SHA256SUMS: line 1 is not"));
    verify_fini(&r);
    assert_int_equal(truncate(at(VERIFY_LIST), 3 << 20), 0);
    assert_int_equal(verify_prefix(prefix, NULL, &r, &err), STATUS_LIMIT);
    verify_fini(&r);
    unlink(at(VERIFY_LIST));
    assert_int_equal(mkfifo(at(VERIFY_LIST), 0600), 0);
    assert_int_equal(verify_prefix(prefix, NULL, &r, &err), STATUS_IO);
    verify_fini(&r);
    unlink(at(VERIFY_LIST));
    assert_int_equal(verify_prefix(prefix, NULL, &r, &err), STATUS_NOT_FOUND);
    verify_fini(&r);
}

static void expect_signature(const struct minisign_key *key, enum signature_state want,
                             const char *why)
{
    struct verify_report r;
    struct error err = {0};
    assert_int_equal(verify_prefix(prefix, key, &r, &err), STATUS_OK);
    assert_string_equal(signature_state_name(r.signature), signature_state_name(want));
    assert_int_equal(verify_is_fine(&r), want != SIGNATURE_WRONG);
    if (want == SIGNATURE_WRONG && !strstr(r.why_wrong, why))
        fail_msg("%s", r.why_wrong);
    if (want == SIGNATURE_GOOD) {
        assert_string_equal(r.comment, why);
        assert_string_equal(r.key_id, "0807060504030201");
        assert_int_equal(r.is_key_from_package, key == NULL);
    }
    verify_fini(&r);
}

static void test_signatures(void **state)
{
    struct minisign_key key;
    struct error err = {0};
    struct stat st;
    char list[4096] = "";
    FILE *f = fopen(at(VERIFY_LIST), "r");
    assert_true(fread(list, 1, sizeof list - 1, f) > 0);
    fclose(f);
    write_key("outside.pub");
    assert_int_equal(verify_read_key(at("outside.pub"), &key, &err), STATUS_OK);
    expect_signature(NULL, SIGNATURE_ABSENT, "");
    expect_signature(&key, SIGNATURE_WRONG, "share/coxswain/SHA256SUMS.minisig is missing");
    write_signature(list, "cox\033 1.0");
    expect_signature(NULL, SIGNATURE_UNCHECKED, "");
    expect_signature(&key, SIGNATURE_GOOD, "cox\\x1b 1.0");
    write_key(VERIFY_KEY);
    expect_signature(NULL, SIGNATURE_GOOD, "cox\\x1b 1.0");
    put(VERIFY_KEY, "no key");
    expect_signature(NULL, SIGNATURE_WRONG, "release.pub is not a public key");
    expect_signature(&key, SIGNATURE_GOOD, "cox\\x1b 1.0");
    write_signature("another list", "x");
    expect_signature(&key, SIGNATURE_WRONG, "does not belong to the content");
    key.id[0]++;
    expect_signature(&key, SIGNATURE_WRONG, "not by the key 0807060504030202");
    unlink(at(VERIFY_SIGNATURE));
    assert_int_equal(symlink("/etc/passwd", at(VERIFY_SIGNATURE)), 0);
    assert_int_equal(lstat(at(VERIFY_SIGNATURE), &st), 0);
    expect_signature(&key, SIGNATURE_WRONG, "is a symbolic link");
}

static void test_keys(void **state)
{
    struct minisign_key key;
    struct error err = {0};
    assert_int_equal(verify_read_key(at("none.pub"), &key, &err), STATUS_INVALID);
    assert_int_not_equal(verify_read_key("/dev/zero", &key, &err), STATUS_OK);
    assert_int_not_equal(verify_read_key(prefix, &key, &err), STATUS_OK);
    assert_int_equal(mkfifo(at("fifo"), 0600), 0);
    assert_int_not_equal(verify_read_key(at("fifo"), &key, &err), STATUS_OK);
}

static int make_keys(void **state)
{
    uint8_t public_key[crypto_sign_PUBLICKEYBYTES];
    return sodium_init() < 0 || crypto_sign_keypair(public_key, secret) != 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_prefix, remove_prefix)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_files),
        TEST(test_unlisted),
        TEST(test_links_and_special_files),
        TEST(test_folder_that_is_a_link),
        TEST(test_huge_file),
        TEST(test_pages),
        TEST(test_lists),
        TEST(test_signatures),
        TEST(test_keys),
    };
    return cmocka_run_group_tests(tests, make_keys, NULL);
}
