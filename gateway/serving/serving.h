#pragma once
/* Owns all open requests and handles the events that change them: a new request, a client that
 * reads or disconnects, tokens, the link to the head, time. It sends to the head through
 * `engine_ops` and to clients through `reply_ops`. Time is an argument, so the whole serving
 * path runs in a unit test without sockets. Only the loop thread calls these functions. */
#include "gateway/request/state.h"
#include "gateway/serving/cluster.h"
#include "gateway/serving/pump.h"
#include "gateway/serving/start.h"

void serving_init(struct serving *s, const struct serving_options *o, const struct engine_ops *e,
                  const struct reply_ops *r, struct encode_pool *pool, struct metrics *registry);
/* Frees everything that `s` owns. Call this function after the pools were freed, because they
 * return their jobs first. It sends no answers, because the server is closed. */
void serving_fini(struct serving *s);

/* Makes requests wait until `serving_has_model`, because the model's files are still being read.
 * Call it after `serving_init` with options that need no file. */
void serving_await_model(struct serving *s);
/* Sets the whole options, and continues the requests that wait. */
void serving_has_model(struct serving *s, const struct serving_options *o);
/* Refuses new requests with a 503 that contains `why`, which is borrowed, and ends the requests
 * that have no token yet. NULL = accept requests again. */
void serving_fail(struct serving *s, const char *why);

/* Starts a new request. `reply` is borrowed until the request ends. */
void serving_on_request(struct serving *s, void *reply, const struct serving_request *q);
/* continues an answer when the client reads again */
void serving_on_drain(struct serving *s, struct api_request *r);
/* ends a request whose client has disconnected */
void serving_on_abort(struct serving *s, struct api_request *r);
void serving_on_tokens(struct serving *s, const struct msg_tokens *m);
/* Handles a session with the head that opened or was lost. When a session has opened, all open
 * choices are submitted again. */
void serving_on_link(struct serving *s, bool up);
/* checks deadlines and sends keep-alives; called every 250 ms */
void serving_tick(struct serving *s);
/* Sets the metrics of adapters in use. Call this function before the metrics are rendered. */
void serving_tell_loras(struct serving *s, const struct api_key *key);
/* Ends all requests because the gateway stops: a 503 for each request, and the dialect's error
 * for each stream. */
void serving_end_all(struct serving *s);
void serving_sweep(struct serving *s); /* frees ended requests; called at the end of a loop turn */
