#pragma once
/* Defines parsers for the markers that model families write around reasoning and tool calls. A
 * parser is a constant table of functions over a plain state, one state per choice. A parser
 * does not allocate and keeps no text: it is fed all input that it has not consumed, with new
 * input at the end. It keeps its position instead, so long input that waits (arguments of a
 * megabyte) is not scanned again for each token. */
#include "common/base/str.h"
#include "common/json/scan.h"
#include "gateway/answer/literal_state.h"

struct answer;

struct parser_state {
    uint32_t step; /* current step of the parser; 0 at the start */
    uint32_t i_call;
    uint32_t i_mark; /* index of the last marker found */
    bool said;       /* true after content was emitted */
    bool in_list, in_object, in_header;
    /* number of white-space bytes held back after content; emitted as content if no call follows */
    uint32_t n_blanks;
    uint64_t blanks; /* kinds of the held white-space bytes, two bits each */
    uint32_t types;  /* allowed types of the current value (tool_types.h) */
    uint32_t i_wrapper;
    struct json_scan json;
    struct json_head head; /* start of the current call */
    struct literal_scan literal;
    /* `n_seen` is the number of bytes already scanned of a value that is held back. `n_first` is
     * a possible end of that value; 0 = none. */
    size_t n_seen, n_first;
    struct literal_end value;
    struct literal_arguments arguments;
};

/* `reasoning_marks` describes the reasoning that a grammar allows before the answer itself: any
 * text up to a closing marker. */
struct reasoning_marks {
    /* markers that open and close the reasoning, NULL-terminated */
    const char *const *open, *const *close;
    bool begun; /* false = the reasoning is optional and starts with an opening marker */
};

struct answer_parser {
    const char *name; /* value of --reasoning-parser or --tool-call-parser */
    /* `markers` is a NULL-terminated list of exact texts that begin or end something. The parser
     * sees a special token with such a text, and the client does not. */
    const char *const *markers;
    /* Sets the initial state of a choice's parser. `prompt` is the rendered prompt or empty.
     * `continued` is the end of the prompt that the answer continues. A NULL `init` starts with
     * step 0. */
    void (*init)(const struct answer_parser *p, struct parser_state *s, struct str prompt,
                 struct str continued);
    /* Adds parts to `a` (answer.h, "for parsers") and returns the number of consumed bytes. The
     * rest is fed again, with new text. With `end` the parser must consume all text: text that
     * could become a marker is ordinary text then. */
    size_t (*feed)(const struct answer_parser *p, struct parser_state *s, struct str text, bool end,
                   struct answer *a);
    /* Sets the markers of the reasoning for a grammar, which begins after the reasoning. Only
     * reasoning parsers have this function. Returns false when the prompt has ended the
     * reasoning or turned it off. A NULL `marks` means that an answer with a grammar has no
     * reasoning. */
    bool (*marks)(const struct answer_parser *p, struct str prompt, struct str continued,
                  struct reasoning_marks *out);
    /* number of letters and digits in a call's id, when templates require it; 0 = any */
    uint32_t n_id;
    const void *family; /* constants that differ between variants of a parser */
};

enum { ANSWER_MARKER_MAX = 64 }; /* longest marker in bytes */

/* Returns the text after the first n bytes, n <= s.len. An empty text may have a NULL pointer. */
static inline struct str parser_skip(struct str s, size_t n)
{
    return n > 0 ? (struct str){s.ptr + n, s.len - n} : s;
}
/* Runs one step of a parser. Returns the number of consumed bytes. */
typedef size_t parser_step(const struct answer_parser *p, struct parser_state *s, struct str text,
                           bool end, struct answer *a);
/* Runs steps until a step consumes nothing and leaves the step number unchanged. Parsers call
 * this function from `feed`. */
size_t parser_run(parser_step *step, const struct answer_parser *p, struct parser_state *s,
                  struct str text, bool end, struct answer *a);
/* Returns the position of `marker` in `text`. When `text` ends with only the beginning of the
 * marker, returns the position of that beginning. Returns text.len when there is neither.
 * `found` is true for a complete marker. */
size_t parser_find_marker(struct str text, const char *marker, bool *found);
/* Finds the first of several markers (NULL-terminated) like `parser_find_marker`. `i_found` is
 * the index of a complete marker; SIZE_MAX = none. */
size_t parser_find_first(struct str text, const char *const *markers, size_t *i_found);
