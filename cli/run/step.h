#pragma once
/* Runs one step of a run, which is a child process, and the keeper's loop during the step. The
 * loop copies output to the log and handles signals and the child's end. Only cli/run includes
 * this header. Only the keeper's thread calls these functions. */
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
    /* root: folder of the run; program: path of `cox` itself */
    char root[RUN_PATH_BYTES + 8], program[RUN_PATH_BYTES];
    char **env;         /* environment of the run's processes */
    struct arena arena; /* arena of the strings of `env` */
    int out_read, out_write, signal_fd;
    pid_t child;      /* process of the step; 0 = none */
    pid_t prometheus; /* process of prometheus; 0 = none */
    bool child_ended;
    int child_status; /* status of the child from waitpid */
    /* is_ending: the run is ending; is_killing: SIGKILL is sent to all remaining processes */
    bool is_ending, is_killing;
    uint64_t kill_at_ns, n_read; /* kill_at_ns: time for SIGKILL; n_read: bytes of output so far */
    bool was_asked;              /* a signal asked for the run's end */
    sigset_t signals_before;
};

/* Starts argv and waits for the process, whose exit code must be 0. `what` names the step in
 * errors: "git fetch". `cwd` and `stdout_fd` are those of struct run_spawn. STATUS_CLOSED: the
 * run is ending. */
MUST_USE enum status run_step(struct run_keeper *k, const char *what, const char *const *argv,
                              const char *cwd, int stdout_fd, struct error *err);
/* Ends all processes of the run: sends SIGTERM, then SIGKILL after the grace time. */
void run_step_end_all(struct run_keeper *k);
/* Waits until the terminal has accepted the rest of the output. When a signal has requested the
 * run's end, the wait is at most one second. */
void run_step_flush(struct run_keeper *k);
