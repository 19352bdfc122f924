#pragma once
/* An error as a request's answer, or as the end of its stream. */
#include "gateway/request/state.h"

/* The reply is the caller's to forget. */
void api_answer_error(struct api_request *r, const struct api_error *e);
