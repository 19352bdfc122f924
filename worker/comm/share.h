#pragma once
/* Two ranks of one host that have proven themselves to each other over TCP meet again over a Unix
 * socket and share memory. The accepting end listens under an abstract name that the kernel makes
 * up, and says it over TCP ("welcome"); the connecting end shows a token there, is handed the
 * memory, and says over TCP whether it could take it. Whatever does not work, both stay on TCP.
 * Compute thread. */
#include "worker/comm/handshake.h"
#include "worker/comm/links/link.h"
#include "worker/comm/wait.h"

#define WELCOME_BYTES 8u /* a length and an abstract socket's name, or nothing */

struct share {
    struct waiter *waiter;
    int tcp_fd; /* stays the caller's */
    uint64_t deadline_ns;
    bool wanted; /* otherwise there is a welcome and nothing else */
    uint8_t token[TOKEN_BYTES];
};
/* *out: a link through memory, or NULL: use the TCP connection. Both ends come to the same. Errors
 * are those of the connection and of waiting. */
MUST_USE enum status share_accept(const struct share *s, struct comm_link **out, struct error *err);
MUST_USE enum status share_connect(const struct share *s, struct comm_link **out,
                                   struct error *err);
