#pragma once
/* Serves the head's side of the Runs page. It runs the program `cox` (--runs) as a child process
 * and does not read run files itself. An ID of twelve digits is the only part of an HTTP request
 * that reaches a command line. At most RUNS_CALLS_MAX children run at a time, and each has a
 * limit of output and time. The code runs on the loop thread. */
#include "common/base/str.h"
#include "common/http/server/server.h"

enum { RUNS_CALLS_MAX = 8 };

enum runs_what { RUNS_LIST, RUNS_TERMINATE, RUNS_CREATE };

struct runs;
/* Receives the result of a call. With `status` 200, `text` is the program's JSON (list) or the
 * run's ID. With another status, `text` is an error. */
typedef void runs_answer_fn(struct http_request *r, enum runs_what what, int status,
                            const char *text, size_t n);

struct runs *runs_new(struct loop *l, const char *program, runs_answer_fn *answer);
/* Starts a call of `cox`, whose result answers `r` later. The call does not answer `r` after
 * runs_on_abort(r). Returns STATUS_LIMIT when too many calls run; the caller must then answer
 * `r`. `id` has twelve digits; NULL requests a list. */
MUST_USE enum status runs_call(struct runs *s, struct http_request *r, enum runs_what what,
                               const char *id, struct error *err);
/* `r` may be a request that has no call */
void runs_on_abort(struct runs *s, const struct http_request *r);
void runs_free(struct runs *s); /* `s` may be NULL */
