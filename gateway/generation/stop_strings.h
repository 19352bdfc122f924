#pragma once
/* Stop strings in streamed text. A byte-wise automaton per string (Knuth, Morris, Pratt 1977): the
 * state is the length of the longest suffix of the text that begins a stop string, which is exactly
 * what must be held back from the client. The verdict depends on the text alone, not on how tokens
 * cut it: the string that is complete first wins, and of those complete at the same byte the
 * longest. A stop_set is immutable and shared by the choices of a request; a matcher belongs to one
 * choice. Single-threaded. */
#include "common/base/str.h"

#define STOP_MAX_STRINGS 16u
#define STOP_MAX_BYTES   1024u /* of one string */

struct stop_set {
    uint32_t n;
    struct str strings[STOP_MAX_STRINGS]; /* owned copies */
    uint16_t *fail[STOP_MAX_STRINGS];     /* KMP failure table, [len + 1] */
};

struct stop_matcher {
    uint16_t state[STOP_MAX_STRINGS];
};

struct stop_match {
    uint32_t i_string;
    size_t end;   /* bytes of the fed piece up to and with the completing byte */
    size_t bytes; /* length of the stop string */
};

/* strings: non-empty, at most STOP_MAX_STRINGS of at most STOP_MAX_BYTES; copied. */
void stop_set_init(struct stop_set *s, const struct str *strings, uint32_t n);
void stop_set_fini(struct stop_set *s);
/* Feeds text. True: a stop string is complete at m->end; the rest was not fed. With ignore,
 * complete ones are passed over (min_tokens). */
bool stop_matcher_feed(struct stop_matcher *m, const struct stop_set *s, struct str text,
                       bool ignore, struct stop_match *out);
/* Bytes at the end of the text fed so far that may turn out to begin a stop string. */
size_t stop_matcher_held(const struct stop_matcher *m, const struct stop_set *s);
