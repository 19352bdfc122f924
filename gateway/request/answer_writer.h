#pragma once
/* The half of a request that writes: when, and of which choice; the dialect says how. */
#include "gateway/request/state.h"

/* Writes what there is and room allows; ends the answer when all choices have ended. An answer with
 * many log-probabilities or long texts is written on the pool: nothing is heard of it until then.
 */
void api_request_flush(struct api_request *r);
/* Answers what needs no tokens: the dialect's answer. */
void api_answer_prepared(struct api_request *r);
