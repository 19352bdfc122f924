#pragma once
/* Everything that the head says of itself and of the cluster, and what follows for requests. */
#include "gateway/request/state.h"

void serving_on_cluster(struct serving *s, const struct msg_cluster *m);
/* The head turns this gateway away; STATUS_OK: no more. STATUS_UNSUPPORTED: its model is not the
 * workers', so that requests are answered 503 at once. */
void serving_on_refused(struct serving *s, enum status status);
bool serving_is_of_another_model(const struct serving *s);
/* True when a replica serves, or none has to, and the gateway is not draining. why: for the 503's
 * text. */
bool serving_healthy(const struct serving *s, const char **why);
uint32_t serving_max_model_len(const struct serving *s);
