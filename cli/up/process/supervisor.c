/* Starts, restarts and ends the children of `cox up` and `cox workers`.
 * `supervisor_start` spawns all children of a plan through the loop. `on_line` prints their
 * output; `on_exit_of` calls restart_policy.h to decide about a restart; `supervisor_stop` ends
 * the roles in `stop_order`.
 * Invariants: a `struct child` keeps its address, since callbacks hold it. A child is restarted
 * only while it is wanted. It is not wanted when it leaves, or when the shutdown of its role has
 * begun. The loop stops when the last child has ended after a stop. Only the loop thread calls
 * these functions. */
#include "cli/up/process/supervisor.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/last_words.h"
#include "cli/up/process/restart_policy.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/loop/child.h"

#ifdef COX_SANITIZED
/* time in ms until SIGKILL; in builds with sanitizers it is longer, so that the leak check can
 * finish */
enum { STOP_KILL_MS = 8000 };
#else
enum { STOP_KILL_MS = 5000 };
#endif
enum { STOP_AGAIN_MS = 300, NAME_WIDTH = 10, JSON_TEXT_MAX = 1000, LAST_WORDS_MAX = 700 };

struct child {
    struct supervisor *s;
    const struct up_child *plan;
    uint32_t i;
    struct loop_child *process; /* process of the child; NULL = not running */
    struct loop_timer *restart;
    struct loop_timer *kill; /* sends SIGKILL to a process that leaves; NULL = not started */
    struct restart_policy policy;
    uint64_t started_ns;
    bool started_before;
    char last_words[LAST_WORDS_MAX]; /* last line that the child wrote to stderr */
    bool held;    /* `last_words` is a line about a failed start that is not printed yet */
    bool leaving; /* the child was scaled away, so it is not restarted */
    bool added;   /* the child was added by scaling, so its failed start does not end the cluster */
};

struct supervisor {
    struct supervisor_options o;
    struct child **children; /* children; each keeps its address, since callbacks hold it */
    uint32_t n_children, n_alive;
    /* draining: drain_role finishes its work; the other roles continue and are still restarted */
    bool stopping, draining, is_killing; /* is_killing: SIGKILL was sent to all children */
    struct loop_timer *stop_timer;
    uint32_t stop_stage, stopped_ms; /* index into stop_order; ms since stop_all */
    char failure[LAST_WORDS_MAX + 64];
    char sentence[LAST_WORDS_MAX]; /* error sentence of the failure */
};

/* `stop_order` lists the roles in the order of the shutdown. Each role needs the later roles
 * until its own end, so in this order no process loses a peer that it needs. */
static const enum up_role stop_order[] = {UP_GATEWAY, UP_WORKER, UP_HEAD};
enum { N_STAGES = sizeof stop_order / sizeof stop_order[0] };

/* Writes a line to a JSON log. A child's event is written unchanged. Any other line becomes the
 * text of an event. */
static void write_json_line(const char *name, const char *line, size_t n)
{
    char text[JSON_TEXT_MAX];
    if (n > 1 && line[0] == '{' && line[n - 1] == '}') {
        fprintf(stderr, "%.*s\n", (int)n, line);
        return;
    }
    snprintf(text, sizeof text, "%.*s", (int)n, line);
    log_warn("output", "name=%s text=%s", name, log_quote(text));
}

/* Writes each line with one write(2), so that lines of several processes do not mix within a
 * line. */
static void write_line(const struct supervisor *s, const char *name, unsigned color,
                       const char *line, size_t n, bool is_stderr)
{
    static const char *const colors[] = {"36", "32", "33", "35", "34", "31"};
    char buf[20000];
    if (s->o.on_line)
        s->o.on_line(s->o.ctx, name, line, n, is_stderr);
    if (s->o.quiet)
        return;
    if (log_is_json()) {
        write_json_line(name, line, n);
        return;
    }
    int head = s->o.color
                   ? snprintf(buf, sizeof buf, "\033[%sm%-*s |\033[0m ",
                              colors[color % (sizeof colors / sizeof colors[0])], NAME_WIDTH, name)
                   : snprintf(buf, sizeof buf, "%-*s | ", NAME_WIDTH, name);
    size_t used = (size_t)head, room = sizeof buf - used - 1;
    n = n < room ? n : room;
    memcpy(buf + used, line, n);
    used += n;
    buf[used++] = '\n';
    for (size_t done = 0; done < used;) {
        ssize_t w = write(STDERR_FILENO, buf + done, used - done);
        if (w < 0 && errno != EINTR)
            return; /* the program that read the log has ended; the cluster continues */
        done += w > 0 ? (size_t)w : 0;
    }
}

void supervisor_say(const struct supervisor *s, const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (log_is_json()) {
        log_info("note", "text=%s", log_quote(line));
        if (s->o.on_line)
            s->o.on_line(s->o.ctx, "cox", line, strlen(line), true);
    } else {
        write_line(s, "cox", 0, line, strlen(line), true);
    }
}

/* Passes an event of this process to the caller's `on_line`. */
static void keep(const struct supervisor *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void keep(const struct supervisor *s, const char *fmt, ...)
{
    char line[256];
    va_list ap;
    if (!s->o.on_line)
        return;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    s->o.on_line(s->o.ctx, "cox", line, strlen(line), true);
}

static void say_ended(const struct supervisor *s, const char *name, int pid, int status,
                      int term_signal)
{
    const char *how = term_signal ? "signal" : "status";
    int code = term_signal ? term_signal : status;
    if (!s->o.quiet) /* status 0 means that the process ended on request */
        log_event(code == 0 ? LOG_INFO : LOG_WARN, "process_ended", "name=%s pid=%d %s=%d", name,
                  pid, how, code);
    keep(s, "process_ended name=%s pid=%d %s=%d", name, pid, how, code);
}

/* ---- the pid file ---- */

/* Writes the pid file under a temporary name and renames it, because readers poll it. */
static void write_pids(const struct supervisor *s)
{
    if (!s->o.pids_file)
        return;
    char path[4096];
    int n = snprintf(path, sizeof path, "%s.new", s->o.pids_file);
    FILE *f = n > 0 && (size_t)n < sizeof path ? fopen(path, "we") : NULL;
    bool ok = f != NULL;
    for (uint32_t i = 0; f && i < s->n_children; i++)
        if (s->children[i]->process)
            ok = fprintf(f, "%s %d\n", s->children[i]->plan->name,
                         loop_child_pid(s->children[i]->process)) > 0 &&
                 ok;
    if (f)
        ok = fclose(f) == 0 && ok;
    if (!ok || rename(path, s->o.pids_file) != 0)
        supervisor_say(s, "warning: cannot write %s: %s", s->o.pids_file, strerror(errno));
}

/* ---- children ---- */

static void on_line(void *ctx, struct loop_child *process, const char *line, size_t n,
                    bool is_stderr)
{
    struct child *c = ctx;
    if (is_stderr && n > 0)
        snprintf(c->last_words, sizeof c->last_words, "%.*s", (int)n, line);
    c->held = is_stderr && n > 0 && last_words_is_failure(c->last_words);
    if (!c->held)
        write_line(c->s, c->plan->name, c->i + 1, line, n, is_stderr);
}

/* Prints the held line about a failed start. Several children may write the same line, and the
 * shutdown repeats it, but the line is printed once. */
static void write_held(struct child *c)
{
    char sentence[LAST_WORDS_MAX];
    if (!c->held)
        return;
    c->held = false;
    last_words_sentence(c->last_words, sentence, sizeof sentence);
    if (strcmp(sentence, c->s->sentence) != 0)
        write_line(c->s, c->plan->name, c->i + 1, c->last_words, strlen(c->last_words), true);
}

static void on_exit_of(void *ctx, struct loop_child *process, int64_t status, int term_signal);

static enum status start(struct child *c, struct error *err)
{
    const struct loop_child_options o = {
        .argv = c->plan->argv, .on_line = on_line, .on_exit = on_exit_of, .ctx = c};
    c->process = c->plan->role == UP_WORKER ? spares_take(c->s->o.spares, &o) : NULL;
    if (!c->process)
        TRY(loop_child_spawn(c->s->o.loop, &o, &c->process, err));
    c->started_ns = clock_mono_ns();
    c->last_words[0] = '\0';
    c->s->n_alive++;
    if (c->started_before) {
        const char *event = c->plan->role == UP_WORKER ? "worker_restarted" : "process_restarted";
        int pid = loop_child_pid(c->process);
        if (!c->s->o.quiet)
            log_info(event, "name=%s pid=%d", c->plan->name, pid);
        keep(c->s, "%s name=%s pid=%d", event, c->plan->name, pid);
    }
    c->started_before = true;
    return STATUS_OK;
}

static void schedule_restart(struct child *c, int pid, uint64_t life_ms, int status,
                             int term_signal);
static void stop_all(struct supervisor *s);
static void go_on_stopping(struct supervisor *s);

static void on_restart(void *ctx)
{
    struct child *c = ctx;
    struct error err = {0};
    loop_timer_stop(c->restart);
    c->restart = NULL;
    if (start(c, &err) != STATUS_OK) {
        supervisor_say(c->s, "%s: %s", c->plan->name, err.text);
        schedule_restart(c, 0, 0, -1, 0); /* -1 means that no process was started */
    }
    write_pids(c->s);
}

/* Asks the caller whether a child of one model of several is started again. */
static bool ask_again(struct child *c, bool gives_up, int status, int term_signal)
{
    char why[LAST_WORDS_MAX + 64];
    char sentence[LAST_WORDS_MAX];
    last_words_sentence(c->last_words, sentence, sizeof sentence);
    if (c->held || gives_up)
        snprintf(why, sizeof why, "%s cannot start: %s", c->plan->name,
                 sentence[0] ? sentence : "configuration error");
    else
        snprintf(why, sizeof why, "%s ended with %s %d%s%s", c->plan->name,
                 term_signal ? "signal" : "status", term_signal ? term_signal : status,
                 sentence[0] ? ". Its last log line: " : "", sentence);
    write_held(c);
    if (c->s->o.on_model_ended(c->s->o.ctx, c->plan, gives_up, why))
        return true;
    c->leaving = true;
    return false;
}

static void schedule_restart(struct child *c, int pid, uint64_t life_ms, int status,
                             int term_signal)
{
    struct supervisor *s = c->s;
    struct restart_verdict v =
        restart_policy_on_exit(&c->policy, life_ms, status, term_signal, c->held);
    if (c->plan->model > 0 && s->o.on_model_ended) {
        if (!ask_again(c, v.give_up, status, term_signal))
            return;
        v.give_up = false;
    }
    if (v.give_up && c->added) {
        write_held(c);
        c->leaving = true;
        supervisor_say(s,
                       "warning: %s cannot start, so the cluster runs without it. Its last log "
                       "line has the cause",
                       c->plan->name);
        return;
    }
    if (v.give_up) {
        last_words_sentence(c->last_words[0] ? c->last_words : "configuration error", s->sentence,
                            sizeof s->sentence);
        snprintf(s->failure, sizeof s->failure, "%s cannot start: %s", c->plan->name, s->sentence);
        if (s->draining) /* open requests cannot end without this child */
            stop_all(s);
        else
            supervisor_stop(s);
        return;
    }
    write_held(c);
    if (term_signal || pid > 0)
        say_ended(s, c->plan->name, pid, status, term_signal);
    c->restart = loop_timer_start(s->o.loop, v.wait_ms, 0, on_restart, c);
}

static uint32_t signal_role(struct supervisor *s, enum up_role role, int signum)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_children; i++)
        if (s->children[i]->process && s->children[i]->plan->role == role) {
            n++;
            if (signum != 0)
                loop_child_kill(s->children[i]->process, signum);
        }
    return n;
}

static void finish_if_last(struct supervisor *s)
{
    if (s->stopping && s->n_alive == 0)
        loop_stop(s->o.loop);
}

static void on_exit_of(void *ctx, struct loop_child *process, int64_t status, int term_signal)
{
    struct child *c = ctx;
    struct supervisor *s = c->s;
    uint64_t life_ms = (clock_mono_ns() - c->started_ns) / NS_PER_MS;
    int pid = loop_child_pid(process);
    loop_child_free(process);
    c->process = NULL;
    loop_timer_stop(c->kill);
    c->kill = NULL;
    s->n_alive--;
    /* during a drain, open requests still need head and workers */
    bool is_wanted = !s->stopping || (s->draining && c->plan->role != s->o.drain_role);
    if (!is_wanted) {
        write_held(c);
        bool as_told = term_signal == SIGTERM || (s->is_killing && term_signal == SIGKILL);
        if (term_signal != 0 && !as_told)
            say_ended(s, c->plan->name, pid, 0, term_signal);
        if (s->draining && signal_role(s, s->o.drain_role, 0) == 0)
            stop_all(s);
        else
            go_on_stopping(s);
        return;
    }
    if (c->leaving)
        supervisor_say(s, "%s has ended, because %s", c->plan->name,
                       c->plan->model > 0 ? "its model stops"
                                          : "the number of workers was reduced");
    else
        schedule_restart(c, pid, life_ms, (int)status, term_signal);
    write_pids(s);
}

/* ---- more or fewer workers ---- */

static struct child *add_child(struct supervisor *s, const struct up_child *plan)
{
    struct child *c = mem_zalloc(sizeof *c);
    *c = (struct child){.s = s, .plan = plan, .i = s->n_children};
    s->children = mem_realloc(s->children, (s->n_children + 1) * sizeof *s->children);
    s->children[s->n_children++] = c;
    return c;
}

uint32_t supervisor_count(const struct supervisor *s, enum up_role role)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_children; i++)
        n += s->children[i]->plan->role == role && !s->children[i]->leaving;
    return n;
}

const char *supervisor_name(const struct supervisor *s, uint32_t i)
{
    for (uint32_t k = 0; k < s->n_children; k++)
        if (!s->children[k]->leaving && i-- == 0)
            return s->children[k]->plan->name;
    return NULL;
}

bool supervisor_runs(const struct supervisor *s, uint32_t model)
{
    for (uint32_t i = 0; i < s->n_children; i++) {
        const struct child *c = s->children[i];
        if (c->plan->model == model && c->plan->role == UP_WORKER && c->process)
            return true;
    }
    return false;
}

bool supervisor_has(const struct supervisor *s, const char *name)
{
    for (uint32_t i = 0; i < s->n_children; i++)
        if (strcmp(s->children[i]->plan->name, name) == 0)
            return true;
    return false;
}

enum status supervisor_add(struct supervisor *s, const struct up_child *plan, struct error *err)
{
    if (s->stopping)
        return error_set(err, STATUS_INVALID,
                         "the number of workers cannot be changed: the cluster is stopping");
    struct child *c = add_child(s, plan);
    c->added = true;
    enum status st = start(c, err);
    c->leaving = st != STATUS_OK;
    write_pids(s);
    return st;
}

static void on_kill(void *ctx)
{
    struct child *c = ctx;
    loop_timer_stop(c->kill);
    c->kill = NULL;
    supervisor_say(c->s, "warning: %s gets SIGKILL, because it did not end %u s after SIGTERM",
                   c->plan->name, c->s->o.leave_ms / 1000);
    loop_child_kill(c->process, SIGKILL);
}

/* Ends the process of a child that leaves. SIGTERM lets a worker drain first. */
static void end_process(struct child *c)
{
    loop_child_kill(c->process, SIGTERM);
    if (c->plan->model > 0 && c->s->o.leave_ms > 0 && !c->kill)
        c->kill = loop_timer_start(c->s->o.loop, c->s->o.leave_ms, 0, on_kill, c);
}

void supervisor_leave(struct supervisor *s, const char *name, bool leaves)
{
    struct error err = {0};
    for (uint32_t i = 0; i < s->n_children && !s->stopping; i++) {
        struct child *c = s->children[i];
        if (strcmp(c->plan->name, name) != 0 || c->leaving == leaves)
            continue;
        c->leaving = leaves;
        c->added = c->added || !leaves;
        if (leaves && c->process)
            end_process(c);
        loop_timer_stop(c->restart);
        c->restart = NULL;
        if (!leaves && !c->process &&
            /* a child whose process still runs is restarted when the process has ended */
            start(c, &err) != STATUS_OK)
            schedule_restart(c, 0, 0, -1, 0);
        write_pids(s);
    }
}

void supervisor_leave_model(struct supervisor *s, uint32_t model, enum up_role role, bool leaves)
{
    for (uint32_t i = 0; i < s->n_children; i++)
        if (s->children[i]->plan->model == model && s->children[i]->plan->role == role)
            supervisor_leave(s, s->children[i]->plan->name, leaves);
}

bool supervisor_forget_model(struct supervisor *s, uint32_t model)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_children; i++)
        if (s->children[i]->plan->model == model &&
            (s->children[i]->process || !s->children[i]->leaving))
            return false;
    for (uint32_t i = 0; i < s->n_children; i++) {
        struct child *c = s->children[i];
        if (c->plan->model != model) {
            s->children[n++] = c;
            continue;
        }
        loop_timer_stop(c->restart);
        mem_free(c);
    }
    s->n_children = n;
    return true;
}

/* ---- start and end ---- */

static void signal_all(struct supervisor *s, int signum)
{
    for (uint32_t i = 0; i < s->n_children; i++)
        if (s->children[i]->process)
            loop_child_kill(s->children[i]->process, signum);
}

/* Sends SIGTERM to the next role of stop_order, once all processes of the earlier roles have
 * ended. */
static void go_on_stopping(struct supervisor *s)
{
    uint32_t was = s->stop_stage;
    while (!s->draining && s->stop_timer && s->stop_stage < N_STAGES &&
           signal_role(s, stop_order[s->stop_stage], 0) == 0)
        s->stop_stage++;
    if (s->stop_stage > was && s->stop_stage < N_STAGES)
        (void)signal_role(s, stop_order[s->stop_stage], SIGTERM);
    finish_if_last(s);
}

/* Continues the shutdown. A role that has not ended gets a second SIGTERM, which ends it at
 * once. The next role gets its first SIGTERM. */
static void on_stop_timer(void *ctx)
{
    struct supervisor *s = ctx;
    if (s->draining) {
        stop_all(s);
        return;
    }
    s->stopped_ms += STOP_AGAIN_MS;
    if (s->stopped_ms >= STOP_KILL_MS) {
        signal_all(s, SIGKILL); /* `say_ended` names the killed processes later */
    } else if (s->stop_stage < N_STAGES) {
        (void)signal_role(s, stop_order[s->stop_stage], SIGTERM);
        if (++s->stop_stage < N_STAGES)
            (void)signal_role(s, stop_order[s->stop_stage], SIGTERM);
    }
}

static void cancel_restarts(struct supervisor *s)
{
    for (uint32_t i = 0; i < s->n_children; i++) {
        if (s->draining && s->children[i]->plan->role != s->o.drain_role)
            continue;
        loop_timer_stop(s->children[i]->restart);
        s->children[i]->restart = NULL;
    }
}

static void stop_all(struct supervisor *s)
{
    s->draining = false;
    cancel_restarts(s);
    loop_timer_stop(s->stop_timer);
    s->stop_timer = loop_timer_start(s->o.loop, STOP_AGAIN_MS, STOP_AGAIN_MS, on_stop_timer, s);
    (void)signal_role(s, stop_order[0], SIGTERM);
    go_on_stopping(s);
}

void supervisor_stop(struct supervisor *s)
{
    spares_stop(s->o.spares);
    if (s->draining) { /* the gateways get a second SIGTERM, so they inform their clients and end */
        stop_all(s);
        return;
    }
    if (s->stopping) {
        cancel_restarts(s);
        s->is_killing = true;
        signal_all(s, SIGKILL);
        return;
    }
    s->stopping = true;
    s->draining =
        s->o.drain_ms > 0 && !s->failure[0] && signal_role(s, s->o.drain_role, SIGTERM) > 0;
    cancel_restarts(s);
    if (s->draining)
        s->stop_timer = loop_timer_start(s->o.loop, s->o.drain_ms, 0, on_stop_timer, s);
    else
        stop_all(s);
}

enum status supervisor_start(const struct supervisor_options *o, struct supervisor **out,
                             struct error *err)
{
    struct supervisor *s = mem_zalloc(sizeof *s);
    s->o = *o;
    enum status st = STATUS_OK;
    for (uint32_t i = 0; i < o->plan->n_children; i++)
        (void)add_child(s, &o->plan->children[i]);
    for (uint32_t i = 0; i < s->n_children && st == STATUS_OK; i++)
        st = start(s->children[i], err);
    /* *out is set after a failure too, because the caller must end the started children */
    *out = s;
    if (st == STATUS_OK)
        write_pids(s);
    return st;
}

const char *supervisor_failure(const struct supervisor *s)
{
    return s->failure;
}

void supervisor_free(struct supervisor *s)
{
    if (!s)
        return;
    assert(s->n_alive == 0);
    for (uint32_t i = 0; i < s->n_children; i++) {
        loop_timer_stop(s->children[i]->restart);
        mem_free(s->children[i]);
    }
    loop_timer_stop(s->stop_timer);
    if (s->o.pids_file)
        (void)unlink(s->o.pids_file);
    mem_free(s->children);
    mem_free(s);
}
