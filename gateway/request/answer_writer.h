#pragma once
/* Decides when a choice of a request is written. The dialect decides how it is written. */
#include "gateway/request/state.h"

/* Writes all text that is ready, as far as the stream accepts it. Ends the answer when all
 * choices have ended. A large answer is written on the pool, and the request is not accessed
 * until then. */
void api_request_flush(struct api_request *r);
/* Begins a stream before its first token, because the request waits until workers have started and
 * a proxy may drop a silent connection. Later errors are events of the stream. */
void api_request_begin_early(struct api_request *r);
/* Writes an answer that needs no tokens, by the dialect's `answer`. */
void api_answer_prepared(struct api_request *r);
