#pragma once
/* Makes one GET from a server on the internet with libcurl, for `cox pull`. The call blocks the
 * calling thread. Several threads may call it, after fetch_session_new has been called once.
 * This module follows redirects itself and not with libcurl. So credentials are sent only to the
 * host of the original URL, and a transfer that began with https never continues with http.
 * Proxies are read from the environment (HTTPS_PROXY, NO_PROXY) and are never used for this
 * machine. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"
#include "common/keys/aws_sign.h"

#define FETCH_UNKNOWN UINT64_MAX

/* `fetch_net` holds the settings that all calls of a run share. The calls borrow it. */
struct fetch_net {
    const char *ca_file; /* trusted certificates; NULL = the system's */
    double stall_s;      /* seconds without a byte after which a call ends */
    /* wait before the second attempt, in seconds; doubled before each further attempt */
    double retry_wait_s;
    uint32_t max_retries; /* most attempts in a row that receive no new byte */
    bool (*is_stopped)(void);
    const atomic_bool *cancelled; /* becomes true when one of several threads has failed; or NULL */
    void (*say)(const char *text); /* reports a failed attempt, as one line for people */
};

struct fetch_answer {
    int code;
    /* first byte of this body in the file, and the file's size; or FETCH_UNKNOWN */
    uint64_t begin, total;
    char etag[136]; /* ETag of the file; "" when there is no ETag or only a weak one */
    uint32_t retry_after_s;
    char host[128];   /* host that answered */
    char problem[64]; /* <Code> of an S3 error, or "" */
};

/* `fetch_session` holds the open connections that one thread keeps between calls. */
struct fetch_session;
struct fetch_session *fetch_session_new(void); /* returns NULL when libcurl did not start */
void fetch_session_free(struct fetch_session *s);

struct fetch_call {
    const char *url;
    const char *bearer;            /* token for the origin of `url` only; or NULL */
    const struct aws_keys *keys;   /* keys to sign with, for the same origin; or NULL */
    const char *user;              /* "NAME:PASSWORD" (basic), for the same origin; or NULL */
    const char *accept, *if_range; /* values of the Accept and If-Range headers; or NULL */
    uint64_t from, to; /* byte range, without the byte at `to`; `to` 0 = up to the end */
    /* session that keeps the connection for the next call; or NULL */
    struct fetch_session *session;
    bool first_byte_only; /* true = only check whether the file exists and how large it is */
    /* on_begin is called with the headers of a 200 or 206, then on_data with pieces of the body.
     * Each returns false to end the call with STATUS_CLOSED. */
    bool (*on_begin)(void *ctx, const struct fetch_answer *a);
    bool (*on_data)(void *ctx, struct str piece);
    void *ctx;
};

/* Returns true when a signal has arrived or another thread has failed. */
static inline bool fetch_is_stopped(const struct fetch_net *net)
{
    return net->is_stopped() || (net->cancelled && atomic_load(net->cancelled));
}
/* Makes the call. Returns STATUS_OK when an HTTP answer arrived completely, with any code.
 * STATUS_IO and STATUS_TIMEOUT mean that no answer arrived, and a retry may help. After
 * STATUS_DENIED and STATUS_INVALID a retry does not help. STATUS_CLOSED means that a callback or
 * a signal ended the call. */
MUST_USE enum status fetch_get(const struct fetch_net *net, const struct fetch_call *c,
                               struct fetch_answer *out, struct error *err);
/* Checks the value of --hf-endpoint and similar options, which must be an http or https URL
 * without user and query. A path is allowed. */
MUST_USE enum status fetch_check_endpoint(const char *option, const char *url, struct error *err);
/* Removes NAME:PASSWORD from a URL and returns it for fetch_call.user, decoded. Returns NULL
 * when the URL has none. The caller frees the result with mem_free. */
char *fetch_take_user(char *url);
bool fetch_same_origin(const char *url, const char *other); /* compares scheme, host and port */
/* Resolves a link of the page at `url`. Returns NULL when the link is not usable. The caller
 * frees the result with mem_free. */
char *fetch_resolve(const char *url, const char *link);
/* Appends `s` percent-encoded, except letters, digits, -._~ and the bytes of `keep`. */
void fetch_append_encoded(struct strbuf *b, const char *s, const char *keep);
