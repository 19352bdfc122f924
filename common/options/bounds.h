#pragma once
/* Rows for the memory that a gateway holds for clients, the slowest transfers that it accepts,
 * and the host names that it serves on loopback. cox-gateway and cox up share them. S has a
 * `struct bounds_options bounds`. */
#include "common/config/config.h"

struct bounds_options {
    int64_t max_body_bytes_total, max_answer_bytes_total, min_transfer_rate;
    double transfer_timeout_s;
    struct option_list allowed_hosts;
};

#define ROWS_BOUNDS(S)                                                                             \
    OPT_INT(S, bounds.max_body_bytes_total, "max-body-bytes-total", 1 << 20, 1ll << 40, "256Mi",   \
            "bytes of request bodies over 64 KiB, and of JSON that their requests keep, that are " \
            "held at once, with shares for tenants, or for clients' addresses where there are no " \
            "keys; as many again of smaller bodies; further ones get 503; at least twice "         \
            "--max-body-bytes"),                                                                   \
        OPT_INT(S, bounds.max_answer_bytes_total, "max-answer-bytes-total", 1 << 20, 1ll << 40,    \
                "256Mi",                                                                           \
                "bytes of answers that wait for their readers at once, with the same shares; "     \
                "further ones get 503, streams wait"),                                             \
        OPT_INT(S, bounds.min_transfer_rate, "min-transfer-rate", 0, 1 << 30, "1024",              \
                "bytes a second, on average over --transfer-timeout, below which a request body "  \
                "or an answer that waits for its reader is given up; 0: none"),                    \
        OPT_FLOAT(S, bounds.transfer_timeout_s, "transfer-timeout", 0.1, 86400, "30",              \
                  "seconds without a byte after which a request body, or an answer that waits "    \
                  "for its reader, is given up; there is no limit while it moves"),                \
        OPT_WORDS(S, bounds.allowed_hosts, "allowed-hosts", WORDS_ARE_VALUES,                      \
                  "names in Host headers that are served on loopback without keys, beside "        \
                  "localhost and loopback addresses, *: all; for a proxy on the same machine")
