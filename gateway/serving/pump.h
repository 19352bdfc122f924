#pragma once
/* Choices that wait to be submitted, each in its tenant's turn. */
#include "gateway/request/state.h"

void serving_add_pending(struct serving *s, struct api_choice *c);
void serving_pump(struct serving *s); /* submits what waits: credit came */
/* The same where no credit came: one that was too large for what there is is not tried again. */
void serving_pump_on(struct serving *s);
