/* Tests keys in PEM form. The vectors are from RFC 8032 (7.1, test 1) and RFC 7748 (6.1). The
 * X25519 form of the Ed25519 key was computed without a library, from the RFCs' formulas over
 * integers. `key_pem_secret` and `key_pem_publics` turn a text into 32 raw bytes. A text that is
 * cut or of another type must be refused with the file's name. */
#include "common/keys/pem.h"

#include <openssl/pem.h>
#include <openssl/x509.h>
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define ED_SECRET                                                                                  \
    "-----BEGIN PRIVATE KEY-----\n"                                                                \
    "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n"                           \
    "-----END PRIVATE KEY-----\n"
#define ED_PUBLIC                                                                                  \
    "-----BEGIN PUBLIC KEY-----\n"                                                                 \
    "MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n"                               \
    "-----END PUBLIC KEY-----\n"
static const char ed_seed[] = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
static const char as_secret[] = "307c83864f2833cb427a2ef1c00a013cfdff2768d980c0a3a520f006904de94f";
static const char as_public[] = "d85e07ec22b0ad881537c2f44d662d1a143cf830c57aca4305d85c7a90f6b62e";
static const char x_secret[] = "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb";
static const char x_public[] = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f";
static const char alices[] = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a";

static void assert_key(const uint8_t *key, const char *hex)
{
    char text[2 * PEM_KEY_BYTES + 1];
    assert_string_equal(sodium_bin2hex(text, sizeof text, key, PEM_KEY_BYTES), hex);
}

static struct str secret_pem(int type, const char *hex, char *to, size_t size)
{
    uint8_t raw[PEM_KEY_BYTES];
    assert_int_equal(sodium_hex2bin(raw, sizeof raw, hex, 64, NULL, NULL, NULL), 0);
    EVP_PKEY *key = EVP_PKEY_new_raw_private_key(type, NULL, raw, sizeof raw);
    BIO *out = BIO_new(BIO_s_mem());
    assert_true(PEM_write_bio_PrivateKey(out, key, NULL, NULL, 0, NULL, NULL) == 1);
    int n = BIO_read(out, to, (int)size);
    assert_true(n > 0 && (size_t)n < size);
    BIO_free(out);
    EVP_PKEY_free(key);
    return (struct str){to, (size_t)n};
}

/* Makes a self-signed Ed25519 certificate, as Helm's genSelfSignedCertWithKey does. The
 * certificate has expired. */
static struct str certificate(const char *seed, char *to, size_t size)
{
    uint8_t raw[PEM_KEY_BYTES];
    assert_int_equal(sodium_hex2bin(raw, sizeof raw, seed, 64, NULL, NULL, NULL), 0);
    EVP_PKEY *key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, raw, sizeof raw);
    X509 *x = X509_new();
    X509_NAME *name = X509_get_subject_name(x);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const uint8_t *)"worker", -1, -1, 0);
    X509_set_issuer_name(x, name);
    X509_gmtime_adj(X509_getm_notBefore(x), -7200);
    X509_gmtime_adj(X509_getm_notAfter(x), -3600);
    X509_set_pubkey(x, key);
    assert_true(X509_sign(x, key, NULL) > 0);
    BIO *out = BIO_new(BIO_s_mem());
    assert_true(PEM_write_bio_X509(out, x) == 1);
    int n = BIO_read(out, to, (int)size - 1);
    assert_true(n > 0);
    to[n] = '\0';
    BIO_free(out);
    X509_free(x);
    EVP_PKEY_free(key);
    return (struct str){to, (size_t)n};
}

static void test_secrets(void **state)
{
    uint8_t key[PEM_KEY_BYTES], public_key[PEM_KEY_BYTES];
    char text[1024];
    struct error err = {0};
    assert_int_equal(key_pem_secret(STR(ED_SECRET), "k", key, &err), STATUS_OK);
    assert_key(key, as_secret);
    crypto_scalarmult_base(public_key, key);
    assert_key(public_key, as_public);
    assert_int_equal(key_pem_secret(STR("# made by hand\r\n\n" ED_SECRET " \n#"), "k", key, &err),
                     STATUS_OK);
    struct str x = secret_pem(EVP_PKEY_X25519, x_secret, text, sizeof text);
    assert_int_equal(key_pem_secret(x, "k", key, &err), STATUS_OK);
    /* the public key is computed from `key`, because OpenSSL may have clamped the secret */
    crypto_scalarmult_base(public_key, key);
    assert_key(public_key, x_public);
    /* every prefix must be refused, except that the last newline is optional */
    for (size_t n = 0; n < x.len - 1; n++)
        assert_int_equal(key_pem_secret((struct str){x.ptr, n}, "k", key, &err), STATUS_INVALID);
}

static void test_publics(void **state)
{
    uint8_t keys[2][PEM_KEY_BYTES];
    char text[8192], one[2048];
    uint32_t n;
    struct error err = {0};
    assert_int_equal(key_pem_publics(STR(ED_PUBLIC), "k", keys, 2, &n, &err), STATUS_OK);
    assert_int_equal(n, 1);
    assert_key(keys[0], as_public);
    struct str c = certificate(ed_seed, one, sizeof one);
    assert_int_equal(key_pem_publics(c, "k", keys, 2, &n, &err), STATUS_OK);
    assert_int_equal(n, 1);
    assert_key(keys[0], as_public);
    /* While a key is being changed the file has two keys, the newest first and each in any form. */
    int len = snprintf(text, sizeof text, "%s\n# the old one\n%s",
                       "-----BEGIN PUBLIC KEY-----\n"
                       "MCowBQYDK2VuAyEAhSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=\n"
                       "-----END PUBLIC KEY-----",
                       one);
    assert_int_equal(key_pem_publics((struct str){text, (size_t)len}, "k", keys, 2, &n, &err),
                     STATUS_OK);
    assert_int_equal(n, 2);
    assert_key(keys[0], alices);
    assert_key(keys[1], as_public);
    len = snprintf(text, sizeof text, "%s%s%s", one, one, one);
    assert_int_equal(key_pem_publics((struct str){text, (size_t)len}, "k", keys, 2, &n, &err),
                     STATUS_INVALID);
    assert_non_null(strstr(err.text, "k contains more than 2 keys"));
    for (size_t i = 0; i < c.len - 1; i++)
        assert_int_not_equal(key_pem_publics((struct str){c.ptr, i}, "k", keys, 2, &n, &err),
                             STATUS_OK);
}

static struct str rsa_or_ec(const char *kind, char *to, size_t size)
{
    EVP_PKEY *key = strcmp(kind, "EC") == 0 ? EVP_EC_gen("P-256") : EVP_RSA_gen(1024);
    BIO *out = BIO_new(BIO_s_mem());
    assert_true(PEM_write_bio_PKCS8PrivateKey(out, key, NULL, NULL, 0, NULL, NULL) == 1);
    int n = BIO_read(out, to, (int)size);
    assert_true(n > 0);
    BIO_free(out);
    EVP_PKEY_free(key);
    return (struct str){to, (size_t)n};
}

static void test_others_are_refused_by_name(void **state)
{
    static const struct {
        struct str text;
        const char *says;
    } secrets[] = {
        {{NULL, 0}, "one complete PEM block"},
        {{ED_SECRET ED_SECRET, sizeof(ED_SECRET ED_SECRET) - 1}, "one complete PEM block"},
        {{"x" ED_SECRET, sizeof("x" ED_SECRET) - 1}, "one complete PEM block"},
        {{ED_PUBLIC, sizeof(ED_PUBLIC) - 1}, "\"PUBLIC KEY\"; it must be a PRIVATE KEY"},
        {STR("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----"),
         "is encrypted"},
        {STR("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), "cannot be read"},
        {STR("-----BEGIN -----\n-----END -----\n"), "one complete PEM block"},
        {STR("-----BEGIN PRIVATE KEY-----\nMC4C\n-----END PUBLIC KEY-----\n"), "one complete PEM"},
    };
    static const struct {
        struct str text;
        const char *says;
    } publics[] = {
        {{ED_SECRET, sizeof(ED_SECRET) - 1}, "\"PRIVATE KEY\"; it must be a CERTIFICATE"},
        {{ED_PUBLIC "rq:rM>}U", sizeof(ED_PUBLIC "rq:rM>}U") - 1},
         "something besides complete PEM blocks"},
        {STR("# nothing\n"), "contains no key"},
        {STR("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "cannot be read"},
        /* the key is y = 1, a point of order one, for which u would be 1 / 0 */
        {STR("-----BEGIN PUBLIC KEY-----\n"
             "MCowBQYDK2VwAyEAAQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"
             "-----END PUBLIC KEY-----\n"),
         "not a valid point"},
    };
    uint8_t key[2][PEM_KEY_BYTES];
    char text[4096];
    uint32_t n;
    struct error err = {0};
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++)
        if (key_pem_secret(secrets[i].text, "k", key[0], &err) == STATUS_OK ||
            !strstr(err.text, secrets[i].says))
            fail_msg("secret %zu: %s", i, err.text);
    for (size_t i = 0; i < sizeof publics / sizeof *publics; i++)
        if (key_pem_publics(publics[i].text, "k", key, 2, &n, &err) == STATUS_OK ||
            !strstr(err.text, publics[i].says))
            fail_msg("public %zu: %s", i, err.text);
    for (int i = 0; i < 2; i++) {
        struct str s = rsa_or_ec(i ? "RSA" : "EC", text, sizeof text);
        assert_int_equal(key_pem_secret(s, "k", key[0], &err), STATUS_INVALID);
        assert_non_null(strstr(err.text, i ? "of RSA; it must be" : "of EC; it must be"));
    }
}

static void test_z85_is_no_pem(void **state)
{
    assert_false(key_pem_is(STR("")));
    assert_false(key_pem_is(STR("rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7\n")));
    assert_true(key_pem_is(STR(" \n" ED_PUBLIC)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_secrets),
        cmocka_unit_test(test_publics),
        cmocka_unit_test(test_others_are_refused_by_name),
        cmocka_unit_test(test_z85_is_no_pem),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
