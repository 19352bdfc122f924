#pragma once
/* GET /openapi.json, and `cox-gateway openapi`: what this gateway takes and answers, as
 * OpenAPI 3.1. gateway/routes/openapi.json is the hand-written half: paths, answers, and what of a
 * field the table of fields does not say; bodies of requests are made of the table, security of the
 * table of routes. */
#include "gateway/params/params.h"

struct gateway_config;

struct openapi_world {   /* what of this server decides about the document */
    bool keys, admin;    /* API keys; an admin key, at this address */
    bool metrics_public; /* /metrics wants no key */
    bool metrics_away;   /* it has an address of its own: here it wants one in any case */
    bool metrics_key;    /* the admin key is one */
    bool state;          /* --state-dir: files and batches */
    bool sagemaker;      /* /v1/chat/completions is another name for /invocations */
    enum unknown_fields unknown;
};

/* The half that was written by hand, as JSON; CMake makes the .c from it. */
extern const char openapi_base[];
extern const size_t openapi_base_len;

struct openapi_world openapi_world_of(const struct gateway_config *c);
/* Appends the document. */
void openapi_document(const struct openapi_world *w, struct strbuf *out);
/* The name under which x-requests has a dialect; NULL: it has no rows of its own in the table. */
const char *openapi_kind_name(enum api_kind kind);
