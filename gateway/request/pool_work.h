#pragma once
/* Runs work of a request on a pool. */
#include "gateway/request/state.h"

/* Submits a copy of `job` to the pool. Returns false when the pool's queue is full. */
bool api_request_to_pool(struct api_request *r, struct encode_pool *pool,
                         const struct encode_job *job);
/* Frees the request's body and parsed values. The pool frees large ones, because that takes
 * long. */
void api_request_free_prepared(struct api_request *r);
/* Frees a body that was kept for a fallback. Does nothing when no body is kept. */
void api_request_forget_body(struct api_request *r);
