#pragma once
/* Blocking HTTP client for the command line (`cox status`, `cox chat`): libcurl, easy interface.
 * Daemons do not use it. */
#include "common/http/client/call.h"

/* *status_code is the HTTP status. Errors are about not getting an answer (STATUS_IO, _TIMEOUT). */
MUST_USE enum status http_client_call(const struct http_call *c, int *status_code,
                                      struct strbuf *answer, struct error *err);
