#pragma once
/* The Runs page's side of the head: it asks the program `cox` (--runs) as a child, and knows
 * nothing of run files itself. Of a request nothing reaches a command line but an ID of twelve
 * digits. At most RUNS_CALLS_MAX children at a time, each with a bound of output and of time. Loop
 * thread. */
#include "common/base/str.h"
#include "common/http/server/server.h"

enum { RUNS_CALLS_MAX = 8 };

enum runs_what { RUNS_LIST, RUNS_TERMINATE, RUNS_CREATE };

struct runs;
/* How a call ended: 200 and what the program said as JSON (list) or the run's ID; else a text. */
typedef void runs_answer_fn(struct http_request *r, enum runs_what what, int status,
                            const char *text, size_t n);

struct runs *runs_new(struct loop *l, const char *program, runs_answer_fn *answer);
/* Answers r later, or never when runs_on_abort has told that it is gone. STATUS_LIMIT: too many at
 * once, and r is not answered. id: twelve digits; of a list NULL. */
MUST_USE enum status runs_call(struct runs *s, struct http_request *r, enum runs_what what,
                               const char *id, struct error *err);
void runs_on_abort(struct runs *s, const struct http_request *r); /* also of another's request */
void runs_free(struct runs *s);                                   /* NULL is fine */
