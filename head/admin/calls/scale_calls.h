#pragma once
/* Keeps the requests `GET /scale?wait_ms=N&seen=VERSION` until the answer has another version, or
 * until N ms have passed. So the program that starts the workers learns at once that a request
 * needs one. At most SCALE_CALLS_MAX requests wait. The code runs on the loop thread. */
#include "common/http/server/server.h"
#include "head/core/core.h"

enum { SCALE_CALLS_MAX = 16, SCALE_WAIT_MAX_MS = 10000 };

struct scale_calls;
typedef void scale_answer_fn(void *ctx, struct http_request *r); /* answers `r` with the state */

struct scale_calls *scale_calls_new(struct head_core *core, scale_answer_fn *answer, void *ctx);
/* Keeps `r` until it is answered. Returns false when the caller must answer it now: the version is
 * not `seen`, wait_ms is 0, or too many requests wait. */
MUST_USE bool scale_calls_keep(struct scale_calls *s, struct http_request *r, uint64_t seen,
                               uint32_t wait_ms, uint64_t now_ns);
/* Answers the requests whose time has come. Call it at the end of each turn. */
void scale_calls_turn(struct scale_calls *s, uint64_t now_ns);
void scale_calls_on_abort(struct scale_calls *s,
                          const struct http_request *r); /* `s` may be NULL */
void scale_calls_free(struct scale_calls *s);            /* answers all requests; `s` may be NULL */
