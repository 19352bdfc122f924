#pragma once
/* One GET of a stranger's server by libcurl, for `cox pull`: blocking, on the calling thread;
 * several threads may, after fetch_session_new has been called once.
 * Redirects are followed here and not by libcurl, so that what is secret goes to the host that was
 * asked and to no other, and nothing that began encrypted goes on in the clear. Proxies are the
 * environment's (HTTPS_PROXY, NO_PROXY), never for this machine. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"
#include "common/keys/aws_sign.h"

#define FETCH_UNKNOWN UINT64_MAX

/* Settings that all calls of a run share. Borrowed. */
struct fetch_net {
    const char *ca_file;  /* NULL: the system's */
    double stall_s;       /* a silence of that long ends a call */
    double retry_wait_s;  /* before the second attempt; doubles */
    uint32_t max_retries; /* in a row, without anything new */
    bool (*is_stopped)(void);
    const atomic_bool *cancelled;  /* of calls of several threads, when one has failed; or NULL */
    void (*say)(const char *text); /* an attempt that failed; a line for people */
};

struct fetch_answer {
    int code;
    uint64_t begin, total; /* of the file: where this body begins, its size; FETCH_UNKNOWN */
    char etag[136];        /* "" when there is none, or it is a weak one */
    uint32_t retry_after_s;
    char host[128];   /* who answered */
    char problem[64]; /* the <Code> of an S3 error, or "" */
};

/* Connections that are kept, of one thread. */
struct fetch_session;
struct fetch_session *fetch_session_new(void); /* NULL: libcurl did not start */
void fetch_session_free(struct fetch_session *s);

struct fetch_call {
    const char *url;
    const char *bearer;            /* for url's own scheme, host and port; or NULL */
    const struct aws_keys *keys;   /* signs with them, for the same host; or NULL */
    const char *user;              /* "NAME:PASSWORD" (basic), for the same host; or NULL */
    const char *accept, *if_range; /* or NULL */
    uint64_t from, to; /* first byte that is wanted, and behind the last; to 0: the end */
    struct fetch_session *session; /* keeps the connection for the next call; or NULL */
    bool first_byte_only;          /* asks what there is */
    /* The head of a 200 or 206, before its body; then the body. false ends the call: CLOSED. */
    bool (*on_begin)(void *ctx, const struct fetch_answer *a);
    bool (*on_data)(void *ctx, struct str piece);
    void *ctx;
};

/* A signal came, or another thread has failed. */
static inline bool fetch_is_stopped(const struct fetch_net *net)
{
    return net->is_stopped() || (net->cancelled && atomic_load(net->cancelled));
}
/* OK: an HTTP answer came in whole, whatever its code. IO, TIMEOUT: none came, again may help.
 * DENIED, INVALID: again does not help. CLOSED: a callback or a signal ended it. */
MUST_USE enum status fetch_get(const struct fetch_net *net, const struct fetch_call *c,
                               struct fetch_answer *out, struct error *err);
/* scheme://host[:port] alone of an http or https URL without user and query, for --hf-endpoint and
 * the like; a path may follow. */
MUST_USE enum status fetch_check_endpoint(const char *option, const char *url, struct error *err);
/* Takes NAME:PASSWORD out of a URL, for fetch_call.user; NULL when there is none. For mem_free. */
char *fetch_take_user(char *url);
bool fetch_same_origin(const char *url, const char *other); /* scheme, host and port */
/* link as it stands on the page at url; for mem_free. NULL: not usable. */
char *fetch_resolve(const char *url, const char *link);
/* Appends s with all but letters, digits and -._~ (and the bytes of keep) as %XX. */
void fetch_append_encoded(struct strbuf *b, const char *s, const char *keep);
