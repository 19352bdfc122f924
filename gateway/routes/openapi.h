#pragma once
/* Builds GET /openapi.json and `cox-gateway openapi`: the requests and answers of this gateway
 * as OpenAPI 3.1. gateway/routes/openapi.json is written by hand: paths, answers, and details of
 * fields that the table of fields does not have. The table of fields provides the request
 * bodies, and the table of routes provides the security. */
#include "gateway/params/params.h"

struct gateway_config;

struct openapi_world {   /* settings of this server that change the document */
    bool keys, admin;    /* API keys exist; an admin key exists and is used at this address */
    bool metrics_public; /* /metrics needs no key */
    /* /metrics has its own address; without --metrics-public, its public address needs a key */
    bool metrics_away;
    bool models;      /* the gateway has a file of models */
    bool metrics_key; /* the admin key is accepted for /metrics */
    bool state;       /* --state-dir is given, so there are files and batches */
    bool sagemaker;   /* /v1/chat/completions is another name for /invocations */
    enum unknown_fields unknown;
};

/* `openapi_base` is the hand-written part as JSON. CMake makes a .c file from it. */
extern const char openapi_base[];
extern const size_t openapi_base_len;

struct openapi_world openapi_world_of(const struct gateway_config *c);
/* Appends the OpenAPI document to `out`. */
void openapi_document(const struct openapi_world *w, struct strbuf *out);
/* Returns the dialect's name in x-requests, or NULL when the dialect has no rows of its own in
 * the table. */
const char *openapi_kind_name(enum api_kind kind);
