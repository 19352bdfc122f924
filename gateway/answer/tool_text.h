#pragma once
/* Handles the content between the calls of an answer, for the families of tool parsers. Decides
 * which text goes to the client at once, which text may still be a marker, and which white space
 * next to a call is dropped. The functions are pure except for their output to the answer. The
 * text held back is bounded. */
#include "gateway/answer/answer_parser.h"

struct tool_text {
    const char *const *marks; /* marks that begin calls, NULL-terminated */
    const char *const *drop;  /* marks around content that are dropped themselves; NULL = none */
    /* true = drop white space next to every call; false = only if there is no other content */
    bool strips;
    bool last; /* true = drop all content after a call */
};

/* Emits content up to the next mark. Returns the number of consumed bytes, including the mark.
 * `i_mark` is the index of the mark; SIZE_MAX = none yet. */
size_t tool_text_feed(const struct tool_text *t, struct parser_state *s, struct str text, bool end,
                      struct answer *a, size_t *i_mark);
/* Holds back white space before a possible call that has no mark. Returns false when the text is
 * content. */
bool tool_text_hold(struct parser_state *s, struct str text);
/* Emits as content a mark that begins no call, and the white space before the mark. `mark` is
 * NULL when there is no mark. */
void tool_text_refuse(struct parser_state *s, const char *mark, struct answer *a);
