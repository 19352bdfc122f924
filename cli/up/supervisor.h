#pragma once
/* Starts the children of `cox up` and `cox workers`, restarts those that die, ends all of them. One
 * line of log per line of theirs, with their name in front. Loop thread only. */
#include "cli/up/plan/types.h"
#include "common/loop/loop.h"

struct supervisor;
struct supervisor_options {
    struct loop *loop;
    const struct up_plan *plan; /* borrowed */
    const char *pids_file;      /* NULL: none */
    enum up_role drain_role;    /* who is told first at the end: whose work may take */
    uint32_t drain_ms;          /* so long */
    bool color;
    bool quiet; /* stderr gets no line: on_line shows what is to be seen */
    /* Every line of the log, without the name in front; is_stderr: a program's messages, not what
     * it prints. NULL: nobody keeps them. */
    void (*on_line)(void *ctx, const char *name, const char *line, size_t n, bool is_stderr);
    void *ctx;
};

/* *out is set also on failure: what was started has to be ended (supervisor_stop, then the loop).
 */
MUST_USE enum status supervisor_start(const struct supervisor_options *o, struct supervisor **out,
                                      struct error *err);
/* With drain_ms SIGTERM to the drain_role first, until they have ended or that time is over. Then
 * SIGTERM to the gateways, then to the workers, then to the heads, each when those before have
 * ended or after 0.3 s, when these are told again ("at once"); SIGKILL to all after 5 s. When the
 * last one is gone the loop is stopped. A second call during drain_ms ends that time: the
 * drain_role is told again, and tells its clients. Any other second call kills at once. */
void supervisor_stop(struct supervisor *s);
/* Children of a role that are to run. */
uint32_t supervisor_count(const struct supervisor *s, enum up_role role);
/* The name of the i-th child that is to run; NULL: there are no more. */
const char *supervisor_name(const struct supervisor *s, uint32_t i);
bool supervisor_has(const struct supervisor *s, const char *name); /* also one that is leaving */
/* One more; plan is borrowed. That it cannot start is said and ends nobody else. */
MUST_USE enum status supervisor_add(struct supervisor *s, const struct up_child *plan,
                                    struct error *err);
/* SIGTERM, and not started again; or, of one that leaves or has left, it is to be there again. */
void supervisor_leave(struct supervisor *s, const char *name, bool leaves);
/* Why it gave up: the last words of a child that cannot start; "" otherwise. */
const char *supervisor_failure(const struct supervisor *s);
/* A line of our own, in the children's form. */
void supervisor_say(const struct supervisor *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
void supervisor_free(struct supervisor *s); /* children must have ended; NULL is fine */
