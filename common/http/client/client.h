#pragma once
/* Makes blocking HTTP calls for the command line (`cox status`, `cox chat`), with libcurl's easy
 * interface. Daemons do not use it. */
#include "common/http/client/call.h"

/* Makes the call and sets *status_code to the HTTP status. An error means that no answer arrived
 * (STATUS_IO, STATUS_TIMEOUT). */
MUST_USE enum status http_client_call(const struct http_call *c, int *status_code,
                                      struct strbuf *answer, struct error *err);

/* `http_session` keeps the connection of a thread's calls open, for a program that asks one
 * server again and again (http_call.session). One thread at a time uses it. */
struct http_session;
/* Returns NULL when libcurl has no memory; the calls then open connections of their own. */
struct http_session *http_session_new(void);
void http_session_free(struct http_session *s); /* accepts NULL */
/* Any thread may call it. With `on`, the call under way ends with STATUS_CLOSED, and later calls
 * too until the function is called with false. */
void http_session_interrupt(struct http_session *s, bool on);
