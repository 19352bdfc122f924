#pragma once
/* The short form of `cox up`'s log for a person at a terminal: a line of progress that is drawn
 * over while the cluster starts, the warnings and errors of all processes at any time, and nothing
 * else. `cox logs` and --verbose have the rest. Loop thread only. */
#include <stdbool.h>
#include <stddef.h>

struct up_screen_options {
    int fd;           /* written to; not closed */
    bool in_place;    /* progress is drawn over; else a line of its own every few seconds */
    bool color;       /* warnings and errors */
    bool utf8;        /* frames and marks in line-drawing characters, else ASCII */
    unsigned columns; /* 0: asked of the terminal each time */
};

struct up_screen;
struct up_screen *up_screen_new(const struct up_screen_options *o);
/* The options for standard error; columns stays 0 on a terminal. */
struct up_screen_options up_screen_of_stderr(bool color);
unsigned up_screen_width(const struct up_screen_options *o);
void up_screen_free(struct up_screen *s); /* removes the progress; NULL is fine */
/* A line of a process's log: shown when it is a warning or an error, or is no line of a log. */
void up_screen_line(struct up_screen *s, const char *name, const char *line, size_t n,
                    bool is_stderr);
/* One line, cut to the width; "" removes it. */
void up_screen_progress(struct up_screen *s, const char *text);
void up_screen_print(struct up_screen *s, const char *text); /* whole lines, as they are */
unsigned up_screen_columns(const struct up_screen *s);
bool up_screen_is_utf8(const struct up_screen *s);

/* Pure. The level of a line that log.h writes ("2026-01-02T03:04:05.678Z warn  head EVENT …"), and
 * in *text where the event begins; -1: it is no such line. */
int up_screen_level(const char *line, size_t n, size_t *text);
