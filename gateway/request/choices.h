#pragma once
/* The choices of a request that was prepared: what their tokens and texts go through. */
#include "gateway/request/state.h"

/* The tokens that its own parameters rule out. */
struct forbidden api_request_forbidden(const struct api_request *r);
void api_request_make_choices(struct api_request *r);
