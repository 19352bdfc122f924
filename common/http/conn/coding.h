#pragma once
/* Decodes a request's compressed body. Only common/http includes this header. */
#include "common/base/str.h"

struct conn;
typedef void conn_decoded_fn(struct conn *c, struct str owned_body);
/* Returns false when the body is not compressed. Otherwise the body is decoded, or the request
 * is refused. After decoding, `done` is called on a later turn with the decoded body. The
 * connection owns that body from then on. */
bool conn_decode(struct conn *c, conn_decoded_fn *done);
