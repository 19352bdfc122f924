#pragma once
/* A line editor: what keys make of a text, and how it is drawn. Pure: bytes in, bytes out;
 * line_input.c has the terminal. A text may have several lines: by Ctrl-J or Alt-Enter, and of what
 * is pasted (bracketed paste), which is never taken for keys. */
#include "common/base/str.h"

enum line_event {
    LINE_MORE,  /* the text may have changed: draw it */
    LINE_DONE,  /* Enter: it is in text */
    LINE_ABORT, /* Ctrl-C */
    LINE_END    /* Ctrl-D on an empty text */
};

enum { LINE_MAX_BYTES = 1 << 20, LINE_HISTORY_MAX = 1000 };

struct line_history {
    char **items; /* owned; the newest last */
    size_t n_items;
};
/* Not what is empty, or the same as the last one; the oldest goes when there are too many. */
void line_history_add(struct line_history *h, struct str text);
void line_history_fini(struct line_history *h);

struct line_edit {
    struct strbuf text, killed; /* killed: what Ctrl-Y brings back */
    struct strbuf draft;        /* what was written when the history was gone into */
    const struct line_history *history;
    size_t at;     /* of the cursor, a byte of text */
    size_t i_past; /* history->n_items: not in the past */
    char keys[16]; /* of a sequence that has begun */
    size_t n_keys;
    bool is_pasting, was_return; /* was_return: the byte before was one, of what is pasted */
    size_t row;                  /* of the cursor as it was drawn, from the prompt's on */
};

void line_edit_init(struct line_edit *e, const struct line_history *history);
void line_edit_fini(struct line_edit *e);
/* An empty text again. */
void line_edit_begin(struct line_edit *e);
enum line_event line_edit_feed(struct line_edit *e, char byte);
/* Appends what draws prompt and text on a terminal of that many columns, over what was drawn
 * before. is_done: the cursor goes behind the end, onto a line of its own. */
void line_edit_draw(struct line_edit *e, const char *prompt, size_t columns, bool is_done,
                    struct strbuf *out);
