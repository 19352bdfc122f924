#pragma once
/* JSON text of a stranger's to jansson's tree: measured before a tree is built, which would take 24
 * times the text's bytes. One reader for a request's body and for a line of a batch's file, so that
 * both take and refuse the same. Pure; any thread. */
#include "common/json/text.h"

/* A body's. */
#define JSON_BODY_MAX_DEPTH  64u
#define JSON_BODY_MAX_VALUES (1u << 20)

enum json_fault { JSON_TOO_DEEP, JSON_TOO_MANY, JSON_NOT_UTF8, JSON_NO_JSON };

struct json_refusal {
    enum json_fault fault;
    size_t at;         /* NOT_UTF8: the byte */
    json_error_t json; /* NO_JSON: why */
};

/* A new reference. NULL: r says why. An object's key that is there twice is a fault; NUL in a
 * string is none. */
json_t *json_bounded_load(struct str text, uint32_t max_depth, uint64_t max_values,
                          struct json_refusal *r);
