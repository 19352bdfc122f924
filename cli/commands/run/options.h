#pragma once
/* Defines the options of `cox run` and its subcommands, and the rows that their tables share. */
#include <stdbool.h>
#include <stddef.h>

#include "common/config/config.h"

struct run_options {
    const char *file, *runs_dir;
    bool check;
};

#define RUN_ROW_FILE(S)                                                                            \
    {                                                                                              \
        .name = "file", .aliases = "f", .type = OPTION_STRING, .offset = offsetof(struct S, file), \
        .help = "Run file; see docs/reference/runs.md."                                            \
    }
#define RUN_ROW_DIR(S)                                                                             \
    OPT_STRING(S, runs_dir, "runs-dir", NULL,                                                      \
               "Folder of the runs. Default: COX_RUNS_DIR, XDG_STATE_HOME/coxswain/runs or "       \
               "~/.local/state/coxswain/runs.")
