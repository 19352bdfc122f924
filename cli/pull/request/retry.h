#pragma once
/* Requests that are tried again, and the error of an answer that is no use. */
#include "common/http/client/fetch.h"

/* The attempts at one thing that is fetched. */
struct pull_retry {
    const struct fetch_net *net;
    uint32_t n_failures; /* in a row; the caller sets it to 0 when something new came */
};

/* After an attempt that failed, by s or by the answer's code: waits, and true says to try again. A
 * wait is what Retry-After asks for (300 s at most), else it doubles up to 30 s, with a random
 * part, so that a hundred pods do not come back together. */
bool pull_retry_again(struct pull_retry *r, enum status s, const struct fetch_answer *a,
                      const struct error *err);

/* The parts of an error's sentence: what was asked for, and what to do about 401, 403 and 404. */
struct pull_words {
    const char *what;    /* "org/name" */
    const char *denied;  /* what to do about 401 and 403 */
    const char *missing; /* and about 404 */
};
/* The error of a code that is not wanted. */
enum status pull_explain(const struct fetch_answer *a, const struct pull_words *w,
                         struct error *err);
/* A whole answer of at most limit bytes into out, tried again where that may help. */
MUST_USE enum status pull_get_text(const struct fetch_net *net, const struct fetch_call *c,
                                   const struct pull_words *w, struct strbuf *out,
                                   struct error *err);
/* Asks for the first byte: a gets the file's size (or FETCH_UNKNOWN) and its ETag. */
MUST_USE enum status pull_get_size(const struct fetch_net *net, const struct fetch_call *c,
                                   const struct pull_words *w, struct fetch_answer *a,
                                   struct error *err);
