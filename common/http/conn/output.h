#pragma once
/* Bytes of a connection on their way out. Nobody is called back from in here: conn_calls.written
 * hears of each write's end on a later turn. Private to common/http. */
#include <uv.h>

#include "common/base/str.h"

struct conn;
/* Copies a, b and d into one write, by TLS where it is. False: the connection is gone, and its
 * handler will be told. */
bool conn_send(struct conn *c, struct str a, struct str b, struct str d);
/* Writes n pieces, or hands what cannot be written now to uv_write. */
void conn_write_pieces(struct conn *c, const uv_buf_t *pieces, uint32_t n);
bool conn_tls_flush(struct conn *c); /* what its session has to say by itself */
void conn_tls_goodbye(struct conn *c);
