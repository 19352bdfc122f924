#pragma once
/* Parses JSON of unknown clients into jansson's tree. The text is measured before a tree is
 * built, because a tree can take 24 times the text's bytes. Request bodies and lines of a
 * batch's file use this parser, so both accept and refuse the same texts. The functions are pure
 * and may run on any thread. */
#include "common/json/text.h"

/* JSON_BODY_MAX_DEPTH and JSON_BODY_MAX_VALUES are the limits of a request body. */
#define JSON_BODY_MAX_DEPTH  64u
#define JSON_BODY_MAX_VALUES (1u << 20)

enum json_fault { JSON_TOO_DEEP, JSON_TOO_MANY, JSON_NOT_UTF8, JSON_NO_JSON };

struct json_refusal {
    enum json_fault fault;
    size_t at;         /* JSON_NOT_UTF8: offset of the first bad byte */
    json_error_t json; /* JSON_NO_JSON: error of jansson */
};

/* Parses `text`. Returns a new reference, or NULL with the reason in `r`. A repeated key of an
 * object is an error. A NUL in a string is allowed. */
json_t *json_bounded_load(struct str text, uint32_t max_depth, uint64_t max_values,
                          struct json_refusal *r);
