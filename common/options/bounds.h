#pragma once
/* Defines rows for the memory that a gateway holds for clients, and the slowest transfers that
 * it accepts. Another row has the host names that it serves on loopback. cox-gateway and cox up
 * share them. S has a `struct bounds_options bounds`. */
#include "common/config/config.h"

struct bounds_options {
    int64_t max_body_bytes_total, max_answer_bytes_total, min_transfer_rate;
    double transfer_timeout_s;
    struct option_list allowed_hosts;
};

#define ROWS_BOUNDS(S)                                                                             \
    OPT_INT(S, bounds.max_body_bytes_total, "max-body-bytes-total", 1 << 20, 1ll << 40, "256Mi",   \
            "Maximum bytes of all request bodies over 64 KiB and of the JSON kept for their "      \
            "requests. Tenants or client addresses share them fairly. Smaller bodies have a "      \
            "separate limit of the same size. Further bodies get status 503. The value must be "   \
            "at least twice --max-body-bytes."),                                                   \
        OPT_INT(S, bounds.max_answer_bytes_total, "max-answer-bytes-total", 1 << 20, 1ll << 40,    \
                "256Mi",                                                                           \
                "Maximum bytes of all answers that wait for slow clients, shared as in "           \
                "--max-body-bytes-total. At the limit further answers get status 503, and "        \
                "streams wait."),                                                                  \
        OPT_INT(S, bounds.min_transfer_rate, "min-transfer-rate", 0, 1 << 30, "1024",              \
                "Minimum bytes per second of a request body, or of an answer that waits for its "  \
                "client, averaged over --transfer-timeout. Slower connections are closed. 0 = no " \
                "minimum."),                                                                       \
        OPT_FLOAT(                                                                                 \
            S, bounds.transfer_timeout_s, "transfer-timeout", 0.1, 86400, "30",                    \
            "Seconds without a byte after which a connection is closed, while its request body "   \
            "arrives or its answer waits for the client. There is no limit while bytes flow."),    \
        OPT_WORDS(S, bounds.allowed_hosts, "allowed-hosts", WORDS_ARE_VALUES,                      \
                  "Host names that a gateway accepts in the Host header besides localhost and "    \
                  "loopback addresses. * = all names. The check applies only to a gateway on "     \
                  "loopback without keys. Set the option for a proxy on the same machine.")
