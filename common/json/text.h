#pragma once
/* Converts JSON text to jansson's tree and back, with numbers of any size. The tree holds 64-bit
 * integers and doubles. Any other number is kept as its text, in an object of one member
 * (json_text_is_number). json_text_dump writes it as a number again. So values that are only
 * forwarded (schemas, arguments, metadata) stay unchanged. Code that expects a number finds an
 * object instead and can report it. */
#include <jansson.h>

#include "common/base/str.h"

/* `json_text_size` is the size of the tree of a text. Each value and each key of an object
 * counts as one, and a number beyond 64 bits as three. A text that is not JSON has a size as
 * well. json_text_measure returns false when the text is deeper than max_depth or has more than
 * max_values. `out` then has the size up to that point. */
struct json_text_size {
    uint64_t n_values;
    uint32_t depth;
};
bool json_text_measure(struct str text, uint32_t max_depth, uint64_t max_values,
                       struct json_text_size *out);
/* Returns the n_values (struct json_text_size) of a tree; 0 for NULL. The tree must not be
 * deeper than a request body may be. */
uint64_t json_text_count(const json_t *v);

/* Parses a text. Returns a new reference, or NULL with the reason in `e`, which may be NULL.
 * `flags` are jansson's. A text that is not JSON gets jansson's error. */
json_t *json_text_load(struct str text, size_t flags, json_error_t *e);
/* Writes a tree as a text that the caller frees with free. Returns NULL when json_dumps fails.
 * `flags` are jansson's. */
char *json_text_dump(const json_t *v, size_t flags);
/* Returns true when `text` is one JSON number of any size and nothing else. Sets *is_integer
 * (may be NULL) for a number: true when it has neither a fraction nor an exponent. */
bool json_text_reads_number(struct str text, bool *is_integer);
/* Returns true when `v` stands for a number that the tree cannot hold. */
bool json_text_is_number(const json_t *v);
/* Returns true when `text` is one JSON value exactly as in RFC 8259, with white space around it.
 * Numbers may have any size, every escape is allowed, and there may be up to JSON_TEXT_MAX_DEPTH
 * levels. */
bool json_text_is_whole(struct str text);
enum { JSON_TEXT_MAX_DEPTH = 1024 };
/* Returns true when `v` is an object that the client sent, and not an object that stands for a
 * number (json_text_is_number). */
bool json_text_is_object(const json_t *v);
