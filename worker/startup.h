#pragma once
/* What main needs from the options before the worker can run: keys, addresses, the memory table. */
#include "common/keys/admin_keys.h"
#include "common/options/worker.h"
#include "worker/executor/executor.h"
#include "worker/link/head_link.h"

struct startup {
    char node[256];
    char endpoint[1100]; /* tcp://, then --head as it is */
    char head_public_key[41], other_head_key[41];
    struct admin_keys admin_keys; /* none: /metrics is open */
    struct head_link_options link;
};

/* From keys folder, join token or --insecure. */
MUST_USE enum status startup_prepare(const struct worker_options *o, struct startup *out,
                                     struct error *err);
/* weights, activations, collectives, KV, total: what this process will hold. */
void startup_memory_table(const struct executor_info *info, struct strbuf *out);
/* The same as the event memory_plan, for a log of which every line is an event. */
void startup_log_memory(const struct executor_info *info);
