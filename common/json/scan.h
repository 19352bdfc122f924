#pragma once
/* Finds where a JSON value ends, byte by byte: enough to pass a tool call's arguments on while they
 * come. It follows strings, those in Python's quotes too, and brackets. Pure; bounded in depth. */
#include "common/base/str.h"

#define JSON_SCAN_MAX_DEPTH 64u

enum json_scan_result {
    JSON_SCAN_MORE, /* all bytes belong to the value, and more may */
    JSON_SCAN_DONE, /* *used bytes belong to it */
    JSON_SCAN_BAD,  /* at *used is what cannot follow */
};

struct json_scan {  /* zero to begin a value */
    uint64_t lists; /* bit d: the bracket at depth d is a list's */
    uint32_t depth;
    char quote; /* of the string that it is in; 0: none */
    bool begun, escaped, is_scalar;
};

/* No white space before the value. A number or a word ends where something else begins, so only
 * with the byte behind it. */
enum json_scan_result json_scan_feed(struct json_scan *s, struct str text, size_t *used);
size_t json_skip_space(struct str text, size_t at);

/* {"name": …, "arguments": {…}} as far as it is there, keys in any order, others skipped. */
enum json_call_result {
    JSON_CALL_MORE,
    JSON_CALL_BEGUN, /* the name is known, and the arguments begin at `arguments` */
    JSON_CALL_BARE,  /* there are none: the object ends before `arguments` */
    JSON_CALL_BAD,
};

struct json_call {
    struct str name;  /* without the quotes; one with an escape in it is bad */
    size_t arguments; /* where their value begins */
};

/* How far the head of a call was read, so that no byte is read again when more has come. Zero to
 * begin with an object; offsets are from there. */
struct json_head {
    uint8_t step;
    bool has_name, has_arguments, is_bare;
    size_t at, from; /* what was read; where the key or the value that it is in begins */
    size_t key, n_key, name, n_name, arguments;
    size_t head; /* bytes without which name and arguments would not be known */
    struct json_scan scan;
};

enum { JSON_CALL_MAX_HEAD = 16 << 10 }; /* bytes up to the arguments: longer is bad */

/* text begins with the object, and holds what it held before. name_key: "name", or what a family
 * writes for it. keys: names of the arguments, NULL at the end. */
enum json_call_result json_call_parse(struct json_head *h, struct str text, const char *name_key,
                                      const char *const *keys, struct json_call *out);
/* The same of {"f": {…}}, whose one key is the name. */
enum json_call_result json_keyed_call_parse(struct json_head *h, struct str text,
                                            struct json_call *out);
