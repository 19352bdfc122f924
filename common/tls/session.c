/* Runs the TLS session of one connection. The session uses a BIO of our own, which reads from
 * the bytes of tls_feed and writes to the buffer `out`. So no byte is kept except the part of a
 * record that OpenSSL itself holds. server.c reads the certificate files. The connection owns
 * the session. Only the loop thread calls these functions. */
#include "common/tls/session.h"

#include <stdio.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "common/base/mem.h"
#include "common/tls/server.h"

enum {
    RECORD_BYTES = 16 << 10, /* most plain bytes of a record */
    /* most bytes of a client's hello; OpenSSL would reserve 128 KiB before the hello has arrived */
    HELLO_MAX = 16 << 10,
    /* bytes that show the hello's length: 5 of the record's header, 4 of the message's */
    HELLO_HEAD = 9,
    KEEP_OUTPUT = 4096
};

struct tls_session {
    SSL *ssl;
    struct str in;
    struct strbuf out;
    uint8_t head[HELLO_HEAD]; /* first bytes that the client sent */
    uint8_t n_head;
    bool failed, not_tls, said_goodbye;
    char why[160];
};

/* ---- the BIO ---- */

static int bio_read(BIO *bio, char *out, size_t size, size_t *n)
{
    struct tls_session *t = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    *n = size < t->in.len ? size : t->in.len;
    if (*n == 0) {
        BIO_set_retry_read(bio);
        return 0;
    }
    memcpy(out, t->in.ptr, *n);
    t->in.ptr += *n;
    t->in.len -= *n;
    return 1;
}

static int bio_write(BIO *bio, const char *bytes, size_t size, size_t *n)
{
    struct tls_session *t = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    *n = size;
    return strbuf_append_str(&t->out, (struct str){bytes, size}) ? 1 : 0;
}

static long bio_ctrl(BIO *bio, int cmd, long larg, void *parg)
{
    return cmd == BIO_CTRL_FLUSH;
}

static const BIO_METHOD *bio_method(void)
{
    static BIO_METHOD *m;
    if (m)
        return m;
    m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "buffers");
    if (m) {
        BIO_meth_set_read_ex(m, bio_read);
        BIO_meth_set_write_ex(m, bio_write);
        BIO_meth_set_ctrl(m, bio_ctrl);
    }
    return m;
}

/* ---- start and end ---- */

struct tls_session *tls_session_new(struct tls_server *s)
{
    const BIO_METHOD *m = bio_method();
    struct tls_session *t = mem_zalloc(sizeof *t);
    strbuf_init(&t->out, 0);
    t->ssl = SSL_new(tls_server_context(s));
    BIO *bio = m && t->ssl ? BIO_new(m) : NULL;
    if (!bio) {
        ERR_clear_error();
        tls_session_free(t);
        return NULL;
    }
    BIO_set_data(bio, t);
    BIO_set_init(bio, 1);
    SSL_set_bio(t->ssl, bio, bio); /* SSL_set_bio takes ownership of `bio` */
    SSL_set_accept_state(t->ssl);
    return t;
}

void tls_session_free(struct tls_session *t)
{
    if (!t)
        return;
    SSL_free(t->ssl);
    strbuf_fini(&t->out);
    mem_free(t);
}

static void fail(struct tls_session *t)
{
    unsigned long e = ERR_peek_error();
    t->failed = true;
    t->not_tls = ERR_GET_LIB(e) == ERR_LIB_SSL && ERR_GET_REASON(e) == SSL_R_HTTP_REQUEST;
    const char *reason = ERR_reason_error_string(e);
    snprintf(t->why, sizeof t->why, "%s", reason ? reason : "the peer closed the connection");
    ERR_clear_error();
}

/* ---- bytes ---- */

/* Returns true when the first message announces too large a length. OpenSSL allocates memory for
 * the whole message at once, so thousands of connections with nine bytes each would take 128 KiB
 * each. */
static bool hello_is_too_long(struct tls_session *t, struct str bytes)
{
    while (t->n_head < HELLO_HEAD && bytes.len > 0) {
        t->head[t->n_head++] = (uint8_t)*bytes.ptr++;
        bytes.len--;
        if (t->n_head == HELLO_HEAD && t->head[0] == SSL3_RT_HANDSHAKE)
            return ((uint32_t)t->head[6] << 16 | (uint32_t)t->head[7] << 8 | t->head[8]) >
                   HELLO_MAX;
    }
    return false;
}

void tls_feed(struct tls_session *t, struct str bytes)
{
    if (!t->failed && hello_is_too_long(t, bytes)) {
        t->failed = true;
        snprintf(t->why, sizeof t->why, "the first message of the peer is longer than %d bytes",
                 HELLO_MAX);
    }
    t->in = t->failed ? STR("") : bytes;
}

enum tls_step tls_read(struct tls_session *t, char *out, size_t size, size_t *n)
{
    *n = 0;
    if (t->failed)
        return TLS_FAILED;
    ERR_clear_error();
    if (SSL_read_ex(t->ssl, out, size, n) == 1)
        return TLS_BYTES;
    switch (SSL_get_error(t->ssl, 0)) {
    case SSL_ERROR_WANT_READ:
        t->in = STR("");
        return TLS_MORE;
    case SSL_ERROR_ZERO_RETURN:
        t->in = STR("");
        return TLS_CLOSED;
    default:
        fail(t);
        t->in = STR("");
        return t->not_tls ? TLS_NOT_TLS : TLS_FAILED;
    }
}

bool tls_is_up(const struct tls_session *t)
{
    return !t->failed && SSL_is_init_finished(t->ssl);
}

static bool write_all(struct tls_session *t, struct str bytes)
{
    size_t n = 0;
    ERR_clear_error();
    /* The buffer accepts all bytes, so a partial write is an error. */
    if (bytes.len == 0 || (SSL_write_ex(t->ssl, bytes.ptr, bytes.len, &n) == 1 && n == bytes.len))
        return true;
    fail(t);
    return false;
}

bool tls_write(struct tls_session *t, const struct str *parts, size_t n_parts)
{
    char together[RECORD_BYTES];
    size_t n = 0;
    if (!tls_is_up(t) || t->said_goodbye)
        return false;
    for (size_t i = 0; i < n_parts; i++) {
        if (parts[i].len <= sizeof together - n) {
            if (parts[i].len)
                memcpy(together + n, parts[i].ptr, parts[i].len);
            n += parts[i].len;
            continue;
        }
        if (!write_all(t, (struct str){together, n}) || !write_all(t, parts[i]))
            return false;
        n = 0;
    }
    return write_all(t, (struct str){together, n});
}

void tls_close_notify(struct tls_session *t)
{
    if (!tls_is_up(t) || t->said_goodbye)
        return;
    t->said_goodbye = true;
    ERR_clear_error();
    if (SSL_shutdown(t->ssl) < 0)
        fail(t);
}

struct str tls_output(const struct tls_session *t)
{
    return strbuf_str(&t->out);
}

void tls_output_sent(struct tls_session *t)
{
    /* the buffer is freed, because thousands of idle connections must keep no buffers */
    strbuf_trim(&t->out, KEEP_OUTPUT);
}

const char *tls_why(const struct tls_session *t)
{
    return t->why;
}
