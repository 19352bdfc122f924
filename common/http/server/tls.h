#pragma once
/* Passes the received bytes of a TLS connection through its session. Only common/http includes
 * this header. */
#include "common/base/str.h"

struct conn;
struct conn_taker { /* functions that receive the decrypted bytes */
    void (*plain)(struct conn *c, struct str bytes);
    void (*eof)(struct conn *c);
};
bool conn_tls_begin(struct conn *c);
void conn_tls_on_bytes(struct conn *c, struct str bytes, const struct conn_taker *taker);
