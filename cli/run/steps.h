#pragma once
/* Private to cli/run: what a keeper does one after the other, and what the steps need of it. */
#include <signal.h>

#include "cli/run/children.h"
#include "cli/run/keeper.h"
#include "cli/run/log.h"

struct run_keeper {
    struct run_start *start;
    const struct run_file *file;
    struct run_log log;
    json_t *state;
    char root[RUN_PATH_BYTES + 8], program[RUN_PATH_BYTES]; /* program: cox itself */
    char **env;                                             /* of the run's processes */
    struct arena arena;                                     /* of env */
    int out_read, out_write, signal_fd;
    pid_t child;      /* the step's; 0: none */
    pid_t prometheus; /* 0: none */
    bool child_ended;
    int child_status;            /* as waitpid gives it */
    bool is_ending, is_killing;  /* SIGTERM came; the children were killed */
    uint64_t kill_at_ns, n_read; /* n_read: bytes of output */
    bool was_asked;              /* by a signal, to end */
    sigset_t signals_before;
};

/* Starts argv and waits for it; its exit must be 0. what: "git fetch". cwd, stdout_fd: run_spawn's.
 * STATUS_CLOSED: the run is being ended. */
MUST_USE enum status run_step(struct run_keeper *k, const char *what, const char *const *argv,
                              const char *cwd, int stdout_fd, struct error *err);
/* root/PATH; its folders are made as far as `parents`. */
MUST_USE enum status run_place(struct run_keeper *k, const char *path, bool with_itself,
                               char out[RUN_PATH_BYTES], struct error *err);
MUST_USE enum status run_import_all(struct run_keeper *k, struct error *err);
MUST_USE enum status run_pull_model(struct run_keeper *k, struct error *err);
MUST_USE enum status run_link_volumes(struct run_keeper *k, struct error *err);
MUST_USE enum status run_export_all(struct run_keeper *k, struct error *err);
MUST_USE enum status run_start_monitoring(struct run_keeper *k, struct error *err);
/* env's, the starter's, and our own. */
void run_build_env(struct run_keeper *k);
