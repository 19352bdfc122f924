#pragma once
/* Describes the server that a benchmark sends requests to, and the parts that all its requests
 * share. */
#include <jansson.h>

#include "cli/client/gateway_access.h"

struct bench_target {
    struct gateway_access gateway; /* address and key of the server; the strings are borrowed */
    char base[900];                /* URL without a slash at its end and without /v1 */
    char endpoint[200];            /* path of the call: "/v1/completions" */
    bool is_chat;
    char model[512];
    const char *const *headers; /* [n_headers] headers of each request, borrowed; NULL = none */
    size_t n_headers;
    /* prefix of each request's X-Request-Id; NULL = the header is not sent */
    const char *request_id_prefix;
    json_t *fields;    /* additional JSON members of each body (sampling, ignore_eos); owned */
    const char *owner; /* command that messages name: "bench serve" */
};

/* Opens the target. A slash or /v1 at the end of the URL is removed, since a pasted base URL may
 * end with one. With `endpoint` NULL, is_chat chooses it. */
MUST_USE enum status bench_target_open(struct bench_target *t, const struct gateway_access *gateway,
                                       const char *endpoint, bool is_chat, struct error *err);
void bench_target_close(struct bench_target *t); /* Frees the target; accepts a zeroed struct. */
/* Finds the model's name. When the server has a list of models, a given name must be in the
 * list. Without a given name, the function takes the first model of the list. */
MUST_USE enum status bench_target_find_model(struct bench_target *t, const char *given,
                                             struct error *err);
/* Sends POST (GET when `body` is NULL) to base + path and parses the answer. *code is the
 * answer's HTTP status. */
MUST_USE enum status bench_target_ask(const struct bench_target *t, const char *path,
                                      const json_t *body, int *code, json_t **owned_answer,
                                      struct error *err);
/* Copies the error text of the server's answer, cut for one line of a terminal; "" when the
 * answer has none. */
void bench_error_text(const json_t *answer, char *out, size_t size);
/* Returns the body of one request. The caller frees it with free(). With `model` NULL, the body
 * names the target's model. */
char *bench_target_body(const struct bench_target *t, const char *model, const char *prompt,
                        uint32_t output_tokens);
