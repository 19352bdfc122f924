#pragma once
/* A run file (docs/reference/runs.md) as the commands of `cox run` open it, and how they say what
 * is wrong.
 */
#include "cli/run/file/file.h"

/* A file that has been read and is right; texts on its own arena. */
struct run_source {
    struct strbuf text;
    struct arena arena;
    struct run_file file;
};
/* Problems and notes are on stderr, a line each; then STATUS_INVALID without a text. */
MUST_USE enum status run_source_open(struct run_source *s, const char *path, bool with_notes,
                                     struct error *err);
void run_source_close(struct run_source *s); /* zeroed is fine */
/* One line on stderr, when there is one; gives the exit code. command: "run create". */
int run_fail(const char *command, enum status s, const struct error *err);
