#pragma once
/* Handles the orders of the admin API to sleep and to wake, whose answers may have to wait. At
 * most SLEEP_CALLS_MAX requests wait at a time. The code runs on the loop thread. */
#include <jansson.h>

#include "common/http/server/server.h"
#include "head/core/core.h"

enum { SLEEP_CALLS_MAX = 64 };

struct sleep_calls;
/* Answers `r`. With status 200 or 202 the answer is the state, else `text` is the error. */
typedef void sleep_answer_fn(void *ctx, struct http_request *r, int status, const char *text);

struct sleep_calls *sleep_calls_new(struct loop *l, struct head_core *core, sleep_answer_fn *answer,
                                    void *ctx);
/* These functions carry out POST /sleep and POST /wake_up. The query of `r` has vLLM's `level`,
 * and `mode` (wait, abort). `r` is answered when the cluster is asleep or awake, or at once with
 * wait=no. */
void sleep_calls_sleep(struct sleep_calls *s, struct http_request *r, const char *by);
void sleep_calls_wake(struct sleep_calls *s, struct http_request *r, const char *by);
/* Carries out POST /api/rest, the order of the program that starts the workers. `in` is {} (need no
 * workers until the next request), {"sleep_level": 1 or 2} (as well, and sleep until the next
 * order), or {"resting": false} (wake). Returns the errors of head_core_rest. */
MUST_USE enum status sleep_calls_rest(struct sleep_calls *s, const json_t *in, struct error *err);
void sleep_calls_on_abort(struct sleep_calls *s, const struct http_request *r);
void sleep_calls_free(struct sleep_calls *s); /* `s` may be NULL */
