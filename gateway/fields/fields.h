#pragma once
/* The table of fields, in parts (fields_*.c): a row says of a field what it is called, what it may
 * hold, which dialects know it, and what becomes of it. A key of a body that has no row is unknown.
 * docs/openai.md is made from this. For params.c and the parts of the table only. */
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
extern const struct field_table fields_prompt, fields_sampling, fields_answer, fields_tools,
    fields_messages, fields_responses, fields_embeddings, fields_refused;
/* All of them, in the order in which they are read and documented. */
const struct field *fields_at(size_t i); /* NULL behind the last */

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
#define DRAWS          (API_COMPLETIONS | API_CHAT | API_RESPONSES)
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

/* False, with "NAME must be WANT, got …". */
bool field_wrong_type(struct api_error *e, const char *name, const char *want, const json_t *got);
/* null, false, or an empty text, list or object: it asks for nothing. */
bool field_is_empty(const json_t *v);
/* tools of p is the list v, whose members `read`, given their place, adds (tool_set.h) or refuses;
 * none when it is empty. */
typedef bool (*field_read_tool)(struct params *p, json_t *tool, size_t i,
                                const struct field_context *c);
bool field_tools(struct params *p, const json_t *v, const struct field_context *c,
                 field_read_tool read);
/* An answer is a call of the tool of this name, a string, of a namespace or of none (NULL). False:
 * there is none. */
bool field_force_tool(struct params *p, const json_t *name, const json_t *space,
                      const struct field_context *c);
/* tool_choice of p, of OpenAI's forms: a word, {"type": "function" or "custom"} with a name, in it
 * or (chat) in an object of the type's name, {"type": "allowed_tools"} with mode and tools,
 * likewise. */
bool field_tool_choice(struct params *p, const json_t *v, const struct field_context *c);
/* A member of the object called name that nobody knows: refused by its full name, unless the policy
 * lets it pass. */
bool field_unknown_member(const struct field_context *c, const char *name, const char *key);
/* Whether the members of v, called name, are null or among known, which ends in NULL; others are as
 * above. True of what is no object. */
bool field_known_members(const struct field_context *c, const char *name, const json_t *v,
                         const char *const *known);
/* The same of a response_format, or of its flat form, where a schema is not in json_schema. */
bool field_known_format(const struct field_context *c, const char *name, const json_t *v,
                        bool is_flat);
bool field_read_bool(const json_t *v, const char *name, bool *out, struct api_error *e);
/* Whether the members of what the body's lists hold, messages, tools and items and what is in
 * them, are known to this kind's readers; others are as above. */
bool fields_check_members(struct params *p, const struct params_policy *policy,
                          struct api_error *e);
