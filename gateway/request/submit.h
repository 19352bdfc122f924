#pragma once
/* Sends messages to the head about one choice. */
#include "gateway/request/state.h"

/* Submits a choice. `bytes` gets the approximate size of the message. Returns STATUS_AGAIN when
 * the link is down or has no credit, and STATUS_LIMIT when the message is too large to be ever
 * sent. */
enum status api_choice_submit(struct api_choice *c, uint64_t *bytes);
/* Sends Finish to the head when the choice has ended here, for instance at a stop string. The
 * head must generate no more tokens. */
void api_choice_finish(struct api_choice *c);
void api_choice_cancel(struct api_choice *c);
