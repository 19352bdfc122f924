#pragma once
/* Finds the end of a JSON value, byte by byte, so that a tool call's arguments can be forwarded
 * while they arrive. The scan follows brackets and strings, also strings in Python's single
 * quotes. The functions are pure, and the depth of their recursion is bounded. */
#include "common/base/str.h"

#define JSON_SCAN_MAX_DEPTH 64u

enum json_scan_result {
    JSON_SCAN_MORE, /* all bytes belong to the value; more may follow */
    JSON_SCAN_DONE, /* *used bytes belong to the value */
    JSON_SCAN_BAD,  /* the byte at *used is not allowed in the value */
};

struct json_scan {  /* the struct must be all zero at the start of a value */
    uint64_t lists; /* bit d = the bracket at depth d opens a list */
    uint32_t depth;
    char quote; /* quote of the current string; 0 = not in a string */
    bool begun, escaped, is_scalar;
};

/* Reads more bytes of a value. `text` must not begin with white space. The end of a number or a
 * word is known only when the next byte has been read. */
enum json_scan_result json_scan_feed(struct json_scan *s, struct str text, size_t *used);
size_t json_skip_space(struct str text, size_t at);

/* `json_call_result` states how much of {"name": …, "arguments": {…}} has arrived. Keys may be
 * in any order. Other keys are skipped. */
enum json_call_result {
    JSON_CALL_MORE,
    JSON_CALL_BEGUN, /* the name is known; the arguments begin at `arguments` */
    JSON_CALL_BARE,  /* the call has no arguments; the object ends before offset `arguments` */
    JSON_CALL_BAD,
};

struct json_call {
    struct str name;  /* name without quotes; a name with an escape is refused */
    size_t arguments; /* offset of the first byte of the arguments */
};

/* `json_head` is the state of reading the beginning of a call up to its arguments, so that no
 * byte is read twice when more arrive. The struct is all zero at the start of an object, and
 * offsets count from there. */
struct json_head {
    uint8_t step;
    bool has_name, has_arguments, is_bare;
    size_t at, from; /* number of bytes read; offset of the current key or value */
    size_t key, n_key, name, n_name, arguments;
    size_t head; /* length of the part that holds the name and the start of the arguments */
    struct json_scan scan;
};

/* JSON_CALL_MAX_HEAD is the most bytes before the arguments. A call with more is refused. */
enum { JSON_CALL_MAX_HEAD = 16 << 10 };

/* Reads more of a call. `text` begins with the object and must still have the bytes of earlier
 * calls. `name_key` is "name", or the key that a model family uses instead. `keys` lists the
 * possible keys of the arguments, with NULL at the end. */
enum json_call_result json_call_parse(struct json_head *h, struct str text, const char *name_key,
                                      const char *const *keys, struct json_call *out);
/* Parses a call of the form {"f": {…}}, where the only key is the name. */
enum json_call_result json_keyed_call_parse(struct json_head *h, struct str text,
                                            struct json_call *out);
