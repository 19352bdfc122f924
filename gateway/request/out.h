#pragma once
/* Manages the single buffer for writing answers, which holds one chunk or one reply at a time. */
#include "gateway/request/state.h"

void api_request_write_out(struct api_request *r); /* writes the buffer as a chunk of the stream */
void serving_trim_out(struct serving *s); /* frees the buffer's memory when it has grown large */
