#pragma once
/* All requests being served, and what happens to them: one comes, its client reads or leaves,
 * tokens come, the head is found or lost, time passes. It talks to the head through engine_ops and
 * to clients through reply_ops, and gets the time as an argument: the whole serving path runs in a
 * unit test without sockets. Loop thread only. */
#include "gateway/request/state.h"
#include "gateway/serving/cluster.h"
#include "gateway/serving/pump.h"
#include "gateway/serving/start.h"

void serving_init(struct serving *s, const struct serving_options *o, const struct engine_ops *e,
                  const struct reply_ops *r, struct encode_pool *pool, struct metrics *registry);
/* After the pool was freed (it gives back what it held). Answers nothing: the server is closed. */
void serving_fini(struct serving *s);

/* A request came; reply is borrowed until it is dead. */
void serving_on_request(struct serving *s, void *reply, const struct serving_request *q);
void serving_on_drain(struct serving *s, struct api_request *r); /* the client reads again */
void serving_on_abort(struct serving *s, struct api_request *r); /* the client is gone */
void serving_on_tokens(struct serving *s, const struct msg_tokens *m);
/* A session was opened (submit everything open again) or lost. */
void serving_on_link(struct serving *s, bool up);
void serving_tick(struct serving *s); /* deadlines and keep-alives; every 250 ms or so */
/* Which adapters are in use, into the metrics: before they are rendered. */
void serving_tell_loras(struct serving *s, const struct api_key *key);
/* The gateway ends and waits for nobody any more: each request is answered 503, each stream ends
 * with its dialect's error. */
void serving_end_all(struct serving *s);
void serving_sweep(struct serving *s); /* end of a loop turn: frees what was answered */
