#pragma once
/* Sends bytes of a connection. These functions make no callbacks: conn_calls.written reports the
 * end of each write on a later turn. Only common/http includes this header. */
#include <uv.h>

#include "common/base/str.h"

struct conn;
/* Copies a, b and d into one write, encrypted on a TLS connection. Returns false when the
 * connection has failed. on_abort is called later. */
bool conn_send(struct conn *c, struct str a, struct str b, struct str d);
/* Writes n pieces of bytes. uv_write writes the bytes that cannot be written now. */
void conn_write_pieces(struct conn *c, const uv_buf_t *pieces, uint32_t n);
bool conn_tls_flush(struct conn *c); /* sends the bytes that TLS produced by itself */
void conn_tls_goodbye(struct conn *c);
