#pragma once
/* Translates an http_call for libcurl, for one call at a time (client.c) and for many at once
 * (streams.c). */
#include <curl/curl.h>

#include "common/http/client/call.h"

enum { HTTP_ANSWER_MAX_BYTES = 256 << 20 };

/* Sets all options of `c` except the destination of the body. The caller frees *headers after
 * the transfer. */
MUST_USE enum status http_client_prepare(CURL *curl, const struct http_call *c,
                                         struct curl_slist **headers, struct error *err);
/* Fills err with curl's reason for a failed transfer. Returns STATUS_OK when on_data ended the
 * transfer. */
enum status http_client_describe(CURLcode rc, const struct http_call *c, struct error *err);
