#pragma once
/* Bytes of the network on their way in through a connection's TLS session. Private to common/http.
 */
#include "common/base/str.h"

struct conn;
struct conn_taker { /* hears what the session makes of them */
    void (*plain)(struct conn *c, struct str bytes);
    void (*eof)(struct conn *c);
};
bool conn_tls_begin(struct conn *c);
void conn_tls_on_bytes(struct conn *c, struct str bytes, const struct conn_taker *taker);
