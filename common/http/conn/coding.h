#pragma once
/* A request's compressed body, unpacked. Private to common/http. */
#include "common/base/str.h"

struct conn;
typedef void conn_decoded_fn(struct conn *c, struct str owned_body);
/* False: the body came as it is. Else it is decoded, and done called in a later turn with what is
 * the connection's then; or the request is refused. */
bool conn_decode(struct conn *c, conn_decoded_fn *done);
