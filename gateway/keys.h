#pragma once
/* The file of API keys, while it is served by: read again when it changes. */
#include "gateway/auth/quotas.h"
#include "gateway/routes/state.h"

/* Every half second or so. q: NULL, this gateway counts for itself. */
void keys_look(struct api_server *a, struct quotas *q);
/* The log hears of keys with a priority where the cluster has one class: when the file was read, or
 * when the cluster said so. */
void keys_tell_unused_priorities(const struct api_server *a);
