#pragma once
/* The start of a request: its body is prepared, here or on a pool. Then the request is refused
 * or answered, or its choices are queued for the head. */
#include "gateway/request/state.h"

/* arguments of a new request; borrowed until `serving_on_request` returns */
struct serving_request {
    const struct dialect *dialect;
    struct str body;
    uint64_t tenant;
    struct str request_id; /* "" = make a new id; at most PARAMS_MAX_REQUEST_ID plain characters */
    struct api_key *key;   /* key of the caller, with its limits; NULL = no key, no limits */
    const struct reply_ops *reply_ops; /* receiver's functions; NULL = serving's own */
    struct str model; /* model named outside of the body, which overrides it; "" = use the body's */
};

void api_request_start(struct serving *s, void *reply, const struct serving_request *q);
