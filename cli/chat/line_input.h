#pragma once
/* Reads texts from a person at a terminal (line_edit.h), or lines from a pipe, and keeps a
 * history in a file. */
#include "cli/chat/line_edit.h"

struct line_input {
    bool is_terminal;
    struct line_edit edit;
    struct line_history history;
    char *history_path; /* path of the history file; NULL = the history is not saved */
    char *line;         /* buffer of getline */
    size_t cap;
};

enum line_got { LINE_GOT_TEXT, LINE_GOT_ABORT, LINE_GOT_END };

/* Opens the input. `choice` is "auto" (XDG_STATE_HOME or ~/.local/state), "off", or a file. The
 * history is used on a terminal only. */
void line_input_open(struct line_input *in, const char *choice, const char *state_home,
                     const char *home);
void line_input_close(struct line_input *in);
/* Reads one text. *text is valid until the next call. */
enum line_got line_input_read(struct line_input *in, const char *prompt, struct str *text);
/* Adds the text to the history and its file. The file has one JSON string per line, and only its
 * owner can read it. */
void line_input_remember(struct line_input *in, struct str text);
