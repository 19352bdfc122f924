#pragma once
/* Handles the head's messages and the open and loss of the link, as callbacks of
 * head_link_handlers. Their `ctx` is the struct worker_process. */
#include "proto/messages.h"

bool worker_on_message(void *ctx, const struct msg *m, uint64_t session, struct str frame);
void worker_on_open(void *ctx, const struct msg_welcome *welcome);
void worker_on_heartbeat(void *ctx, const struct msg_heartbeat *h, unsigned head_minor);
void worker_on_lost(void *ctx);
void worker_on_refused(void *ctx, enum status status, const char *text);
