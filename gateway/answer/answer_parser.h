#pragma once
/* What models write around their reasoning and their tool calls, by family. A parser is a const
 * table of functions over plain state; one per choice, so it must not allocate. It is fed what it
 * has not consumed, and more each time, so that it need not keep text: it keeps where it stands,
 * so that what waits for long (arguments of a megabyte) is not looked at again for every token. */
#include "common/base/str.h"
#include "common/json/scan.h"
#include "gateway/answer/literal_state.h"

struct answer;

struct parser_state {
    uint32_t step; /* the parser's own; 0 at the start */
    uint32_t i_call;
    uint32_t i_mark; /* the marker before what is looked at */
    bool said;       /* content was given */
    bool in_list, in_object, in_header;
    uint32_t n_blanks; /* white space behind content, which is given if no call follows it */
    uint64_t blanks;   /* two bits each */
    uint32_t types;    /* of the value that it is at (tool_types.h) */
    uint32_t i_wrapper;
    struct json_scan json;
    struct json_head head; /* of the call that it is at */
    struct literal_scan literal;
    /* The value that is held: how much of it was looked at, and where it may have ended (0:
     * nowhere).
     */
    size_t n_seen, n_first;
    struct literal_end value;
    struct literal_arguments arguments;
};

/* What lies between a prompt and the answer proper: any text up to a marker that closes. */
struct reasoning_marks {
    const char *const *open, *const *close; /* NULL at the end */
    bool begun; /* else all of it may be left out, or begins with a marker that opens */
};

struct answer_parser {
    const char *name; /* as --reasoning-parser or --tool-call-parser takes it */
    /* Exact texts that begin or end something, NULL at the end. Where a tokenizer has one as a
     * special token, that token is shown to the parser and not to the client. */
    const char *const *markers;
    /* prompt: rendered, or empty; continued: its end, as far as the answer goes on with it. NULL:
     * step 0 it is. */
    void (*init)(const struct answer_parser *p, struct parser_state *s, struct str prompt,
                 struct str continued);
    /* Gives parts of text to a (answer.h, "for parsers") and returns how many bytes are done with;
     * the rest comes again, with what follows. With end all of it is consumed: what could still
     * have become a marker has not. */
    size_t (*feed)(const struct answer_parser *p, struct parser_state *s, struct str text, bool end,
                   struct answer *a);
    /* Of a reasoning parser, for grammars, which begin behind. False: the prompt has ended the
     * reasoning, or turned it off. NULL: an answer with a grammar has none. */
    bool (*marks)(const struct answer_parser *p, struct str prompt, struct str continued,
                  struct reasoning_marks *out);
    uint32_t n_id; /* where templates take calls' ids of so many letters and digits only; 0: any */
    const void *family; /* what variants of one parser differ in */
};

enum { ANSWER_MARKER_MAX = 64 }; /* bytes */

/* What lies behind its first n bytes, n <= s.len. An empty text may have no address. */
static inline struct str parser_skip(struct str s, size_t n)
{
    return n > 0 ? (struct str){s.ptr + n, s.len - n} : s;
}
/* One step of a parser: how many bytes it is done with. */
typedef size_t parser_step(const struct answer_parser *p, struct parser_state *s, struct str text,
                           bool end, struct answer *a);
/* Steps until one neither consumes nor goes on to another: a parser's feed. */
size_t parser_run(parser_step *step, const struct answer_parser *p, struct parser_state *s,
                  struct str text, bool end, struct answer *a);
/* Where marker begins in text, or where a beginning of it lies at the end of text; text.len: it is
 * nowhere. found: it is all there. */
size_t parser_find_marker(struct str text, const char *marker, bool *found);
/* The same for the first of several, NULL at the end. i_found: which is all there, SIZE_MAX: none.
 */
size_t parser_find_first(struct str text, const char *const *markers, size_t *i_found);
