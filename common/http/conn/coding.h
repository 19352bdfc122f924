#pragma once
/* Decodes a request's compressed body, and lets the handler look at a large one. Only common/http
 * includes this header. */
#include "common/base/str.h"

struct conn;
typedef void conn_decoded_fn(struct conn *c, struct str owned_body);
/* Returns false when the body is not compressed and nobody has to look at it. Otherwise the body is
 * decoded and looked at, or the request is refused. `done` is called on a later turn with the
 * decoded body, which the connection owns from then on; ptr NULL = the body was not compressed. */
bool conn_decode(struct conn *c, conn_decoded_fn *done);
