#pragma once
/* A call as libcurl has it, for one at a time (client.c) and for many at once (streams.c). */
#include <curl/curl.h>

#include "common/http/client/call.h"

enum { HTTP_ANSWER_MAX_BYTES = 256 << 20 };

/* All of c but where its answer goes. *headers is the caller's to free, after the transfer. */
MUST_USE enum status http_client_prepare(CURL *curl, const struct http_call *c,
                                         struct curl_slist **headers, struct error *err);
/* Fills err by what curl says of a transfer; STATUS_OK where on_data has ended it. */
enum status http_client_describe(CURLcode rc, const struct http_call *c, struct error *err);
