#pragma once
/* Rows for the load that a gateway and a head accept, and for the time that a gateway waits for
 * the cluster. These programs and cox up share them. S has a member of each name. */
#include "common/config/config.h"

#define ROWS_CAPACITY(S)                                                                           \
    OPT_INT(S, max_state_bytes, "max-state-bytes", 1 << 20, INT64_C(1) << 44, "4Gi",               \
            "what the files below --state-dir may take; further ones get 507"),                    \
        OPT_INT(S, batch_lines, "batch-lines", 1, 1024, "64",                                      \
                "lines of batches that run at once"),                                              \
        OPT_INT(S, max_connections, "max-connections", 1, 1 << 20, "16384",                        \
                "HTTP connections; at the bound one that is idle or stands still makes place, "    \
                "or the newcomer gets 503"),                                                       \
        OPT_INT(S, max_open_choices, "max-open-choices", 1, 1 << 20, "16384",                      \
                "further requests get 503; a request with n=4 counts four"),                       \
        OPT_INT(S, tokenizer_threads, "tokenizer-threads", 1, 64, "2",                             \
                "threads for long prompts"),                                                       \
        OPT_INT(S, tokenizer_queue, "tokenizer-queue", 1, 1 << 16, "256",                          \
                "long prompts waiting for them, and requests waiting for --grammar-processes; "    \
                "further ones get 503"),                                                           \
        OPT_FLOAT(S, queue_timeout_s, "queue-timeout", 0, 86400, "60",                             \
                  "seconds a request waits for a ready group of workers"),                         \
        OPT_FLOAT(S, head_timeout_s, "head-timeout", 0, 86400, "30",                               \
                  "seconds a request waits for the head"),                                         \
        OPT_FLOAT(S, pause_timeout_s, "pause-timeout", 0, 86400, "300",                            \
                  "seconds a stream that has begun is kept open while head or workers are away")

/* Limit of the head, for cox-head and cox up. */
#define ROW_MAX_REQUEST_BYTES(S)                                                                   \
    OPT_INT(S, max_request_bytes, "max-request-bytes", 1 << 20, 1ll << 44, "512Mi",                \
            "bytes that the head holds of requests that wait or run, as they came, with shares "   \
            "for tenants; further ones are answered 429")
