#pragma once
/* A row of the table of fields (table.h): what a field is called, what it may hold, which dialects
 * know it, and what becomes of it. A key of a body that has no row is unknown.
 * docs/reference/openai.md is made from this. For read.c and the parts of the table only. */
#include <limits.h>

#include "gateway/params/params.h"

enum field_type {
    FIELD_BOOL,
    FIELD_INT,      /* int64_t; a real without a fraction is taken, as pydantic does */
    FIELD_U32,      /* the same, into uint32_t */
    FIELD_FLOAT,    /* double */
    FIELD_STR,      /* struct str of 0 .. max bytes */
    FIELD_JSON,     /* borrowed json_t of the kind `want`, looked into later */
    FIELD_CUSTOM,   /* parse */
    FIELD_HARMLESS, /* accepted whatever it holds: it changes no answer, and `why` says so */
    FIELD_ONLY,     /* accepted where it asks for what is done anyway: one of `only` */
    FIELD_REFUSE,   /* not supported: anything but null, false, empty is a 400 with `why` */
};

struct field_context { /* what a field's own parser may need besides its value */
    const struct params_policy *policy;
    const char *name;
    struct api_error *e;
    uint32_t *n_ignored; /* of the request: unknown ones that were let pass so far */
};

struct field {
    const char *name;
    enum field_type type;
    unsigned kinds; /* of enum api_kind */
    size_t offset;
    double min, max;
    bool above_min; /* min itself is not allowed */
    json_type want;
    bool (*parse)(struct params *p, const json_t *v, const struct field_context *c);
    const char *only;  /* compact JSON texts with | between */
    const char *why;   /* refused, harmless: why. Else what the documentation adds, or NULL */
    const char *since; /* the first version in which this is so */
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

/* Lines of the log that one request's unknown fields may take. A body has room for half a million
 * of them, and the loop waits where the log's pipe is full. */
enum { FIELD_MOST_TOLD = 16 };

/* False, with "NAME must be WANT, got …". */
bool field_wrong_type(struct api_error *e, const char *name, const char *want, const json_t *got);
/* null, false, or an empty text, list or object: it asks for nothing. */
bool field_is_empty(const json_t *v);
/* A member of the object called name that nobody knows: refused by its full name, unless the policy
 * lets it pass. */
bool field_unknown_member(const struct field_context *c, const char *name, const char *key);
/* A field or member that nobody knows is let pass, and the log hears of it. */
void field_tell_ignored(uint32_t *n_ignored, const char *name);
/* Whether the members of v, called name, are null or among known, which ends in NULL; others are as
 * above. True of what is no object. */
bool field_known_members(const struct field_context *c, const char *name, const json_t *v,
                         const char *const *known);
bool field_read_bool(const json_t *v, const char *name, bool *out, struct api_error *e);
