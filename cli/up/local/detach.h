#pragma once
/* Implements `cox up --detach`: the cluster runs in the same program but in a session of its
 * own, with its log in a file. The typed command stays until the cluster serves or has failed.
 * That command shows the progress of the start, and returns the exit code.
 *
 *   typed command ── fork ──▶ cluster (setsid; stdout, stderr: the log)
 *        │ ◀──── pipe: the short form of the log (up/screen.h), then READY or the end ────┘
 *
 * The caller first calls up_detach_init, which sets the descriptors to -1. */
#include "common/base/status.h"

struct up_detach {
    int fd;              /* pipe to the typed command; -1 = none, or closed */
    int log_fd;          /* descriptor of the log; -1 after up_detach_begin_log, or without a log */
    char log_file[4096]; /* path of the log; "" = the cluster runs in the foreground */
    unsigned long long n_logged;
};

void up_detach_init(struct up_detach *d);
enum up_side { UP_SIDE_CLUSTER, UP_SIDE_TYPED };

/* Forks. It must be called before any thread is started. `side` says which process returns. In
 * the typed command, *exit_code is set. `command` is the command's name: "up". */
MUST_USE enum status up_detach(const char *command, const char *name, struct up_detach *d,
                               enum up_side *side, int *exit_code, struct error *err);
/* Redirects standard error to the log. Until then, standard error is the terminal, for a model's
 * fetch and for errors before the start. */
void up_detach_begin_log(struct up_detach *d);
/* Tells the typed command that the cluster serves. The typed command then ends with exit code 0. */
void up_detach_ready(struct up_detach *d);
/* Counts n bytes written to the log. When the log is too long, the file is renamed to FILE.1 and
 * a new log begins. */
void up_detach_logged(struct up_detach *d, unsigned long long n);
