#pragma once
/* The arguments of a call as JSON, whatever a model writes. Text that is JSON goes through as it is
 * and as it comes. Other text becomes JSON on its way, because a client can take no piece back:
 *
 *   {'a': True, b: 1,}   →  {"a": true, "b": 1}
 *   "a line<newline>"    →  "a line\n"
 *   {"a": [1, {"b":      →  {"a": [1, {"b": null}]}, when the call ends there
 *   print(1)             →  "print(1)"
 *
 * Each byte is looked at once, so the time is linear; the memory is this struct. Pure but for what
 * it appends. */
#include "common/base/str.h"

#define JSON_MEND_MAX_DEPTH 1088u /* more than any parser lets through */

struct json_mend {   /* zero to begin a value */
    uint8_t step;    /* json_mend.c has the steps */
    uint8_t number;  /* the part of a number that came last */
    uint8_t n_held;  /* bytes that wait for those behind them */
    uint8_t n_comma; /* a comma and white space behind it, given when a member follows */
    char held[6], comma[16];
    char quote;             /* of the string that it is in; 0: of text that is no JSON */
    bool key;               /* the string or word is a key */
    uint32_t depth, n_maps; /* brackets that are open; objects among them */
    uint64_t maps[JSON_MEND_MAX_DEPTH / 64]; /* bit d: the bracket at depth d is an object's */
};

/* Appends to out the JSON that text has become. */
void json_mend_feed(struct json_mend *m, struct str text, struct strbuf *out);
/* The value is over: appends the end of what is still open, or {} where nothing came. */
void json_mend_end(struct json_mend *m, struct strbuf *out);
