#pragma once
/* Provides helper functions for all handlers of routes. */
#include "common/http/server/server.h"
#include "gateway/auth/api_key.h"
#include "gateway/routes/route.h"
#include "gateway/serving/start.h"

static inline uint64_t call_tenant(const struct call *c)
{
    return c->key ? c->key->tenant : 0;
}
/* Returns the arguments for serving, filled from the request and its key. A handler may change
 * them. */
struct serving_request call_serving(const struct call *c, const struct dialect *d);
/* Decodes "org%2Fname" to "org/name", because the openai package escapes a slash in this way.
 * Other escapes are compared without decoding. The result is in `buf`, or `in` if it is too long.
 */
struct str path_decode_name(struct str in, char *buf, size_t size);
/* Returns the name of the caller's admin key, for logs and events, or "". */
const char *call_admin(const struct api_server *a, const struct call *c);
/* Answers the request with an error in OpenAI's form. */
void call_error(struct http_request *r, int status, const char *code, const char *text);
