#pragma once
/* Shows the short form of `cox up`'s log to a person at a terminal. It has warnings and errors
 * of all processes, and a line of progress while the cluster starts. The line is redrawn at each
 * change. `cox logs` and --verbose show the rest. Only the loop thread calls these functions. */
#include <stdbool.h>
#include <stddef.h>

struct up_screen_options {
    int fd; /* descriptor of the output; the screen does not close it */
    /* the progress is redrawn in place; otherwise a line is printed every few seconds */
    bool in_place;
    bool color;       /* warnings and errors are printed in colour */
    bool utf8;        /* lines are drawn with Unicode characters instead of ASCII */
    unsigned columns; /* width of the terminal; 0 = the width is read from the terminal each time */
};

struct up_screen;
struct up_screen *up_screen_new(const struct up_screen_options *o);
/* Returns the options for standard error. `columns` stays 0 on a terminal. */
struct up_screen_options up_screen_of_stderr(bool color);
unsigned up_screen_width(const struct up_screen_options *o);
/* Erases the progress and frees the screen. `s` may be NULL. */
void up_screen_free(struct up_screen *s);
/* Shows a line of a process when it is a warning or an error. A line from stderr that is not a
 * log line is shown too. A "head_unreachable" in the first seconds is not shown. */
void up_screen_line(struct up_screen *s, const char *name, const char *line, size_t n,
                    bool is_stderr);
/* Shows one line of progress, cut to the width. "" erases the line. */
void up_screen_progress(struct up_screen *s, const char *text);
void up_screen_print(struct up_screen *s, const char *text); /* Prints complete lines unchanged. */
unsigned up_screen_columns(const struct up_screen *s);
bool up_screen_is_utf8(const struct up_screen *s);

/* Returns the log level of a line in log.h's format ("2026-01-02T03:04:05.678Z warn  head EVENT
 * …"); *text is the offset of the event. Returns -1 for other lines. The function is pure and
 * may run on any thread. */
int up_screen_level(const char *line, size_t n, size_t *text);
