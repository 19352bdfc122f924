#pragma once
/* Finds stop strings in streamed text. Each string has a byte-wise automaton (Knuth, Morris,
 * Pratt 1977). Its state is the length of the longest suffix of the text that begins the stop
 * string. Exactly these bytes must be held back from the client.
 * The result depends on the text alone, not on its split into tokens. The first complete string
 * wins. When several strings are complete at the same byte, the longest wins. A `stop_set` is
 * immutable and shared by the choices of a request. A matcher belongs to one choice. Only one
 * thread at a time may use a matcher. */
#include "common/base/str.h"

#define STOP_MAX_STRINGS 16u
#define STOP_MAX_BYTES   1024u /* most bytes of one stop string */

struct stop_set {
    uint32_t n;
    struct stop_string {
        struct str text; /* owned copy */
        uint16_t *fail;  /* KMP failure table, [len + 1] */
    } * strings;         /* [n]; NULL when n is 0 */
};

struct stop_matcher {
    uint16_t state[STOP_MAX_STRINGS];
};

struct stop_match {
    uint32_t i_string;
    size_t end;   /* bytes of the fed piece up to and including the last byte of the match */
    size_t bytes; /* length of the stop string */
};

/* Copies the `strings` into a set. They must be non-empty, at most STOP_MAX_STRINGS, each at
 * most STOP_MAX_BYTES long. */
void stop_set_init(struct stop_set *s, const struct str *strings, uint32_t n);
void stop_set_fini(struct stop_set *s);
/* Feeds text to the matcher. Returns true when a stop string is complete at `out->end`. The rest
 * was not fed. With `ignore`, complete strings are skipped (min_tokens). */
bool stop_matcher_feed(struct stop_matcher *m, const struct stop_set *s, struct str text,
                       bool ignore, struct stop_match *out);
/* Returns the number of bytes at the end of the fed text that may begin a stop string. */
size_t stop_matcher_held(const struct stop_matcher *m, const struct stop_set *s);
