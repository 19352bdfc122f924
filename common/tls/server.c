/* Keeps the certificate, key and client authorities of a TLS server. tls_server_new reads the
 * files into one SSL_CTX, from which session.c makes a session for each connection.
 * tls_server_look replaces the context when the files have changed.
 * OpenSSL counts the sessions of a context, so an old context is freed with its last session. A
 * change is applied only when two checks in a row find the same files, since another process may
 * still be writing them. An error keeps the old certificate. Only the loop thread calls these
 * functions. */
#include "common/tls/server.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "common/base/mem.h"

#define CIPHERS "ECDHE+AESGCM:ECDHE+CHACHA20"

enum { N_FILES = 3, CLIENT_CERTS_MAX = 64 << 10 };

struct stamp {
    int64_t mtime_ns, size;
    uint64_t inode;
};

struct tls_server {
    struct tls_options o;
    SSL_CTX *context;
    struct stamp read[N_FILES], seen[N_FILES];
    char expires[40];
    int64_t expires_s;
};

SSL_CTX *tls_server_context(const struct tls_server *s)
{
    return s->context;
}

int64_t tls_server_expires_s(const struct tls_server *s)
{
    return s->expires_s;
}

const char *tls_server_expires(const struct tls_server *s)
{
    return s->expires;
}

/* ---- reading the files ---- */

static enum status openssl_error(const char *what, const char *path, struct error *err)
{
    /* the first error is the cause; later errors only follow from it */
    unsigned long e = ERR_peek_error();
    const char *reason =
        ERR_SYSTEM_ERROR(e) ? strerror(ERR_GET_REASON(e)) : ERR_reason_error_string(e);
    enum status s = error_set(err, STATUS_INVALID, "cannot use the %s %s: %s", what, path,
                              reason ? reason : "OpenSSL gives no reason");
    ERR_clear_error();
    return s;
}

/* Gives OpenSSL the password, or an error when there is none. Otherwise OpenSSL would ask at the
 * terminal. */
static int give_password(char *out, int size, int writing, void *ctx)
{
    int n = ctx ? snprintf(out, (size_t)size, "%s", (const char *)ctx) : 0;
    return n > 0 && n < size ? n : -1;
}

static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *n_out,
                           const unsigned char *in, unsigned n_in, void *ctx)
{
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *found;
    int rc = SSL_select_next_proto(&found, n_out, ours, sizeof ours - 1, in, n_in);
    if (rc != OPENSSL_NPN_NEGOTIATED)
        /* the client offers no protocol that we speak (RFC 7301) */
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = found;
    return SSL_TLSEXT_ERR_OK;
}

static enum status set_clients(SSL_CTX *c, const struct tls_options *o, struct error *err)
{
    if (o->client_certs == TLS_CERT_NONE)
        return STATUS_OK;
    if (!o->ca_certs)
        return error_set(err, STATUS_INVALID,
                         "--ssl-cert-reqs asks for client certificates, but no authority is given. "
                         "Add --ssl-ca-certs FILE");
    STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(o->ca_certs);
    if (!names || SSL_CTX_load_verify_locations(c, o->ca_certs, NULL) != 1) {
        sk_X509_NAME_pop_free(names, X509_NAME_free);
        return openssl_error("authorities", o->ca_certs, err);
    }
    /* SSL_CTX_set_client_CA_list takes ownership of `names` */
    SSL_CTX_set_client_CA_list(c, names);
    int must = o->client_certs == TLS_CERT_REQUIRED ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0;
    SSL_CTX_set_verify(c, SSL_VERIFY_PEER | must, NULL);
    return STATUS_OK;
}

static void set_policy(SSL_CTX *c)
{
    SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION);
    SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                               SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS);
    /* tickets are used instead of the cache, because they need no memory in this process */
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_session_id_context(c, (const unsigned char *)"coxswain", 8);
    SSL_CTX_set_max_cert_list(c, CLIENT_CERTS_MAX);
    SSL_CTX_set_alpn_select_cb(c, choose_protocol, NULL);
    SSL_CTX_set_default_passwd_cb(c, give_password);
}

static enum status fill_context(SSL_CTX *c, const struct tls_options *o, struct error *err)
{
    const char *key = o->keyfile ? o->keyfile : o->certfile;
    set_policy(c);
    SSL_CTX_set_default_passwd_cb_userdata(c, (void *)o->key_password);
    if (SSL_CTX_set_cipher_list(c, o->ciphers ? o->ciphers : CIPHERS) != 1)
        return openssl_error("ciphers", o->ciphers ? o->ciphers : CIPHERS, err);
    if (SSL_CTX_use_certificate_chain_file(c, o->certfile) != 1)
        return openssl_error("certificate", o->certfile, err);
    if (SSL_CTX_use_PrivateKey_file(c, key, SSL_FILETYPE_PEM) != 1)
        return openssl_error("private key", key, err);
    if (SSL_CTX_check_private_key(c) != 1)
        return openssl_error("private key", key, err);
    return set_clients(c, o, err);
}

static enum status read_files(const struct tls_options *o, SSL_CTX **out, struct error *err)
{
    ERR_clear_error();
    SSL_CTX *c = SSL_CTX_new(TLS_server_method());
    if (!c)
        return openssl_error("TLS", "of a server", err);
    enum status s = fill_context(c, o, err);
    if (s != STATUS_OK) {
        SSL_CTX_free(c);
        return s;
    }
    *out = c;
    return STATUS_OK;
}

static void take(struct tls_server *s, SSL_CTX *c)
{
    SSL_CTX_free(s->context);
    s->context = c;
    BIO *text = BIO_new(BIO_s_mem());
    const X509 *x = SSL_CTX_get0_certificate(c);
    int n = -1;
    if (text && x && ASN1_TIME_print(text, X509_get0_notAfter(x)) == 1)
        n = BIO_read(text, s->expires, sizeof s->expires - 1);
    s->expires[n > 0 ? n : 0] = '\0';
    struct tm tm;
    s->expires_s = x && ASN1_TIME_to_tm(X509_get0_notAfter(x), &tm) == 1 ? timegm(&tm) : 0;
    BIO_free(text);
    ERR_clear_error();
}

/* ---- changes of the files ---- */

static void look(const struct tls_server *s, struct stamp out[N_FILES])
{
    const char *paths[N_FILES] = {s->o.certfile, s->o.keyfile, s->o.ca_certs};
    struct stat st;
    for (size_t i = 0; i < N_FILES; i++) {
        out[i] =
            /* -1 means that the file is gone, which is a change too */
            (struct stamp){.mtime_ns = paths[i] ? -1 : 0};
        if (paths[i] && stat(paths[i], &st) == 0)
            out[i] = (struct stamp){.mtime_ns = st.st_mtim.tv_sec * INT64_C(1000000000) +
                                                st.st_mtim.tv_nsec,
                                    .size = st.st_size,
                                    .inode = (uint64_t)st.st_ino};
    }
}

static bool same(const struct stamp *a, const struct stamp *b)
{
    for (size_t i = 0; i < N_FILES; i++)
        if (a[i].mtime_ns != b[i].mtime_ns || a[i].size != b[i].size || a[i].inode != b[i].inode)
            return false;
    return true;
}

enum status tls_server_look(struct tls_server *s, bool *changed, struct error *err)
{
    struct stamp now[N_FILES];
    SSL_CTX *next = NULL;
    *changed = false;
    look(s, now);
    bool settled = same(now, s->seen);
    memcpy(s->seen, now, sizeof now);
    if (same(now, s->read) || !settled)
        return STATUS_OK;
    /* the new state counts as read also after an error, so that the error is reported once */
    memcpy(s->read, now, sizeof now);
    TRY(read_files(&s->o, &next, err));
    take(s, next);
    *changed = true;
    return STATUS_OK;
}

enum status tls_server_new(const struct tls_options *o, struct tls_server **out, struct error *err)
{
    struct tls_server *s = mem_zalloc(sizeof *s);
    SSL_CTX *c = NULL;
    s->o = *o;
    /* the state is recorded before the read, so that a later write counts as a change */
    look(s, s->read);
    memcpy(s->seen, s->read, sizeof s->read);
    enum status st = read_files(o, &c, err);
    if (st != STATUS_OK) {
        mem_free(s);
        return st;
    }
    take(s, c);
    *out = s;
    return STATUS_OK;
}

void tls_server_free(struct tls_server *s)
{
    if (!s)
        return;
    SSL_CTX_free(s->context);
    mem_free(s);
}
