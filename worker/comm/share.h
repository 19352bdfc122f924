#pragma once
/* Sets up shared memory between two ranks of one host. They have authenticated each other over
 * TCP and then connect over a Unix socket. The accepting end listens under an abstract name that
 * the kernel chooses and sends the name over TCP ("welcome"). The connecting end sends a token
 * on the Unix socket, receives the memory, and reports over TCP whether it could map the memory.
 * When any step fails, both ends stay on TCP. All functions run on the compute thread. */
#include "worker/comm/handshake.h"
#include "worker/comm/links/link.h"
#include "worker/comm/wait.h"

/* bytes of the welcome: a length and the name of an abstract socket; all 0 = none */
#define WELCOME_BYTES 8u

struct share {
    struct waiter *waiter;
    int tcp_fd; /* connection to the peer; borrowed */
    uint64_t deadline_ns;
    bool wanted; /* both ends allow shared memory; false: only the welcome is exchanged */
    uint8_t token[TOKEN_BYTES];
};
/* Returns in *out a link through memory, or NULL when the TCP connection is to be used. Both
 * ends get the same result. Errors are those of the connection and of waiting. */
MUST_USE enum status share_accept(const struct share *s, struct comm_link **out, struct error *err);
MUST_USE enum status share_connect(const struct share *s, struct comm_link **out,
                                   struct error *err);
