#pragma once
/* What happens to every request whatever its route: CORS, request ids, the access log. Loop thread
 * only. */
#include <stdio.h>

#include "common/net/http_server.h"
#include "common/options/front.h"

struct front {
    const struct front_options *o; /* borrowed */
    FILE *log;                     /* NULL: none */
};

MUST_USE enum status front_init(struct front *f, const struct front_options *o, struct error *err);
void front_fini(struct front *f);
/* Before the key is asked for: a browser's preflight has none. True: it is answered. */
bool front_begin(struct front *f, struct http_request *r);
/* A line of the log; front_flush brings lines to the file, every tick. */
void front_log(struct front *f, const struct http_request *r, const struct http_answered *a);
void front_flush(struct front *f);
