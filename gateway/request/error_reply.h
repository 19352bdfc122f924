#pragma once
/* An error as the answer of a request, or as the end of its stream. */
#include "gateway/request/state.h"

/* The reply is dead afterwards; the caller must clear its pointer. */
void api_answer_error(struct api_request *r, const struct api_error *e);
