#pragma once
/* Opens a run file (docs/reference/runs.md) for the commands of `cox run`, and prints its
 * problems. */
#include "cli/run/file/file.h"

/* `run_source` holds a run file that was read without problems. Its strings are on `arena`. */
struct run_source {
    struct strbuf text;
    struct arena arena;
    struct run_file file;
};
/* Opens the file. Problems and notes go to stderr, one per line. When the file has problems, the
 * function returns STATUS_INVALID without an error text. */
MUST_USE enum status run_source_open(struct run_source *s, const char *path, bool with_notes,
                                     struct error *err);
void run_source_close(struct run_source *s); /* Frees the struct; accepts a zeroed one. */
/* Prints the error as one line to stderr, if it has a text. Returns the exit code. `command` is
 * the command's name, such as "run create". */
int run_fail(const char *command, enum status s, const struct error *err);
