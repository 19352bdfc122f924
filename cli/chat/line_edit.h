#pragma once
/* Implements a line editor, which changes a text by keys and draws the text. The functions are
 * pure: the editor reads and returns bytes, and line_input.c uses the terminal.
 * Ctrl-J, Alt-Enter and pasted text (bracketed paste) can add lines to the text. Pasted text is
 * never interpreted as keys. */
#include "common/base/str.h"

enum line_event {
    LINE_MORE,  /* the text may have changed, so the caller draws it */
    LINE_DONE,  /* the user pressed Enter: `text` is complete */
    LINE_ABORT, /* the user pressed Ctrl-C */
    LINE_END    /* the user pressed Ctrl-D on an empty text */
};

enum { LINE_MAX_BYTES = 1 << 20, LINE_HISTORY_MAX = 1000 };

struct line_history {
    char **items; /* texts of the history, owned; the newest is the last */
    size_t n_items;
};
/* Adds a text. An empty text, a text with a NUL, or a text equal to the newest one, is not
 * added. When the history is full, the oldest text is removed. */
void line_history_add(struct line_history *h, struct str text);
void line_history_fini(struct line_history *h);

struct line_edit {
    struct strbuf text, killed; /* killed: deleted text that Ctrl-Y inserts */
    struct strbuf draft;        /* unfinished text, kept while the user moves through the history */
    const struct line_history *history;
    size_t at; /* cursor: index of a byte in `text` */
    /* index of the shown text in the history; n_items = no text of the history is shown */
    size_t i_past;
    char keys[16]; /* bytes of an incomplete escape sequence */
    size_t n_keys;
    bool is_pasting, was_return; /* was_return: the previous byte inside a paste was CR */
    size_t row;                  /* row of the drawn cursor, counted from the prompt's row */
};

void line_edit_init(struct line_edit *e, const struct line_history *history);
void line_edit_fini(struct line_edit *e);
/* Empties the text before the next input. */
void line_edit_begin(struct line_edit *e);
enum line_event line_edit_feed(struct line_edit *e, char byte);
/* Appends the bytes that draw prompt and text over the previous drawing, on a terminal with
 * `columns` columns. With `is_done` the cursor moves to a new line behind the text. */
void line_edit_draw(struct line_edit *e, const char *prompt, size_t columns, bool is_done,
                    struct strbuf *out);
