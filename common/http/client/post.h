#pragma once
/* Sends one POST over plain HTTP/1.1 on a connection of its own. The call blocks, so only
 * threads other than the loop's may make it. The gateway uses it to send spans to a collector
 * from time to time. The function reads the answer's status and ignores the body. */
#include <stdatomic.h>

#include "common/base/str.h"

struct http_target {
    char host[256], port[6], path[1024]; /* texts for getaddrinfo and the request line */
};

/* Parses http://HOST[:PORT][/PATH]; an IPv6 address is in brackets. Without a path,
 * `default_path` is used. Returns STATUS_INVALID with the reason. For https the error has a text
 * of its own. */
MUST_USE enum status http_target_parse(struct str url, const char *default_path,
                                       struct http_target *out, struct error *err);

struct http_post {
    const struct http_target *to;
    const char *content_type;
    struct str body;
    uint32_t timeout_ms; /* time limit for the whole call in ms, without the name lookup */
    /* flag that ends the call soon when it becomes true; NULL = the call cannot be ended */
    const atomic_bool *stop;
};
/* Sends the POST. Returns STATUS_OK when an answer arrived, with its code in *status_code.
 * Returns STATUS_IO or STATUS_TIMEOUT when no answer arrived. */
MUST_USE enum status http_post(const struct http_post *p, int *status_code, struct error *err);
