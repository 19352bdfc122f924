#pragma once
/* Private to cli/run: one step of a run, which is a child process, and the keeper's loop while it
 * runs: its output into the log, its signals, its end. Keeper's process and thread only. */
#include <jansson.h>
#include <signal.h>
#include <sys/types.h>

#include "cli/run/log.h"
#include "cli/run/start.h"
#include "common/base/arena.h"

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
/* Ends all that the run has left: SIGTERM, and SIGKILL when the time is over. */
void run_step_end_all(struct run_keeper *k);
/* Waits until the terminal has the rest of the output: as long as that takes, or a second after a
 * signal has asked for the end. */
void run_step_flush(struct run_keeper *k);
