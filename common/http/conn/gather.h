#pragma once
/* Collects the bytes that streams send in one turn of the loop. The bytes are written when the
 * turn ends, with one write for each connection. conn_calls.flushed is then called for each of
 * these connections. Only common/http includes this header. */
#include "common/base/str.h"

struct conn;
struct http_server;
void gather_open(struct http_server *s);
/* Writes all bytes and closes the hook, whose handle counts in open_handles. */
void gather_close(struct http_server *s);
void gather_fini(struct http_server *s);
void gather_add(struct conn *c, struct str bytes);
void gather_drop(struct conn *c); /* forgets the bytes of a connection that closes */
