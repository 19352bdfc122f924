#pragma once
/* Keeps the state of the head and the cluster as the head reports it, and applies it to
 * requests. */
#include "gateway/request/state.h"

void serving_on_cluster(struct serving *s, const struct msg_cluster *m);
/* Handles a refusal by the head. STATUS_OK means that the head has stopped refusing.
 * STATUS_UNSUPPORTED means that this gateway's model is not the workers' model, so requests get
 * a 503 at once. */
void serving_on_refused(struct serving *s, enum status status);
bool serving_is_of_another_model(const struct serving *s);
/* Returns true when a replica is ready, or none is required, and the gateway is not draining.
 * `why` is the reason for the text of a 503. */
bool serving_healthy(const struct serving *s, const char **why);
uint32_t serving_max_model_len(const struct serving *s);
