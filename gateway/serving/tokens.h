#pragma once
#include "gateway/request/state.h"

/* Tokens, or the end, of choice `i_choice` have arrived. */
void api_request_on_tokens(struct api_request *r, uint32_t i_choice, const struct tokens_item *t);
