#pragma once
/* From state to state, and how a request ends. */
#include "gateway/request/state.h"

void api_request_enter(struct api_request *r, enum api_state next);
/* Answers with the error, or ends the stream with it, and cancels what still runs. */
void api_request_fail(struct api_request *r, const struct api_error *e);
/* Cancels what still runs, leaves every list but the dead's. The reply is not touched. */
void api_request_retire(struct api_request *r, enum serving_outcome rest);
void api_request_free(struct api_request *r);
