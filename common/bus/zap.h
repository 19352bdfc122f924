#pragma once
/* Runs the ZAP handler (ZeroMQ RFC 27) of one zmq context. The handler admits the CURVE keys of
 * a list and names each peer "role:key" in the metadata User-Id. It has its own thread, so that
 * a busy loop does not stall handshakes.
 * zap_start returns when the handler is bound. The sockets that it guards must be bound after
 * that. Without a bound handler libzmq admits every peer, unless ZMQ_ZAP_ENFORCE_DOMAIN is set. */
#include "common/base/status.h"
#include "common/keys/authorized.h"

#define ZAP_DOMAIN "coxswain"

struct zap;
/* Starts the handler. `context` is a zmq context. `authorized` is borrowed until zap_stop and
 * only read. Only zap_swap may change the list. */
MUST_USE enum status zap_start(void *context, const struct authorized *authorized, struct zap **out,
                               struct error *err);
/* Exchanges the contents of the two lists under the handler's lock. `mine` is the list given to
 * zap_start. */
void zap_swap(struct zap *z, struct authorized *mine, struct authorized *next);
/* Stops the handler. Call it before the context is terminated. z may be NULL. */
void zap_stop(struct zap *z);
