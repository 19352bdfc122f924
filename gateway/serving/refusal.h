#pragma once
/* Says why a serving takes no new request now. */
#include "gateway/request/state.h"

#define OTHER_MODEL_SORRY                                                                          \
    "The head refuses this gateway, because the gateway's model has another vocabulary than the "  \
    "workers' model. The gateway's log names both."
#define SHUTTING_DOWN "The gateway is shutting down: try again later."

/* Describes the failure of the model, `s->failure`. */
void refusal_failed(const struct serving *s, struct api_error *e);
/* Returns true, with the reason, when no request can be started now. */
bool serving_refuses(const struct serving *s, struct api_error *e);
