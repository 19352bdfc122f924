#pragma once
/* A request begins: its body is prepared, here or on a pool, and then it is refused, answered, or
 * its choices are to be submitted. */
#include "gateway/request/state.h"

struct serving_request { /* as it came; borrowed until serving_on_request returns */
    const struct dialect *dialect;
    struct str body;
    uint64_t tenant;
    struct str request_id; /* "": a new one; else up to PARAMS_MAX_REQUEST_ID plain characters */
    struct api_key *key;   /* whose it is, with its bounds; NULL: nobody's, and there are none */
    const struct reply_ops *reply_ops; /* NULL: serving's own */
    struct str model; /* named outside of the body, which it beats; "": the body says it */
};

void api_request_start(struct serving *s, void *reply, const struct serving_request *q);
