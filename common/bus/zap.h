#pragma once
/* The ZAP handler (ZeroMQ RFC 27) of one zmq context: admits CURVE keys of a list and names each
 * peer "role:key" in the metadata User-Id. It runs on a thread of its own, so that a busy loop does
 * not stall handshakes; zap_start returns when it is bound, and the sockets it guards are bound
 * after that. libzmq admits everybody where no handler is bound, unless ZMQ_ZAP_ENFORCE_DOMAIN is
 * set. */
#include "common/base/status.h"
#include "common/keys/authorized.h"

#define ZAP_DOMAIN "coxswain"

struct zap;
/* authorized is borrowed until zap_stop and only read; zap_swap alone may change it. context is a
 * zmq context. */
MUST_USE enum status zap_start(void *context, const struct authorized *authorized, struct zap **out,
                               struct error *err);
/* Exchanges what the two hold; mine is what zap_start was given. */
void zap_swap(struct zap *z, struct authorized *mine, struct authorized *next);
void zap_stop(struct zap *z); /* before the context is terminated; NULL is fine */
