#pragma once
/* JSON text to jansson's tree and back, with numbers of any size. The tree holds integers of 64
 * bits and doubles; a number beyond both is kept as it was written: an object of one member
 * (json_text_is_number), which json_text_dump writes as the number again. Values that are only
 * passed on (schemas, arguments, metadata) come through unharmed; what reads a number gets one that
 * is none of its own, and says so. */
#include <jansson.h>

#include "common/base/str.h"

/* The size of the tree that this text would become: each value and each key of an object counts as
 * one, and a number beyond 64 bits as three. Text that is no JSON has some size as well. False: it
 * is nested deeper than max_depth or has more than max_values; out says how far it was read, and
 * which. */
struct json_text_size {
    uint64_t n_values;
    uint32_t depth;
};
bool json_text_measure(struct str text, uint32_t max_depth, uint64_t max_values,
                       struct json_text_size *out);
/* The same of a tree, which is not deeper than a body may be. NULL: 0. */
uint64_t json_text_count(const json_t *v);

/* flags: jansson's. A new reference, or NULL and why in e, which may be NULL. Text that is not JSON
 * is refused as jansson does. */
json_t *json_text_load(struct str text, size_t flags, json_error_t *e);
/* flags: jansson's; to be freed. NULL: as json_dumps has it. */
char *json_text_dump(const json_t *v, size_t flags);
/* Whether text is a number as JSON writes it, of any size, and nothing else. is_integer, which may
 * be NULL: it has neither a fraction nor an exponent; set where the answer is true. */
bool json_text_reads_number(struct str text, bool *is_integer);
/* Whether v is a number that the tree has no place for. */
bool json_text_is_number(const json_t *v);
/* Whether text is one JSON value, by RFC 8259's letter, with white space around it: numbers of any
 * size, every escape, JSON_TEXT_MAX_DEPTH levels. */
bool json_text_is_whole(struct str text);
enum { JSON_TEXT_MAX_DEPTH = 1024 };
/* Whether v is an object of the client's, and not such a number. */
bool json_text_is_object(const json_t *v);
