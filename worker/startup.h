#pragma once
/* Prepares the data that `main` needs from the options before the worker can run: keys,
 * addresses and the memory table. */
#include "common/keys/admin_keys.h"
#include "common/options/worker.h"
#include "worker/executor/executor.h"
#include "worker/link/head_link.h"

struct startup {
    char node[256];
    char endpoint[1100]; /* "tcp://" and the value of --head */
    char head_public_key[41], other_head_key[41];
    struct admin_keys admin_keys; /* keys for /metrics; empty = /metrics needs no key */
    struct head_link_options link;
};

/* Reads keys and addresses from the keys folder, the join token or --insecure. */
MUST_USE enum status startup_prepare(const struct worker_options *o, struct startup *out,
                                     struct error *err);
/* Writes the table of the memory that this process will hold: weights, activations, collectives,
 * KV cache, total. */
void startup_memory_table(const struct executor_info *info, struct strbuf *out);
/* Logs the same numbers as the event memory_plan, for logs in which every line is an event. */
void startup_log_memory(const struct executor_info *info);
