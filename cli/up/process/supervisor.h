#pragma once
/* Starts the children of `cox up` and `cox workers`, restarts children that fail, and ends all
 * of them. Each line of a child becomes one line of the log, with the child's name in front.
 * Only the loop thread calls these functions. */
#include "cli/up/plan/types.h"
#include "cli/up/process/spares.h"
#include "common/loop/loop.h"

struct supervisor;
struct supervisor_options {
    struct loop *loop;
    const struct up_plan *plan; /* plan of the children, borrowed */
    const char *pids_file;      /* path of the pid file; NULL = none */
    /* role that ends first in a shutdown, after it has finished its work */
    enum up_role drain_role;
    uint32_t drain_ms; /* time in which drain_role may finish its work; 0 = none */
    /* time after SIGTERM until SIGKILL for a process of one model of several that leaves; 0 = it
     * gets no SIGKILL */
    uint32_t leave_ms;
    struct spares *spares; /* spare workers, borrowed; NULL = none. supervisor_stop ends them */
    bool color;
    bool quiet; /* the supervisor writes nothing to stderr; on_line shows the lines */
    /* Called for every line of the log, without the name in front. is_stderr: the child wrote
     * the line to stderr. NULL = not called. */
    void (*on_line)(void *ctx, const char *name, const char *line, size_t n, bool is_stderr);
    /* Called when a child of one model of several has ended without being told. `gives_up`: it
     * cannot start. `why` is one sentence. Returns true when the child shall be started again; a
     * child that is not started again does not end the cluster. */
    bool (*on_model_ended)(void *ctx, const struct up_child *c, bool gives_up, const char *why);
    void *ctx;
};

/* Starts all children. *out is set also after a failure, because the started children must be
 * ended (supervisor_stop, then run the loop). */
MUST_USE enum status supervisor_start(const struct supervisor_options *o, struct supervisor **out,
                                      struct error *err);
/* Ends all children. With drain_ms, SIGTERM goes to drain_role first, until its processes have
 * ended or drain_ms has passed. Then SIGTERM goes to the gateways, then to the workers, then to
 * the heads. Each role gets SIGTERM when the earlier roles have ended, or after 0.3 s. Earlier
 * roles that still run then get a second SIGTERM, which ends them at once. All processes get
 * SIGKILL after 5 s. When the last child has ended, the loop is stopped.
 * A second call during drain_ms ends the drain: drain_role gets a second SIGTERM and informs its
 * clients. Any other second call kills all processes at once. */
void supervisor_stop(struct supervisor *s);
/* Returns the number of children of a role that should run. */
uint32_t supervisor_count(const struct supervisor *s, enum up_role role);
/* Returns the name of the i-th child that should run; NULL = there is no i-th child. */
const char *supervisor_name(const struct supervisor *s, uint32_t i);
/* Returns true when a child has this name, even if the child is leaving. */
bool supervisor_has(const struct supervisor *s, const char *name);
/* Adds a child; `plan` is borrowed. When the child cannot start, an error is printed and the
 * other children continue. */
MUST_USE enum status supervisor_add(struct supervisor *s, const struct up_child *plan,
                                    struct error *err);
/* With `leaves`, sends SIGTERM to the child and does not restart it. With `leaves` false, a
 * child that is leaving or has left is started again. */
void supervisor_leave(struct supervisor *s, const char *name, bool leaves);
/* Returns true while a process of the model's workers runs. */
bool supervisor_runs(const struct supervisor *s, uint32_t model);
/* Calls supervisor_leave for each child of the model that has the role. */
void supervisor_leave_model(struct supervisor *s, uint32_t model, enum up_role role, bool leaves);
/* Forgets the children of a model, whose plan is then not used any more. Returns false while one of
 * them runs or has not been told to leave. `model` is above 0. */
bool supervisor_forget_model(struct supervisor *s, uint32_t model);
/* Returns why the supervisor gave up: the last line of a child that cannot start. "" = the
 * supervisor did not give up. */
const char *supervisor_failure(const struct supervisor *s);
/* Writes a line of this process in the form of the children's lines. */
void supervisor_say(const struct supervisor *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Frees the supervisor after all children have ended. `s` may be NULL. */
void supervisor_free(struct supervisor *s);
