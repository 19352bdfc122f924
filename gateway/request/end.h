#pragma once
/* Changes the state of a request, and ends it. */
#include "gateway/request/state.h"

void api_request_enter(struct api_request *r, enum api_state next);
/* Answers the request with the error, or ends its stream with it. Cancels all running choices. */
void api_request_fail(struct api_request *r, const struct api_error *e);
/* Cancels all running choices and moves the request to the list `dead`. The reply is unchanged. */
void api_request_retire(struct api_request *r, enum serving_outcome rest);
void api_request_free(struct api_request *r);
