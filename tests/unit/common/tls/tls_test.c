/* Tests TLS sessions against OpenSSL's own client. Client and server live in memory, and `carry`
 * moves their bytes in pieces of every size. The tests also write certificate files and let the
 * server reload them. A bad handshake must fail with an alert, a session keeps its own
 * certificate, and half of a changed pair is never used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <fcntl.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "common/tls/server.h"
#include "common/tls/session.h"
#include "tests/unit/common/tls/tls_files.h"

static char folder[] = "/tmp/coxtls-XXXXXX";
static struct tls_identity ca, server, client, stranger;

static const char *path(const char *name)
{
    static char all[64][128];
    static unsigned i;
    char *p = all[i++ % 64];
    snprintf(p, sizeof all[0], "%s/%s", folder, name);
    return p;
}

static int make_files(void **state)
{
    assert_non_null(mkdtemp(folder));
    ca = tls_identity_make("authority", NULL);
    server = tls_identity_make("server", &ca);
    client = tls_identity_make("client", &ca);
    stranger = tls_identity_make("stranger", NULL);
    tls_identity_write(path("cert"), server.cert, NULL, NULL);
    tls_identity_write(path("key"), NULL, server.key, NULL);
    tls_identity_write(path("both"), server.cert, server.key, NULL);
    tls_identity_write(path("locked"), NULL, server.key, "sesame");
    tls_identity_write(path("other"), NULL, client.key, NULL);
    tls_identity_write(path("ca"), ca.cert, NULL, NULL);
    tls_identity_write(path("empty"), NULL, NULL, NULL);
    return 0;
}

static int remove_files(void **state)
{
    static const char *const names[] = {"cert",  "key", "both",  "locked",
                                        "other", "ca",  "empty", "live"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        (void)unlink(path(names[i]));
    tls_identity_fini(&ca);
    tls_identity_fini(&server);
    tls_identity_fini(&client);
    tls_identity_fini(&stranger);
    return rmdir(folder);
}

/* ---- a client in memory ---- */

struct peer {
    struct tls_server *server;
    struct tls_session *session;
    SSL_CTX *context;
    SSL *ssl;
    BIO *in, *out; /* memory buffers of the client */
    enum tls_step step;
    char got[1 << 16];
    size_t n_got;
};

struct way { /* options of the client */
    const char *alpn;
    const struct tls_identity *with;
    int max_version;
    enum tls_client_certs wanted;
};

static void begin(struct peer *p, const struct way *w)
{
    struct error err = {0};
    const struct tls_options o = {.certfile = path("cert"),
                                  .keyfile = path("key"),
                                  .ca_certs = w->wanted ? path("ca") : NULL,
                                  .client_certs = w->wanted};
    *p = (struct peer){.in = BIO_new(BIO_s_mem()), .out = BIO_new(BIO_s_mem())};
    if (tls_server_new(&o, &p->server, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    p->session = tls_session_new(p->server);
    assert_non_null(p->session);
    p->context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_security_level(p->context, 0);
    if (w->max_version)
        SSL_CTX_set_max_proto_version(p->context, w->max_version);
    if (w->alpn)
        SSL_CTX_set_alpn_protos(p->context, (const unsigned char *)w->alpn,
                                (unsigned)strlen(w->alpn));
    if (w->with) {
        SSL_CTX_use_certificate(p->context, w->with->cert);
        SSL_CTX_use_PrivateKey(p->context, w->with->key);
    }
    p->ssl = SSL_new(p->context);
    SSL_set_bio(p->ssl, p->in, p->out);
    SSL_set_connect_state(p->ssl);
}

static void end(struct peer *p)
{
    SSL_free(p->ssl);
    SSL_CTX_free(p->context);
    tls_server_free(p->server); /* the server is freed before the session, which stays valid */
    tls_session_free(p->session);
}

static void feed(struct peer *p, struct str bytes)
{
    size_t n;
    tls_feed(p->session, bytes);
    while ((p->step = tls_read(p->session, p->got + p->n_got, sizeof p->got - p->n_got, &n)) ==
           TLS_BYTES)
        p->n_got += n;
    struct str out = tls_output(p->session);
    if (out.len)
        assert_int_equal(BIO_write(p->in, out.ptr, (int)out.len), out.len);
    tls_output_sent(p->session);
    assert_int_equal(tls_output(p->session).len, 0);
}

/* Moves the client's bytes to the server in pieces of `piece` bytes. */
static void carry(struct peer *p, size_t piece)
{
    char bytes[4096];
    int n;
    while ((n = BIO_read(p->out, bytes, (int)(piece < sizeof bytes ? piece : sizeof bytes))) > 0)
        feed(p, (struct str){bytes, (size_t)n});
}

/* Returns true when client and server report a finished handshake. */
static bool shake(struct peer *p, size_t piece)
{
    int rc = 0;
    for (int i = 0; i < 8 && rc != 1; i++) {
        ERR_clear_error();
        rc = SSL_do_handshake(p->ssl);
        bool broken = rc != 1 && SSL_get_error(p->ssl, rc) != SSL_ERROR_WANT_READ;
        carry(p, piece);
        if (broken)
            return false;
    }
    return rc == 1 && tls_is_up(p->session);
}

static void bytes_go_both_ways_in_any_pieces(void **state)
{
    static const size_t pieces[] = {1, 5, 333, 4096};
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    static char big[40000], back[40000];
    memset(big, 'b', sizeof big);
    for (size_t k = 0; k < 8; k++) {
        struct peer p;
        const struct way w = {.alpn = "\x02h2\x08http/1.1", .max_version = versions[k % 2]};
        const struct str parts[] = {STR("a"), {big, sizeof big}, STR("cd")};
        const unsigned char *protocol;
        unsigned n_protocol;
        size_t n = 0, n_back = 0;
        begin(&p, &w);
        /* no write is possible before the handshake */
        assert_false(tls_write(p.session, parts, 3));
        assert_true(shake(&p, pieces[k / 2]));
        SSL_get0_alpn_selected(p.ssl, &protocol, &n_protocol);
        assert_int_equal(n_protocol, 8);
        assert_memory_equal(protocol, "http/1.1", 8);
        assert_int_equal(SSL_write(p.ssl, big, sizeof big), sizeof big);
        carry(&p, pieces[k / 2]);
        assert_int_equal(p.n_got, sizeof big);
        assert_memory_equal(p.got, big, sizeof big);
        assert_true(tls_write(p.session, parts, 3));
        tls_close_notify(p.session);
        assert_false(tls_write(p.session, parts, 3)); /* no write is possible after close_notify */
        feed(&p, STR(""));
        for (; SSL_read_ex(p.ssl, back, sizeof back, &n) == 1; n_back += n)
            if (n_back == 0)
                assert_int_equal(back[0], 'a');
        assert_int_equal(n_back, sizeof big + 3);
        assert_int_equal(SSL_get_error(p.ssl, 0), SSL_ERROR_ZERO_RETURN);
        SSL_shutdown(p.ssl);
        carry(&p, 1);
        assert_int_equal(p.step, TLS_CLOSED);
        end(&p);
    }
}

static void who_may_shake_hands(void **state)
{
    static const struct {
        const char *name;
        struct way way;
        bool fine;
    } cases[] = {
        {"no ALPN", {0}, true},
        {"another protocol alone", {.alpn = "\x02h2"}, false},
        {"TLS 1.1", {.max_version = TLS1_1_VERSION}, false},
        {"a certificate that nobody asked for", {.with = &client}, true},
        {"optional, none", {.wanted = TLS_CERT_OPTIONAL}, true},
        {"optional, good", {.wanted = TLS_CERT_OPTIONAL, .with = &client}, true},
        {"optional, a stranger's", {.wanted = TLS_CERT_OPTIONAL, .with = &stranger}, false},
        {"required, none", {.wanted = TLS_CERT_REQUIRED}, false},
        {"required, good", {.wanted = TLS_CERT_REQUIRED, .with = &client}, true},
        {"required, a stranger's", {.wanted = TLS_CERT_REQUIRED, .with = &stranger}, false},
        {"required, none, TLS 1.2",
         {.wanted = TLS_CERT_REQUIRED, .max_version = TLS1_2_VERSION},
         false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct peer p;
        begin(&p, &cases[i].way);
        bool up = shake(&p, 1000);
        if (up != cases[i].fine || (p.step == TLS_FAILED) == cases[i].fine)
            fail_msg("%s: up=%d step=%d %s", cases[i].name, up, p.step, tls_why(p.session));
        assert_true(cases[i].fine == (tls_why(p.session)[0] == '\0'));
        end(&p);
    }
}

static void renegotiation_is_refused(void **state)
{
    struct peer p;
    const struct way w = {.max_version = TLS1_2_VERSION};
    begin(&p, &w);
    assert_true(shake(&p, 100));
    assert_int_equal(SSL_renegotiate(p.ssl), 1);
    (void)SSL_do_handshake(p.ssl);
    carry(&p, 100);
    /* the client gets an alert, because there is no renegotiation */
    assert_true(SSL_do_handshake(p.ssl) != 1);
    end(&p);
}

static void what_is_no_tls(void **state)
{
    static const struct {
        struct str bytes;
        enum tls_step step;
    } cases[] = {
        {STR("GET /health HTTP/1.1\r\n\r\n"), TLS_NOT_TLS},
        {STR("POST / HTTP/1.1\r\n\r\n"), TLS_NOT_TLS},
        {STR("SSH-2.0-OpenSSH_9.2\r\n"), TLS_FAILED},
        /* the bytes announce a hello of 64 KiB */
        {STR("\x16\x03\x01\x40\x00\x01\x00\xff\xff"), TLS_FAILED},
        {STR("\x16\x03\x01\x00\x04\x01\x00\x00\x00"), TLS_FAILED}, /* the hello is empty */
        /* the hello has the largest allowed length */
        {STR("\x16\x03\x01\x40\x00\x01\x00\x3f\xfc"), TLS_MORE},
        {STR("\x16\x03"), TLS_MORE},
        {STR(""), TLS_MORE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t piece = 1; piece < 64; piece += 62) {
            struct peer p;
            const struct way w = {0};
            begin(&p, &w);
            for (size_t at = 0; at < cases[i].bytes.len && p.step != TLS_NOT_TLS; at += piece) {
                size_t left = cases[i].bytes.len - at;
                feed(&p, (struct str){cases[i].bytes.ptr + at, left < piece ? left : piece});
            }
            if (cases[i].bytes.len == 0)
                feed(&p, STR(""));
            if (p.step != cases[i].step)
                fail_msg("case %zu in %zu: %d, %s", i, piece, p.step, tls_why(p.session));
            end(&p);
        }
}

static void files_are_checked(void **state)
{
    const struct {
        struct tls_options o;
        const char *error; /* words of the error; NULL = accepted */
    } cases[] = {
        {{.certfile = path("cert"), .keyfile = path("key")}, NULL},
        {{.certfile = path("both")}, NULL},
        {{.certfile = path("cert"), .keyfile = path("locked"), .key_password = "sesame"}, NULL},
        {{.certfile = path("cert"), .keyfile = path("locked"), .key_password = "open"}, "locked"},
        {{.certfile = path("cert"), .keyfile = path("locked")}, "locked"},
        {{.certfile = path("absent"), .keyfile = path("key")}, "No such file"},
        {{.certfile = path("empty"), .keyfile = path("key")}, "empty"},
        {{.certfile = path("cert")}, "cert"},
        {{.certfile = path("cert"), .keyfile = path("other")}, "mismatch"},
        {{.certfile = path("both"), .client_certs = TLS_CERT_REQUIRED}, "--ssl-ca-certs"},
        {{.certfile = path("both"), .client_certs = TLS_CERT_REQUIRED, .ca_certs = path("empty")},
         "empty"},
        {{.certfile = path("both"), .ciphers = "ECDHE+AESGCM"}, NULL},
        {{.certfile = path("both"), .ciphers = "nonsense"}, "nonsense"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tls_server *s = NULL;
        struct error err = {0};
        enum status st = tls_server_new(&cases[i].o, &s, &err);
        if ((st == STATUS_OK) != !cases[i].error ||
            (cases[i].error && !strstr(err.text, cases[i].error)))
            fail_msg("case %zu: %s", i, err.text);
        if (s)
            assert_true(strstr(tls_server_expires(s), "GMT") != NULL);
        tls_server_free(s);
    }
}

/* Writes the file and sets a time of its own for each write. The kernel's file clock advances
 * only every few milliseconds, and two files of equal size would appear unchanged. */
static void write_live(const X509 *cert, const EVP_PKEY *key)
{
    static time_t now = 1000000000;
    now++;
    const struct timespec times[2] = {{.tv_sec = now}, {.tv_sec = now}};
    tls_identity_write(path("live"), cert, key, NULL);
    assert_int_equal(utimensat(AT_FDCWD, path("live"), times, 0), 0);
}

/* Calls `tls_server_look` twice. The first call detects a change, and the second finds that the
 * change is complete. */
static enum status look_twice(struct tls_server *s, bool *changed, struct error *err)
{
    assert_int_equal(tls_server_look(s, changed, err), STATUS_OK);
    assert_false(*changed);
    return tls_server_look(s, changed, err);
}

static void files_are_read_again(void **state)
{
    struct tls_server *s;
    struct error err = {0};
    const struct tls_options o = {.certfile = path("live")};
    struct tls_identity next = tls_identity_make("next", &ca);
    bool changed;
    write_live(server.cert, server.key);
    assert_int_equal(tls_server_new(&o, &s, &err), STATUS_OK);
    assert_int_equal(look_twice(s, &changed, &err), STATUS_OK);
    assert_false(changed);
    struct tls_session *old = tls_session_new(s);

    write_live(next.cert, server.key); /* the file has the new certificate with the old key */
    assert_int_equal(look_twice(s, &changed, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "mismatch"));
    /* the error was already reported, and is reported only once */
    assert_int_equal(look_twice(s, &changed, &err), STATUS_OK);
    assert_false(changed);
    assert_int_equal(unlink(path("live")), 0);
    assert_int_equal(look_twice(s, &changed, &err), STATUS_INVALID);

    write_live(next.cert, next.key);
    assert_int_equal(look_twice(s, &changed, &err), STATUS_OK);
    assert_true(changed);
    tls_server_free(s);
    tls_feed(old, STR("x")); /* the old session still has its own certificate */
    char byte;
    size_t n;
    assert_int_equal(tls_read(old, &byte, 1, &n), TLS_MORE);
    tls_session_free(old);
    tls_identity_fini(&next);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_go_both_ways_in_any_pieces),
        cmocka_unit_test(who_may_shake_hands),
        cmocka_unit_test(renegotiation_is_refused),
        cmocka_unit_test(what_is_no_tls),
        cmocka_unit_test(files_are_checked),
        cmocka_unit_test(files_are_read_again),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
