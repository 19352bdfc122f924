#pragma once
/* Runs the gateway process, which owns the HTTP servers, the link to the head, and the model's
 * tokenizer and templates. The gateway starts and stops them in order. One loop on one thread
 * owns everything. Pool threads tokenize prompts and compile grammars. */
#include "common/base/status.h"
#include "common/options/gateway.h"

struct gateway;
/* Starts the gateway. `config` is borrowed for the life of the gateway. `cache_dir` is the
 * resolved path of the cache. */
MUST_USE enum status gateway_new(const struct gateway_config *config, const char *cache_dir,
                                 struct gateway **out, struct error *err);
/* Runs the loop. Returns after SIGINT, or after SIGTERM and the end of all open requests. */
void gateway_run(struct gateway *g);
void gateway_free(struct gateway *g);
