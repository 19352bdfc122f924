/* Fuzzes a TLS session with a malicious client's bytes in arbitrary pieces (the first byte gives
 * their size). In some inputs these bytes follow the beginning of a real handshake. The session
 * must fail, wait or continue, and report which. It must never send without end. */
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/tls/server.h"
#include "common/tls/session.h"
#include "tests/unit/common/tls/tls_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct tls_server *server(void)
{
    static struct tls_server *s;
    char path[] = "/tmp/coxtlsfuzz-XXXXXX";
    struct error err = {0};
    if (s)
        return s;
    int fd = mkstemp(path);
    struct tls_identity i = tls_identity_make("server", NULL);
    const struct tls_options o = {.certfile = path};
    if (fd < 0)
        abort();
    close(fd);
    tls_identity_write(path, i.cert, i.key, NULL);
    if (tls_server_new(&o, &s, &err) != STATUS_OK)
        abort();
    tls_identity_fini(&i);
    (void)unlink(path);
    return s;
}

static size_t feed(struct tls_session *t, struct str bytes, enum tls_step *step)
{
    char plain[4096];
    size_t n, n_plain = 0;
    tls_feed(t, bytes);
    while ((*step = tls_read(t, plain, sizeof plain, &n)) == TLS_BYTES)
        n_plain += n;
    size_t n_out = tls_output(t).len;
    tls_output_sent(t);
    if (n_plain > bytes.len)
        abort();
    return n_out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tls_session *t = size > 1 ? tls_session_new(server()) : NULL;
    enum tls_step step = TLS_MORE;
    size_t n_out = 0;
    if (!t)
        return 0;
    size_t piece = 1 + data[0];
    for (size_t at = 1; at < size && step == TLS_MORE; at += piece) {
        size_t n = size - at < piece ? size - at : piece;
        n_out += feed(t, (struct str){(const char *)data + at, n}, &step);
    }
    if (n_out > 8192 + 64 * size || (step == TLS_FAILED) != (tls_why(t)[0] && step != TLS_NOT_TLS))
        abort();
    const struct str word = STR("x");
    if (tls_write(t, &word, 1) != tls_is_up(t))
        abort();
    tls_close_notify(t);
    tls_session_free(t);
    return 0;
}
