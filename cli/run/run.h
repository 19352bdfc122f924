#pragma once
/* `cox run`: run files (docs/runs.md). The commands' option tables and what they share. */
#include "cli/run/run_file.h"
#include "common/base/config.h"

int cmd_run(int argc, char **argv); /* -f FILE, or which of them */

struct run_options {
    const char *file, *runs_dir;
    bool check;
};
extern const struct option_spec run_specs[];
extern const size_t run_n_specs;

#define RUN_ROW_FILE(S)                                                                            \
    {                                                                                              \
        .name = "file", .aliases = "f", .type = OPTION_STRING, .offset = offsetof(struct S, file), \
        .help = "the run file (docs/runs.md)"                                                      \
    }
#define RUN_ROW_DIR(S)                                                                             \
    OPT_STRING(S, runs_dir, "runs-dir", NULL,                                                      \
               "where runs are kept; default: COX_RUNS_DIR, XDG_STATE_HOME/coxswain/runs, "        \
               "~/.local/state/coxswain/runs")

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
