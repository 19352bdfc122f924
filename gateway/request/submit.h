#pragma once
/* Messages about a choice to the head. */
#include "gateway/request/state.h"

/* bytes: about as many as it weighs on the wire. STATUS_AGAIN, STATUS_LIMIT: as of engine_ops. */
enum status api_choice_submit(struct api_choice *c, uint64_t *bytes);
/* It has ended here, by a stop string for instance: no more tokens are wanted. */
void api_choice_finish(struct api_choice *c);
void api_choice_cancel(struct api_choice *c);
