#pragma once
/* The server that a benchmark asks, and what every request says but its prompt. */
#include <jansson.h>

#include "cli/client/gateway_access.h"

struct bench_target {
    struct gateway_access gateway; /* borrowed strings */
    char base[900];                /* its URL without an end slash and without /v1 */
    char endpoint[200];            /* "/v1/completions" */
    bool is_chat;
    char model[512];
    const char *const *headers; /* [n_headers] borrowed; or NULL */
    size_t n_headers;
    const char *request_id_prefix; /* of each request's X-Request-Id; NULL: none is sent */
    json_t *fields;    /* further members of each body: sampling, ignore_eos; the target's */
    const char *owner; /* "bench serve": whose messages these are */
};

/* base as people paste it: a slash or the /v1 of a base_url at its end do no harm. endpoint NULL:
 * by is_chat. */
MUST_USE enum status bench_target_open(struct bench_target *t, const struct gateway_access *gateway,
                                       const char *endpoint, bool is_chat, struct error *err);
void bench_target_close(struct bench_target *t); /* zeroed is fine */
/* The model's name: what is given, which a server that lists its models has to have; else the first
 * that it has. */
MUST_USE enum status bench_target_find_model(struct bench_target *t, const char *given,
                                             struct error *err);
/* POST (body NULL: GET) of base + path, the answer parsed; *code its HTTP status. */
MUST_USE enum status bench_target_ask(const struct bench_target *t, const char *path,
                                      const json_t *body, int *code, json_t **owned_answer,
                                      struct error *err);
/* Copies the text of a server's error, cut for a line on a terminal; "" when it says nothing. */
void bench_error_text(const json_t *answer, char *out, size_t size);
/* The body of one request, for free(). model NULL: the target's. */
char *bench_target_body(const struct bench_target *t, const char *model, const char *prompt,
                        uint32_t output_tokens);
