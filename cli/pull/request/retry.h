#pragma once
/* Decides about retries of requests, and makes the error for an answer that cannot be used. */
#include "common/http/client/fetch.h"

/* `pull_retry` holds the state of the attempts to fetch one object. */
struct pull_retry {
    const struct fetch_net *net;
    uint32_t n_failures; /* failures in a row; the caller resets it when new bytes arrive */
};

/* Decides after a failed attempt, by `s` or by the answer's code, whether a retry may help. If
 * so, the function waits and returns true. The wait is that of Retry-After (at most 300 s).
 * Without Retry-After, the wait doubles up to 30 s, with a random part, so that a hundred pods
 * do not retry together. */
bool pull_retry_again(struct pull_retry *r, enum status s, const struct fetch_answer *a,
                      const struct error *err);

/* `pull_words` holds the parts of an error's sentence. */
struct pull_words {
    const char *what;    /* name of the requested object, such as "org/name" */
    const char *denied;  /* advice in the error for HTTP 401 and 403 */
    const char *missing; /* advice in the error for HTTP 404 */
};
/* Makes the error for an unexpected status code. */
enum status pull_explain(const struct fetch_answer *a, const struct pull_words *w,
                         struct error *err);
/* Reads a whole answer, up to the limit of `out`, and retries after temporary failures. */
MUST_USE enum status pull_get_text(const struct fetch_net *net, const struct fetch_call *c,
                                   const struct pull_words *w, struct strbuf *out,
                                   struct error *err);
/* Requests the first byte of a file. `a` receives the file's size (or FETCH_UNKNOWN) and its
 * ETag. */
MUST_USE enum status pull_get_size(const struct fetch_net *net, const struct fetch_call *c,
                                   const struct pull_words *w, struct fetch_answer *a,
                                   struct error *err);
