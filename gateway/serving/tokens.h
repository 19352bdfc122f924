#pragma once
#include "gateway/request/state.h"

/* Handles tokens, or the end, of choice `i_choice`. */
void api_request_on_tokens(struct api_request *r, uint32_t i_choice, const struct tokens_item *t);
