#pragma once
#include "gateway/request/state.h"

/* Handles tokens of choice `i_choice`, or the choice's end. */
void api_request_on_tokens(struct api_request *r, uint32_t i_choice, const struct tokens_item *t);
