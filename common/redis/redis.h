#pragma once
/* Keeps a link to one Redis (RESP2, 5.0 or later) on the loop. redis_call sends a call, and a
 * callback gets each answer, in order. The link connects by itself, and again with growing
 * pauses. While the link is down calls are refused, so that the caller decides how to continue
 * without it. An answer that is late or is not RESP ends the link and all calls. It is then
 * unknown whether the server executed them. Queue, answers and waits are bounded. Only the loop
 * thread calls these functions.
 *
 * For leases and fencing: a call without an answer may have been executed. So scripts return the
 * values that they found, and compare terms, never our clocks. on_link reports a link that is up
 * again, for code that must wait a lease's time before it trusts stored values. */
#include "common/base/str.h"
#include "common/loop/loop.h"
#include "common/redis/reply.h"

struct redis_options {
    const char *url;     /* URL of the server, in the form of redis_url_parse */
    uint32_t timeout_ms; /* time limit to connect, and for each answer, in ms; 0 = 1000 */
    /* longest pause between attempts in ms; pauses grow from 100 ms; 0 = 5000 */
    uint32_t pause_max_ms;
    uint32_t reply_max; /* most bytes of one answer; 0 = REDIS_REPLY_MAX */
    /* Reports that the link is up or down. It is never called inside redis_call or redis_open. */
    void (*on_link)(void *ctx, bool up, const char *why);
    void *ctx;
};

struct redis;
/* Opens a link. Returns an error only for an invalid URL. The first connection is tried at once. */
MUST_USE enum status redis_open(struct loop *l, const struct redis_options *o, struct redis **out,
                                struct error *err);
/* Closes the link. Open calls get a NULL reply before the function returns, and no callback is
 * called afterwards. r may be NULL. Never call this from a callback of the loop, because it
 * waits for a name lookup in progress. */
void redis_close(struct redis *r);
bool redis_is_up(const struct redis *r);

/* Receives the answer of a call. `reply` is NULL when no answer will arrive. The server may or
 * may not have executed the call. */
typedef void redis_fn(void *ctx, const struct redis_reply *reply);
/* Sends a call to the server. Returns STATUS_AGAIN when the link is down or too many calls are
 * open. `fn` is then not called. */
enum status redis_call(struct redis *r, const struct str *words, size_t n_words, redis_fn *fn,
                       void *ctx);
