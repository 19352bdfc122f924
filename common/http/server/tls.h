#pragma once
/* Received bytes of a TLS connection, on their way through its session. Private to common/http. */
#include "common/base/str.h"

struct conn;
struct conn_taker { /* receives the decrypted bytes */
    void (*plain)(struct conn *c, struct str bytes);
    void (*eof)(struct conn *c);
};
bool conn_tls_begin(struct conn *c);
void conn_tls_on_bytes(struct conn *c, struct str bytes, const struct conn_taker *taker);
