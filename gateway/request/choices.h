#pragma once
/* Makes the choices of a prepared request, with the rules for their tokens and texts. */
#include "gateway/request/state.h"

/* Returns the tokens that the request's own parameters forbid. */
struct forbidden api_request_forbidden(const struct api_request *r);
void api_request_make_choices(struct api_request *r);
