#pragma once
/* Makes new certificates for tests: an authority and the certificates that it signs, on P-256. */
#include <stdio.h>
#include <stdlib.h>

#include <openssl/pem.h>
#include <openssl/x509v3.h>

struct tls_identity {
    EVP_PKEY *key;
    X509 *cert;
};

static inline void tls_identity_fini(struct tls_identity *i)
{
    EVP_PKEY_free(i->key);
    X509_free(i->cert);
}

/* Makes a certificate for `name`, signed by `issuer`. NULL = self-signed. */
static inline struct tls_identity tls_identity_make(const char *name,
                                                    const struct tls_identity *issuer)
{
    static long serial = 1;
    struct tls_identity i = {EVP_EC_gen("P-256"), X509_new()};
    X509_NAME *subject = X509_get_subject_name(i.cert);
    X509_set_version(i.cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(i.cert), serial++);
    X509_gmtime_adj(X509_getm_notBefore(i.cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(i.cert), 86400);
    X509_set_pubkey(i.cert, i.key);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(i.cert, issuer ? X509_get_subject_name(issuer->cert) : subject);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, NULL, NID_basic_constraints,
                                            issuer ? "CA:FALSE" : "critical,CA:TRUE");
    if (!i.key || !e || !X509_add_ext(i.cert, e, -1) ||
        !X509_sign(i.cert, issuer ? issuer->key : i.key, EVP_sha256()))
        abort();
    X509_EXTENSION_free(e);
    return i;
}

/* Writes the certificate and then the key to `path`. NULL leaves one out. */
static inline void tls_identity_write(const char *path, const X509 *cert, const EVP_PKEY *key,
                                      const char *password)
{
    FILE *f = fopen(path, "we");
    if (!f || (cert && !PEM_write_X509(f, cert)) ||
        (key && !PEM_write_PrivateKey(f, key, password ? EVP_aes_128_cbc() : NULL, NULL, 0, NULL,
                                      (void *)password)))
        abort();
    fclose(f);
}
