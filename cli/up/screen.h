#pragma once
/* The short form of `cox up`'s log for a person at a terminal: a line of progress that is
 * redrawn while the cluster starts, and warnings and errors of all processes. `cox logs` and
 * --verbose show the rest. Loop thread only. */
#include <stdbool.h>
#include <stddef.h>

struct up_screen_options {
    int fd;           /* output; not closed */
    bool in_place;    /* redraw the progress; otherwise print a line every few seconds */
    bool color;       /* colour warnings and errors */
    bool utf8;        /* line-drawing characters instead of ASCII */
    unsigned columns; /* 0 = ask the terminal each time */
};

struct up_screen;
struct up_screen *up_screen_new(const struct up_screen_options *o);
/* Returns the options for standard error. `columns` stays 0 on a terminal. */
struct up_screen_options up_screen_of_stderr(bool color);
unsigned up_screen_width(const struct up_screen_options *o);
void up_screen_free(struct up_screen *s); /* erases the progress; accepts NULL */
/* Takes a line of a process. It is shown when it is a warning or an error, or when it is no log
 * line and came from stderr. */
void up_screen_line(struct up_screen *s, const char *name, const char *line, size_t n,
                    bool is_stderr);
/* Shows one line, cut to the width; "" erases it. */
void up_screen_progress(struct up_screen *s, const char *text);
void up_screen_print(struct up_screen *s, const char *text); /* prints whole lines unchanged */
unsigned up_screen_columns(const struct up_screen *s);
bool up_screen_is_utf8(const struct up_screen *s);

/* Returns the level of a line in log.h's form ("2026-01-02T03:04:05.678Z warn  head EVENT …");
 * *text is the offset of the event. Returns -1 for other lines. Pure. */
int up_screen_level(const char *line, size_t n, size_t *text);
