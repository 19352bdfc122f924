#pragma once
/* Work that a request leaves to the threads of a pool. */
#include "gateway/request/state.h"

/* To a pool; false: it has no room for it. job: what is to be done. */
bool api_request_to_pool(struct api_request *r, struct encode_pool *pool,
                         const struct encode_job *job);
/* Frees what it was prepared from and into; there, where that takes long. */
void api_request_free_prepared(struct api_request *r);
