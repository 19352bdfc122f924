#pragma once
/* How far a pull is, on stderr: a bar on a terminal, else a line every five seconds (an event where
 * the log is JSON). The bar asks the terminal for its width each time it is drawn, and is never
 * wider. */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

/* Several threads may call what is here but for start and clear. */
struct pull_progress {
    pthread_mutex_t mutex;
    bool quiet, is_terminal;
    unsigned n_drawn;    /* columns of the bar that is on the terminal; 0: there is none */
    const char *command; /* "pull": in front of a line */
    const char *name;    /* of the file */
    uint64_t done, total, fetched; /* bytes of all files; fetched: by this run */
    uint64_t begin_ns, said_ns;
};

/* command: NULL stands for "pull". */
void pull_progress_start(struct pull_progress *p, const char *command, bool quiet, uint64_t done,
                         uint64_t total);
void pull_progress_name(struct pull_progress *p, const char *name); /* borrowed */
void pull_progress_add(struct pull_progress *p, uint64_t n_bytes);
/* Bytes that have to come again. */
void pull_progress_take_back(struct pull_progress *p, uint64_t n_bytes);
/* Clears the bar, before a line of somebody else and at the end. */
void pull_progress_clear(struct pull_progress *p);
/* The bar for a terminal of that many columns: at most columns - 1 characters. What has no room is
 * left out: the name first (it is cut in its middle before), then the rate, the time that is left,
 * the sizes. per_s: bytes a second; 0: not known. */
void pull_progress_bar(const struct pull_progress *p, uint64_t per_s, unsigned columns,
                       struct strbuf *out);
/* Columns of s on a terminal, at most: 2 for each character that is not ASCII. */
size_t pull_columns_of(const char *s);
/* name in at most room columns (3 or more), cut in its middle: "model-0...ensors". */
void pull_append_name(struct strbuf *out, const char *name, size_t room);
/* "1.5 GiB" */
const char *pull_bytes_text(char *out, size_t size, uint64_t n_bytes);
