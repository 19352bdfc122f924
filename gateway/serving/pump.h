#pragma once
/* Submits waiting choices to the head, in turns between tenants. */
#include "gateway/request/state.h"

void serving_add_pending(struct serving *s, struct api_choice *c);
void serving_pump(struct serving *s); /* submits waiting choices after new credit */
/* Submits waiting choices when no new credit arrived. A choice that is too large for the current
 * credit is not tried again. */
void serving_pump_on(struct serving *s);
