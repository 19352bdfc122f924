#pragma once
/* Runs child processes, for `cox up`. Lines of stdout and stderr are reported one by one,
 * without the newline. loop_free also frees the records of the children. The children run until
 * this process ends. Only the loop thread calls these functions. */
#include "common/loop/loop.h"

struct loop_child;

struct loop_child_options {
    const char *const *argv; /* arguments, NULL-terminated; argv[0] is the program file */
    const char *const *env;  /* environment; NULL = that of this process */
    void (*on_line)(void *ctx, struct loop_child *c, const char *line, size_t n, bool is_stderr);
    void (*on_exit)(void *ctx, struct loop_child *c, int64_t status, int term_signal);
    void *ctx;
    /* true = the child writes to our stdout and stderr, and on_line is not called */
    bool inherit_stdio;
    int stdin_fd; /* descriptor above 2 that the child reads as its stdin; 0 = /dev/null */
};
MUST_USE enum status loop_child_spawn(struct loop *l, const struct loop_child_options *o,
                                      struct loop_child **out, struct error *err);
/* Gives a running child to another owner: later events go to on_line, on_exit and ctx of `o`. */
void loop_child_give(struct loop_child *c, const struct loop_child_options *o);
int loop_child_pid(const struct loop_child *c);
/* sends a signal to the child; has no effect once the child has exited */
void loop_child_kill(struct loop_child *c, int signum);
/* Frees a child. Call it after on_exit; an earlier call detaches the child. */
void loop_child_free(struct loop_child *c);
