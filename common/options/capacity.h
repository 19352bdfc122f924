#pragma once
/* Defines rows for the load that a gateway and a head accept, and for the time that a gateway
 * waits for the cluster. These programs and cox up share them. S has a member of each name. */
#include "common/config/config.h"

#define ROWS_CAPACITY(S)                                                                           \
    OPT_INT(S, max_state_bytes, "max-state-bytes", 1 << 20, INT64_C(1) << 44, "4Gi",               \
            "Maximum bytes of all files in --state-dir. Further uploads get status 507."),         \
        OPT_INT(S, batch_lines, "batch-lines", 1, 1024, "64",                                      \
                "Number of batch lines that run at the same time."),                               \
        OPT_INT(S, max_connections, "max-connections", 1, 1 << 20, "16384",                        \
                "Maximum number of HTTP connections. At the limit a new connection replaces an "   \
                "idle or stalled one, or gets status 503."),                                       \
        OPT_INT(S, max_open_choices, "max-open-choices", 1, 1 << 20, "16384",                      \
                "Maximum number of open choices; a request with n=4 counts as four. Further "      \
                "requests get status 503."),                                                       \
        OPT_INT(S, tokenizer_threads, "tokenizer-threads", 1, 64, "2",                             \
                "Number of threads that tokenize long prompts."),                                  \
        OPT_INT(                                                                                   \
            S, tokenizer_queue, "tokenizer-queue", 1, 1 << 16, "256",                              \
            "Maximum number of long prompts that wait for --tokenizer-threads, and of requests "   \
            "that wait for --grammar-processes. Further requests get status 503."),                \
        OPT_FLOAT(S, queue_timeout_s, "queue-timeout", 0, 86400, "60",                             \
                  "Seconds that a request waits for a replica that is ready."),                    \
        OPT_FLOAT(S, head_timeout_s, "head-timeout", 0, 86400, "30",                               \
                  "Seconds that a request waits for a connection to the head."),                   \
        OPT_FLOAT(S, pause_timeout_s, "pause-timeout", 0, 86400, "300",                            \
                  "Seconds that a started stream is kept open while the head or the workers "      \
                  "cannot be reached.")

/* ROW_MAX_REQUEST_BYTES is a limit of the head, for cox-head and cox up. */
#define ROW_MAX_REQUEST_BYTES(S)                                                                   \
    OPT_INT(S, max_request_bytes, "max-request-bytes", 1 << 20, 1ll << 44, "512Mi",                \
            "Maximum bytes of waiting and running requests that the head holds, shared fairly "    \
            "among tenants. Further requests get status 429.")

/* ROW_PEER_TIMEOUT sets how long a peer may be silent, for cox-head and cox up. The head sends
 * the value to the other processes in Welcome (proto/link/silence.h). */
#define ROW_PEER_TIMEOUT(S)                                                                        \
    OPT_FLOAT(S, peer_timeout_s, "peer-timeout", 1, 600, "1.5",                                    \
              "Seconds of silence after which a worker, a gateway or the head counts as lost. A "  \
              "longer time tolerates pauses of a busy machine or network, but requests of a lost " \
              "worker wait longer.")
