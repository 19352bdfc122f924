#pragma once
/* State changes of a request, and its end. */
#include "gateway/request/state.h"

void api_request_enter(struct api_request *r, enum api_state next);
/* Answers with the error, or ends the stream with it. Cancels all running choices. */
void api_request_fail(struct api_request *r, const struct api_error *e);
/* Cancels all running choices and moves the request to the list `dead`. It does not touch the
 * reply. */
void api_request_retire(struct api_request *r, enum serving_outcome rest);
void api_request_free(struct api_request *r);
