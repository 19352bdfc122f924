#pragma once
/* Watches the file of API keys and reads it again when it changes. */
#include "gateway/auth/quotas.h"
#include "gateway/routes/state.h"

/* Checks the file for changes. Call this function about every half second. `q` is NULL when this
 * gateway counts limits alone, without Redis. */
void keys_look(struct api_server *a, struct quotas *q);
/* Logs an error when keys have a priority but the cluster has only one class. Call this function
 * after the file was read, and when the cluster reports its classes. */
void keys_tell_unused_priorities(const struct api_server *a);
