#pragma once
/* `cox run`: run files (docs/runs.md). The commands' option tables and what they share. */
#include "cli/run/file/file.h"
#include "common/config/config.h"

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
/* `cox run -f`: in this terminal, until it has ended. */
MUST_USE enum status run_here(const char *path, const char *runs_dir, struct error *err);
/* One line on stderr, when there is one; gives the exit code. command: "run create". */
int run_fail(const char *command, enum status s, const struct error *err);
