#pragma once
/* Parsers for the markers that model families write around reasoning and tool calls. A parser is
 * a constant table of functions over a plain state, one state per choice. It does not allocate.
 * A parser is fed all input that it has not consumed, with new input at the end, so it keeps no
 * text. It keeps its position instead. Long input that waits (arguments of a megabyte) is
 * therefore not scanned again for each token. */
#include "common/base/str.h"
#include "common/json/scan.h"
#include "gateway/answer/literal_state.h"

struct answer;

struct parser_state {
    uint32_t step; /* current step of the parser; 0 at the start */
    uint32_t i_call;
    uint32_t i_mark; /* index of the last marker found */
    bool said;       /* true after content was given out */
    bool in_list, in_object, in_header;
    uint32_t n_blanks; /* white space after content; it is given out if no call follows */
    uint64_t blanks;   /* kinds of these blanks, two bits each */
    uint32_t types;    /* allowed types of the current value (tool_types.h) */
    uint32_t i_wrapper;
    struct json_scan json;
    struct json_head head; /* start of the current call */
    struct literal_scan literal;
    /* A value that is held back: the bytes already scanned, and a possible end (0 = none). */
    size_t n_seen, n_first;
    struct literal_end value;
    struct literal_arguments arguments;
};

/* Text allowed between a prompt and the answer itself: any text up to a closing marker. */
struct reasoning_marks {
    const char *const *open, *const *close; /* markers that open and close it, NULL-terminated */
    bool begun; /* false = the reasoning is optional and starts with an opening marker */
};

struct answer_parser {
    const char *name; /* value of --reasoning-parser or --tool-call-parser */
    /* NULL-terminated list of exact texts that begin or end something. A special token with such
     * a text is shown to the parser and not to the client. */
    const char *const *markers;
    /* Sets the initial state. `prompt` is the rendered prompt or empty. `continued` is the end
     * of the prompt that the answer continues. NULL = start with step 0. */
    void (*init)(const struct answer_parser *p, struct parser_state *s, struct str prompt,
                 struct str continued);
    /* Adds parts to `a` (answer.h, "for parsers") and returns the number of consumed bytes. The
     * rest is fed again, with new text. With `end` all text must be consumed: text that could
     * become a marker is ordinary text then. */
    size_t (*feed)(const struct answer_parser *p, struct parser_state *s, struct str text, bool end,
                   struct answer *a);
    /* For grammars, which begin after the reasoning; set by reasoning parsers. Returns false
     * when the prompt has ended the reasoning or turned it off. NULL = an answer with a grammar
     * has no reasoning. */
    bool (*marks)(const struct answer_parser *p, struct str prompt, struct str continued,
                  struct reasoning_marks *out);
    uint32_t n_id; /* letters and digits in a call's id, when templates require a number; 0 = any */
    const void *family; /* constants that differ between variants of a parser */
};

enum { ANSWER_MARKER_MAX = 64 }; /* longest marker in bytes */

/* Returns the text after the first n bytes, n <= s.len. An empty text may have a NULL pointer. */
static inline struct str parser_skip(struct str s, size_t n)
{
    return n > 0 ? (struct str){s.ptr + n, s.len - n} : s;
}
/* One step of a parser. Returns the number of consumed bytes. */
typedef size_t parser_step(const struct answer_parser *p, struct parser_state *s, struct str text,
                           bool end, struct answer *a);
/* Runs steps until one consumes nothing and stays at the same step. It is a parser's `feed`. */
size_t parser_run(parser_step *step, const struct answer_parser *p, struct parser_state *s,
                  struct str text, bool end, struct answer *a);
/* Returns the position of `marker` in `text`, or of its beginning when it is cut off at the end
 * of `text`. Returns text.len when there is neither. `found` is true for a complete marker. */
size_t parser_find_marker(struct str text, const char *marker, bool *found);
/* Finds the first of several markers (NULL-terminated) like `parser_find_marker`. `i_found` is
 * the index of a complete marker; SIZE_MAX = none. */
size_t parser_find_first(struct str text, const char *const *markers, size_t *i_found);
