#pragma once
/* Texts from a person at a terminal (line_edit.h), or lines from a pipe; and a history that lasts.
 */
#include "cli/chat/line_edit.h"

struct line_input {
    bool is_terminal;
    struct line_edit edit;
    struct line_history history;
    char *history_path; /* NULL: none that lasts */
    char *line;         /* of getline */
    size_t cap;
};

enum line_got { LINE_GOT_TEXT, LINE_GOT_ABORT, LINE_GOT_END };

/* choice: "auto" (XDG_STATE_HOME or ~/.local/state), "off", or a file. Read on a terminal only. */
void line_input_open(struct line_input *in, const char *choice, const char *state_home,
                     const char *home);
void line_input_close(struct line_input *in);
/* *text lives until the next call. */
enum line_got line_input_read(struct line_input *in, const char *prompt, struct str *text);
/* Into the history, and its file: a JSON string a line, readable by its owner alone. */
void line_input_remember(struct line_input *in, struct str text);
