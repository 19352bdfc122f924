#pragma once
/* The head's messages and the life of the link, as head_link_handlers has them. ctx is the struct
 * worker. */
#include "proto/messages.h"

bool worker_on_message(void *ctx, const struct msg *m, uint64_t session, struct str frame);
void worker_on_open(void *ctx, const struct msg_welcome *welcome);
void worker_on_heartbeat(void *ctx, const struct msg_heartbeat *h, unsigned head_minor);
void worker_on_lost(void *ctx);
void worker_on_refused(void *ctx, enum status status, const char *text);
