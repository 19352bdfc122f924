#pragma once
/* Shows the progress of a pull on stderr: a bar on a terminal, otherwise a line every five
 * seconds (an event when the log is JSON). The terminal's width is read before each drawing, and
 * the bar is never wider. */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

/* `pull_progress` holds the state of one pull. Several threads may call the functions below,
 * except start and clear. */
struct pull_progress {
    pthread_mutex_t mutex;
    bool quiet, is_terminal;
    unsigned n_drawn;              /* number of columns of the drawn bar; 0 = no bar is drawn */
    const char *command;           /* command name that begins each line, such as "pull" */
    const char *name;              /* name of the current file, borrowed */
    uint64_t done, total, fetched; /* done, total: bytes of all files; fetched: bytes of this run */
    uint64_t begin_ns, said_ns;
};

/* Starts the progress. `command` NULL means "pull". */
void pull_progress_start(struct pull_progress *p, const char *command, bool quiet, uint64_t done,
                         uint64_t total);
/* Sets the name of the current file, which is borrowed. */
void pull_progress_name(struct pull_progress *p, const char *name);
void pull_progress_add(struct pull_progress *p, uint64_t n_bytes);
/* Subtracts from `done` the bytes that must be fetched again. */
void pull_progress_take_back(struct pull_progress *p, uint64_t n_bytes);
/* Erases the bar, before another line is printed and at the end. */
void pull_progress_clear(struct pull_progress *p);
/* Writes the bar for a terminal of `columns` columns: at most columns - 1 characters. On a
 * narrow terminal, the name is cut in its middle, then left out. After the name, the rate, the
 * remaining time and the sizes are left out. `per_s` is bytes per second; 0 = unknown. */
void pull_progress_bar(const struct pull_progress *p, uint64_t per_s, unsigned columns,
                       struct strbuf *out);
/* Returns an upper bound of the columns of s: 2 for each character that is not ASCII. */
size_t pull_columns_of(const char *s);
/* Appends the name in at most `room` columns (3 or more), cut in its middle: "model-0...ensors". */
void pull_append_name(struct strbuf *out, const char *name, size_t room);
/* Formats a size: "1.5 GiB". */
const char *pull_bytes_text(char *out, size_t size, uint64_t n_bytes);
