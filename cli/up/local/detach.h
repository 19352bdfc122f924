#pragma once
/* `cox up --detach`: the same process in a session of its own, with its log in a file. The command
 * that was typed stays until the cluster serves or has failed, shows what a terminal shows of a
 * start, and has the exit code.
 *
 *   typed command ── fork ──▶ cluster (setsid; stdout, stderr: the log)
 *        │ ◀──── pipe: the short form of the log (up/screen.h), then READY or the end ────┘
 *
 * up_detach_init first: -1 is what no descriptor is. */
#include "common/base/status.h"

struct up_detach {
    int fd;              /* to the typed command; -1: it has gone, or there is none */
    int log_fd;          /* until up_detach_begin_log; -1 */
    char log_file[4096]; /* "": in the foreground */
    unsigned long long n_logged;
};

void up_detach_init(struct up_detach *d);
enum up_side { UP_SIDE_CLUSTER, UP_SIDE_TYPED };

/* Before any thread. In the typed command *exit_code is set when this returns. command: "up". */
MUST_USE enum status up_detach(const char *command, const char *name, struct up_detach *d,
                               enum up_side *side, int *exit_code, struct error *err);
/* Until here standard error is the terminal's, for a model's fetch and what is wrong before
 * anything is started; from here on it is the log. */
void up_detach_begin_log(struct up_detach *d);
/* It serves: the typed command ends with 0. */
void up_detach_ready(struct up_detach *d);
/* n bytes went into the log: a long one begins anew, and the one before it is kept as FILE.1. */
void up_detach_logged(struct up_detach *d, unsigned long long n);
