#pragma once
/* `field` is a row of the table of fields (table.h): a field's name, its values, the dialects
 * that have it, and its use. A key of a body without a row is unknown. docs/reference/openai.md
 * is made from the table. Only read.c and the parts of the table include this header. */
#include <limits.h>

#include "gateway/params/params.h"

enum field_type {
    FIELD_BOOL,
    FIELD_INT,    /* an int64_t; a real number without a fraction is accepted, as in pydantic */
    FIELD_U32,    /* a uint32_t; accepted like FIELD_INT */
    FIELD_FLOAT,  /* a number, kept as a double */
    FIELD_STR,    /* a struct str of at most `max` bytes */
    FIELD_JSON,   /* a borrowed json_t of the kind `want`, checked later */
    FIELD_CUSTOM, /* a value that the function `parse` reads */
    /* any value is accepted, because the field changes no answer; `why` has the reason */
    FIELD_HARMLESS,
    FIELD_ONLY, /* a value of `only` is accepted, because it asks for the existing behaviour */
    /* not supported: gives a 400 with `why`, except for null, false or an empty value */
    FIELD_REFUSE,
};

struct field_context { /* arguments of a field's own parser */
    const struct params_policy *policy;
    const char *name;
    struct api_error *e;
    uint32_t *n_ignored; /* count of the request's ignored unknown fields */
};

struct field {
    const char *name;
    enum field_type type;
    unsigned kinds; /* dialects that know the field, as bits of `enum api_kind` */
    size_t offset;
    double min, max;
    bool above_min; /* the value must be above `min`, not equal to it */
    json_type want;
    bool (*parse)(struct params *p, const json_t *v, const struct field_context *c);
    const char *only; /* accepted values, as compact JSON texts separated by | */
    /* reason of a refused or harmless field; for others a note for the docs, or NULL */
    const char *why;
    const char *since; /* first version with this behaviour */
};

struct field_table {
    const struct field *rows;
    size_t n;
};

/* ---- rows ---- */

#define SINCE          "0.1"
#define CHAT           API_CHAT
#define TEXT           API_COMPLETIONS
#define BOTH           (API_COMPLETIONS | API_CHAT)
#define TOKENIZE       API_TOKENIZE
#define DETOKENIZE     API_DETOKENIZE
#define EMBEDDINGS     API_EMBEDDINGS
#define MESSAGES       API_MESSAGES
#define RESPONSES      API_RESPONSES
#define GENERATES      (API_COMPLETIONS | API_CHAT | API_RESPONSES)
#define ANTHROPIC      (API_MESSAGES | API_COUNT_TOKENS)
#define AT(field)      offsetof(struct params, field)
#define ROW(nm, ty, k) .name = nm, .type = ty, .kinds = k, .since = SINCE
#define ROW_BOOL(field, k)                                                                         \
    {                                                                                              \
        ROW(#field, FIELD_BOOL, k), .offset = AT(field)                                            \
    }
#define ROW_FLOAT(field, k, lo, hi)                                                                \
    {                                                                                              \
        ROW(#field, FIELD_FLOAT, k), .offset = AT(field), .min = lo, .max = hi                     \
    }
#define ROW_FLOAT_ABOVE(field, k, lo, hi)                                                          \
    {                                                                                              \
        ROW(#field, FIELD_FLOAT, k), .offset = AT(field), .min = lo, .max = hi, .above_min = true  \
    }
#define ROW_INT(nm, field, k, lo, hi)                                                              \
    {                                                                                              \
        ROW(nm, FIELD_INT, k), .offset = AT(field), .min = lo, .max = hi                           \
    }
#define ROW_U32(nm, field, k, lo, hi)                                                              \
    {                                                                                              \
        ROW(nm, FIELD_U32, k), .offset = AT(field), .min = lo, .max = hi                           \
    }
#define ROW_STR(nm, field, k, hi)                                                                  \
    {                                                                                              \
        ROW(nm, FIELD_STR, k), .offset = AT(field), .max = hi                                      \
    }
#define ROW_JSON(nm, field, k, w)                                                                  \
    {                                                                                              \
        ROW(nm, FIELD_JSON, k), .offset = AT(field), .want = w                                     \
    }
#define ROW_CUSTOM(nm, k, text)                                                                    \
    {                                                                                              \
        ROW(#nm, FIELD_CUSTOM, k), .parse = parse_##nm, .why = text                                \
    }
#define ROW_HARMLESS(nm, k, text)                                                                  \
    {                                                                                              \
        ROW(nm, FIELD_HARMLESS, k), .why = text                                                    \
    }
#define ROW_ONLY(nm, k, ok, text)                                                                  \
    {                                                                                              \
        ROW(nm, FIELD_ONLY, k), .only = ok, .why = text                                            \
    }
#define ROW_REFUSE(nm, k, text)                                                                    \
    {                                                                                              \
        ROW(nm, FIELD_REFUSE, k), .why = text                                                      \
    }
#define FIELD_TABLE(name)                                                                          \
    const struct field_table fields_##name = {rows, sizeof rows / sizeof *rows}

/* ---- for parsers of fields ---- */

/* `FIELD_MOST_TOLD` limits the log lines about unknown fields of one request. A body may contain
 * half a million unknown fields, and the loop blocks when the log's pipe is full. */
enum { FIELD_MOST_TOLD = 16 };

/* Sets the error "NAME must be WANT, got …" and returns false. */
bool field_wrong_type(struct api_error *e, const char *name, const char *want, const json_t *got);
/* Returns true for null, false, or an empty text, list or object, which request nothing. */
bool field_is_empty(const json_t *v);
/* Handles an unknown member `key` of the object `name`. The policy decides whether the member is
 * ignored, or refused by its full name. */
bool field_unknown_member(const struct field_context *c, const char *name, const char *key);
/* Counts an ignored unknown field or member, and logs it. */
void field_tell_ignored(uint32_t *n_ignored, const char *name);
/* Checks that the members of the object `v` are null or in `known` (NULL-terminated).
 * `field_unknown_member` handles all other members. Returns true when `v` is not an object. */
bool field_known_members(const struct field_context *c, const char *name, const json_t *v,
                         const char *const *known);
bool field_read_bool(const json_t *v, const char *name, bool *out, struct api_error *e);
