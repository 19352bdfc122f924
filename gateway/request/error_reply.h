#pragma once
/* Sends an error as the answer of a request, or as the end of its stream. */
#include "gateway/request/state.h"

/* Answers the request with the error. The reply is invalid afterwards, so the caller must clear
 * its pointer. */
void api_answer_error(struct api_request *r, const struct api_error *e);
