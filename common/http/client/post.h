#pragma once
/* One POST over plain HTTP/1.1, blocking, on a connection of its own: for threads that tell another
 * program something now and then (spans to a collector). The answer's status is looked at, its body
 * is not. Threads other than the loop's only. */
#include <stdatomic.h>

#include "common/base/str.h"

struct http_target {
    char host[256], port[6], path[1024]; /* as getaddrinfo and the request line want them */
};

/* http://HOST[:PORT][/PATH]; an IPv6 address stands in brackets. Without a path it is default_path.
 * STATUS_INVALID says what is wrong with it; https is refused by name. */
MUST_USE enum status http_target_parse(struct str url, const char *default_path,
                                       struct http_target *out, struct error *err);

struct http_post {
    const struct http_target *to;
    const char *content_type;
    struct str body;
    uint32_t timeout_ms;     /* for all of it, but for asking a name server */
    const atomic_bool *stop; /* true: give up soon; NULL: never */
};
/* STATUS_OK: it was answered, with *status_code. STATUS_IO, STATUS_TIMEOUT: it was not. */
MUST_USE enum status http_post(const struct http_post *p, int *status_code, struct error *err);
