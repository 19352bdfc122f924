#pragma once
/* Content between the calls of an answer, for the families of tool parsers: what is given to the
 * client at once, what may still be a marker, and white space that is nobody's beside a call. Pure
 * but for what it gives to the answer; what it holds back is bounded. */
#include "gateway/answer/answer_parser.h"

struct tool_text {
    const char *const *marks; /* of calls, NULL at the end */
    const char *const *drop;  /* around content, nobody's; NULL: nothing */
    bool strips; /* white space next to a call is nobody's; else only where nothing else is said */
    bool last;   /* behind a call nothing is said any more */
};

/* Gives content up to the next mark and returns how many bytes are done with, the mark among them.
 * i_mark: which it is, SIZE_MAX: none yet. */
size_t tool_text_feed(const struct tool_text *t, struct parser_state *s, struct str text, bool end,
                      struct answer *a, size_t *i_mark);
/* Text is white space before what may be a call without a mark: it is held as before a mark. False:
 * it is content. */
bool tool_text_hold(struct parser_state *s, struct str text);
/* A mark that begins no call is content, and so is the white space before it. mark NULL: none. */
void tool_text_refuse(struct parser_state *s, const char *mark, struct answer *a);
