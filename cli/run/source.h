#pragma once
/* `cox run`: run files (docs/runs.md). The commands' option tables and what they share. */
#include "cli/run/file/file.h"
#include "common/config/config.h"

int cmd_run(int argc, char **argv); /* -f FILE, or which of them */
int cmd_run_create(int argc, char **argv);
int cmd_run_list(int argc, char **argv);
int cmd_run_show(int argc, char **argv);
int cmd_run_logs(int argc, char **argv);
int cmd_run_terminate(int argc, char **argv);
int cmd_run_delete(int argc, char **argv);
int cmd_run_render(int argc, char **argv);

struct run_options {
    const char *file, *runs_dir;
    bool check;
};
extern const struct option_spec run_specs[], run_create_specs[], run_list_specs[];
extern const struct option_spec run_show_specs[], run_logs_specs[], run_terminate_specs[];
extern const struct option_spec run_delete_specs[], run_render_specs[];
extern const size_t run_n_specs, run_create_n_specs, run_list_n_specs, run_show_n_specs;
extern const size_t run_logs_n_specs, run_terminate_n_specs, run_delete_n_specs, run_render_n_specs;

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
/* `cox run -f`: in this terminal, until it has ended. */
MUST_USE enum status run_here(const char *path, const char *runs_dir, struct error *err);
/* One line on stderr, when there is one; gives the exit code. command: "run create". */
int run_fail(const char *command, enum status s, const struct error *err);
