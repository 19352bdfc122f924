#pragma once
/* The gateway process: owns the HTTP server, the link to the head, the model's text side, and the
 * order in which they start and stop. One loop, one thread, plus the tokenizer pool. */
#include "common/base/status.h"
#include "common/options/gateway.h"

struct gateway;
/* config is borrowed for the gateway's life. cache_dir: resolved. */
MUST_USE enum status gateway_new(const struct gateway_config *config, const char *cache_dir,
                                 struct gateway **out, struct error *err);
/* Until SIGINT, or SIGTERM and the end of the open requests. */
void gateway_run(struct gateway *g);
void gateway_free(struct gateway *g);
