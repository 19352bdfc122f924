#pragma once
/* A link to one Redis (RESP2, 5.0 or later) on the loop: calls in, answers by callback, in order.
 * It connects by itself, and again with growing pauses; while it is down calls are refused, so that
 * the caller decides what to do without. An answer that does not come in time, or is not RESP, ends
 * the link and with it all calls: whether the server did them is not known then. Queue, answers and
 * waiting are bounded. Loop thread only.
 *
 * For leases and fencing: a call whose answer is lost may have been done, so scripts say what they
 * found and compare terms, never clocks of ours; a link that comes back says so by on_link, for
 * those who have to wait a lease's time before they trust what is stored. */
#include "common/base/str.h"
#include "common/loop/loop.h"
#include "common/redis/reply.h"

struct redis_options {
    const char *url;       /* see redis_url_parse */
    uint32_t timeout_ms;   /* for connecting and for each answer; 0: 1000 */
    uint32_t pause_max_ms; /* between attempts to connect, from 100 up; 0: 5000 */
    void (*on_link)(void *ctx, bool up, const char *why); /* never inside of redis_call or _open */
    void *ctx;
};

struct redis;
/* Errors are of the URL only; the first connection is tried at once. */
MUST_USE enum status redis_open(struct loop *l, const struct redis_options *o, struct redis **out,
                                struct error *err);
/* Calls that are open hear that there will be no answer, before it returns; nothing is called after
 * that. NULL is fine. Not from a callback of the loop: a host's name that is being resolved is
 * waited for. */
void redis_close(struct redis *r);
bool redis_is_up(const struct redis *r);

/* reply NULL: there will be none, and the call may have been done or not. */
typedef void redis_fn(void *ctx, const struct redis_reply *reply);
/* STATUS_AGAIN: it is down, or too much is under way; fn will not be called. */
enum status redis_call(struct redis *r, const struct str *words, size_t n_words, redis_fn *fn,
                       void *ctx);
