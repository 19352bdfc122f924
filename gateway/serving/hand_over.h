#pragma once
/* Hands a request over to the fallback of its model when the head refuses the promised time of the
 * first token (request/promise.h). The fallback prepares the body again, with its own tokenizer.
 * The request counts once for its key. */
#include "gateway/request/state.h"

/* Ends `r` here and starts it in the fallback's serving. The promise still counts from the arrival.
 * `retry_after_s` belongs to the refusal, which the client gets if the fallback gives no answer.
 * Returns false and changes nothing when there is no fallback that can take the request now, or
 * when the answer has begun. */
bool api_request_hand_over(struct api_request *r, uint32_t retry_after_s);
