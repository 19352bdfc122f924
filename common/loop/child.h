#pragma once
/* Child processes, for `cox up`. Lines of stdout and stderr come one by one, without the newline.
 * When the loop is freed, what it knows of its children is freed too; they go on until their parent
 * ends. Loop thread only. */
#include "common/loop/loop.h"

struct loop_child;

struct loop_child_options {
    const char *const *argv; /* NULL-terminated; argv[0] is the file */
    const char *const *env;  /* NULL: inherit */
    void (*on_line)(void *ctx, struct loop_child *c, const char *line, size_t n, bool is_stderr);
    void (*on_exit)(void *ctx, struct loop_child *c, int64_t status, int term_signal);
    void *ctx;
    bool inherit_stdio; /* no on_line: the child writes where we write */
};
MUST_USE enum status loop_child_spawn(struct loop *l, const struct loop_child_options *o,
                                      struct loop_child **out, struct error *err);
int loop_child_pid(const struct loop_child *c);
void loop_child_kill(struct loop_child *c, int signum); /* no-op once it has exited */
void loop_child_free(struct loop_child *c);             /* after on_exit, or detaches */
