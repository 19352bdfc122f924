#pragma once
#include "gateway/request/state.h"

/* Tokens of choice i_choice have come, or its end. */
void api_request_on_tokens(struct api_request *r, uint32_t i_choice, const struct tokens_item *t);
