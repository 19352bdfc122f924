#pragma once
/* Starts a request. Its body is prepared, here or on a pool. Then the request is refused or
 * answered, or its choices are queued for the head. */
#include "gateway/request/state.h"

/* arguments of a new request; borrowed until `serving_on_request` returns */
struct serving_request {
    const struct dialect *dialect;
    struct str body;
    size_t model_at; /* offset of the model's name in the body (models/peek.h); 0 = not known */
    uint64_t tenant;
    /* id of the request, at most PARAMS_MAX_REQUEST_ID plain characters; "" = make a new id */
    struct str request_id;
    struct api_key *key; /* key of the caller, with its limits; NULL = no key, no limits */
    const struct reply_ops *reply_ops; /* functions of the receiver; NULL = serving's own */
    /* model named outside of the body, which overrides the body's model; "" = none */
    struct str model;
    /* true = the caller has found this serving by the name in the body, so the name is known */
    bool is_ours;
    /* model that a header asks for, among the targets of a route; "" = any */
    struct str target;
    /* Called when the request is admitted, while its body is still here; NULL = not called. */
    void (*admitted)(void *ctx, const struct serving_request *q);
    void *admitted_ctx;
    struct serving *mirror; /* serving that gets a copy of the request; used by `admitted` */
    /* name of the model whose request this serving takes over; NULL = its own request */
    const char *fallback_of;
    /* Returns the serving that takes the request over when the head refuses its first-token
     * promise, or NULL. The function must stay valid while the request is open. NULL = none. */
    struct serving *(*find_fallback)(void *ctx);
    void *fallback_ctx;
    struct str slo_ttft; /* value of the header x-slo-ttft-ms; "" = none */
    bool full_usage;     /* the answer's usage has what the request used in the cluster */
};

/* slo_ttft_ms: promised time of the first token; 0 = none */
void api_request_start(struct serving *s, void *reply, const struct serving_request *q,
                       uint32_t slo_ttft_ms);
/* Adds a filled request to its serving, and prepares its body. */
void api_request_enter_serving(struct api_request *r);
/* Continues a request that waited for its model. */
void api_request_has_model(struct api_request *r);
