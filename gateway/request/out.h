#pragma once
/* The one buffer that answers are written into, a chunk or a reply at a time. */
#include "gateway/request/state.h"

void api_request_write_out(struct api_request *r); /* a chunk of its stream */
void serving_trim_out(struct serving *s);          /* it keeps no large one's room */
