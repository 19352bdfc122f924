#include "cli/run/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/base/last_words.h"
#include "cli/pull/place.h"
#include "cli/run/steps.h"
#include "common/base/clock.h"
#include "common/base/mem.h"

enum { END_S = 30, LAST_WORDS_S = 1, LOOK_MS = 200, LOOK_ENDING_MS = 20, READS_MAX = 64 };

/* ---- state ---- */

static double wall_s(void)
{
    return (double)clock_wall_ns() / 1e9;
}

static void say_state(struct run_keeper *k, enum run_status status, const char *when)
{
    struct error err = {0};
    (void)json_object_set_new(k->state, "status", json_string(run_status_name(status)));
    if (when)
        (void)json_object_set_new(k->state, when, json_real(wall_s()));
    if (run_store_write_state(k->start->folder, k->state, status >= RUN_TERMINATED, &err) !=
        STATUS_OK)
        run_log_say(&k->log, "%s", err.text);
}

static json_t *process_json(const struct run_process *p)
{
    return json_pack("{s:i, s:I, s:s}", "pid", (int)p->pid, "began", (json_int_t)p->began, "boot",
                     p->boot);
}

static json_t *ports_json(const struct run_file *f)
{
    json_t *all = json_array();
    const char *host =
        f->model.s && f->up.host && strcmp(f->up.host, "0.0.0.0") != 0 ? f->up.host : "127.0.0.1";
    bool has_prometheus = false, is_v6 = strchr(host, ':') && host[0] != '[';
    char url[400];
    for (size_t i = 0; i < f->ports.n; i++) {
        const struct run_port *p = &f->ports.items[i];
        bool is_own = f->monitoring && strcmp(p->name, "prometheus") == 0;
        has_prometheus |= is_own;
        const char *scheme = !p->is_http                    ? ""
                             : i == 0 && f->up.ssl.certfile ? "https://"
                                                            : "http://";
        snprintf(url, sizeof url, is_v6 && !is_own ? "%s[%.300s]:%u" : "%s%.300s:%u", scheme,
                 is_own ? "127.0.0.1" : host, p->port);
        json_array_append_new(all,
                              json_pack("{s:s, s:s, s:i, s:s}", "name", p->name, "type",
                                        p->is_http ? "http" : "tcp", "port", p->port, "url", url));
    }
    if (f->model.s && f->ports.n == (has_prometheus ? 1u : 0u) && !f->up.uds) {
        snprintf(url, sizeof url, "http://%.300s:%lld", host, (long long)f->up.port);
        json_array_insert_new(all, 0,
                              json_pack("{s:s, s:s, s:I, s:s}", "name", "api", "type", "http",
                                        "port", (json_int_t)f->up.port, "url", url));
    }
    if (f->monitoring && !has_prometheus)
        json_array_append_new(all, json_pack("{s:s, s:s, s:i, s:s}", "name", "prometheus", "type",
                                             "http", "port", 9090, "url", "http://127.0.0.1:9090"));
    return all;
}

/* What `show` may show: no value, for which of them is a secret its name does not say. */
static json_t *env_json(const struct run_file *f)
{
    json_t *all = json_object();
    for (size_t i = 0; i < f->env.n; i++)
        (void)json_object_set_new(all, f->env.items[i].name, json_string("***"));
    return all;
}

static json_t *first_state(const struct run_start *r)
{
    const struct run_file *f = &r->source->file;
    json_t *tags = json_array(), *state;
    char cwd[RUN_PATH_BYTES] = "/";
    struct run_process me;
    (void)run_process_read(getpid(), &me);
    if (!getcwd(cwd, sizeof cwd))
        cwd[0] = '\0';
    for (size_t i = 0; i < f->tags.n; i++)
        json_array_append_new(tags, json_string(f->tags.items[i]));
    state =
        json_pack("{s:s, s:s, s:s, s:o, s:s, s:s, s:s, s:f, s:o, s:s, s:s, s:b, s:o, s:o}", "id",
                  r->id, "name", f->name.s, "description", f->description.s ? f->description.s : "",
                  "tags", tags, "type", f->model.s ? "model" : "command", "model",
                  f->model.s ? f->model.s : "", "status", run_status_name(RUN_PENDING), "created",
                  wall_s(), "keeper", process_json(&me), "file", r->path, "cwd", cwd, "foreground",
                  r->in_foreground, "ports", ports_json(f), "env", env_json(f));
    return state;
}

enum status run_prepare(struct run_start *r, struct error *err)
{
    struct strbuf options;
    TRY(run_store_new(r->store, r->id, r->folder, err));
    json_t *state = first_state(r);
    strbuf_init(&options, 0);
    run_file_options(&r->source->file, &options);
    enum status s = run_store_write(r->folder, "run.yaml", strbuf_str(&r->source->text), err);
    if (s == STATUS_OK)
        s = run_store_write(r->folder, "up.yaml", strbuf_str(&options), err);
    if (s == STATUS_OK)
        s = run_store_write_json(r->folder, "env.json", r->taken, err);
    if (s == STATUS_OK)
        s = state ? run_store_write_state(r->folder, state, false, err)
                  : error_set(err, STATUS_INVALID, "%s: its texts are no UTF-8", r->path);
    if (s != STATUS_OK) /* nobody would find it */
        pull_remove_tree(r->folder);
    strbuf_fini(&options);
    json_decref(state);
    return s;
}

/* ---- the loop ---- */

/* As a program that is written to waits for a pager, so do the run's: until it is to end. */
static bool is_held(const struct run_keeper *k)
{
    return run_log_is_held(&k->log) && !k->is_ending;
}

static void read_output(struct run_keeper *k)
{
    char buf[16384];
    for (int i = 0; i < READS_MAX && !is_held(k); i++) {
        ssize_t n = read(k->out_read, buf, sizeof buf);
        if (n <= 0)
            return;
        k->n_read += (uint64_t)n;
        run_log_write(&k->log, buf, (size_t)n);
    }
}

static void reap(struct run_keeper *k)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid == k->child) {
            k->child_ended = true;
            k->child_status = status;
        } else if (pid == k->prometheus && !k->is_ending) {
            k->prometheus = 0;
            read_output(k);
            run_log_say(&k->log, "prometheus has ended: the run goes on without monitoring: %s",
                        k->log.last);
        }
    }
}

static void on_end_signal(struct run_keeper *k)
{
    bool again = k->is_ending;
    k->was_asked = k->is_ending = true;
    k->kill_at_ns = clock_mono_ns() + (again ? 0 : END_S * NS_PER_S);
    if (!again)
        run_log_say(&k->log, "ending");
    if (!again && k->child > 0 && !k->child_ended)
        (void)kill(-k->child, SIGTERM); /* of `cox up` it is itself alone: it ends its own */
}

static void look(struct run_keeper *k, int timeout_ms)
{
    struct signalfd_siginfo info;
    struct pollfd fds[] = {
        {.fd = is_held(k) ? -1 : k->out_read, .events = POLLIN},
        {.fd = k->signal_fd, .events = POLLIN},
        {.fd = run_log_is_held(&k->log) ? k->log.echo_fd : -1, .events = POLLOUT}};
    (void)poll(fds, sizeof fds / sizeof *fds, timeout_ms);
    run_log_echo(&k->log);
    read_output(k);
    while (read(k->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo != SIGCHLD)
            on_end_signal(k);
    reap(k);
    if (k->is_ending && !k->is_killing && clock_mono_ns() >= k->kill_at_ns) {
        k->is_killing = true;
        run_log_say(&k->log, "killing what has not ended");
    }
    if (k->is_killing)
        (void)run_children_kill(k->start->store, SIGKILL);
}

/* What a child that has ended wrote: all that is in the pipe now, however slowly it is read. */
static void drain(struct run_keeper *k)
{
    int n = 0;
    (void)ioctl(k->out_read, FIONREAD, &n);
    for (uint64_t until = k->n_read + (uint64_t)n; k->n_read < until && !k->is_ending;)
        look(k, LOOK_MS);
    read_output(k);
}

/* What the terminal has not got yet: as long as that takes, but for who asks for the end. */
static void flush_echo(struct run_keeper *k)
{
    struct signalfd_siginfo info;
    uint64_t until = clock_mono_ns() + LAST_WORDS_S * NS_PER_S;
    while (run_log_is_held(&k->log) && (!k->was_asked || clock_mono_ns() < until)) {
        struct pollfd fds[] = {{.fd = k->signal_fd, .events = POLLIN},
                               {.fd = k->log.echo_fd, .events = POLLOUT}};
        (void)poll(fds, sizeof fds / sizeof *fds, LOOK_MS);
        while (read(k->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
            if (info.ssi_signo != SIGCHLD)
                return;
        run_log_echo(&k->log);
    }
}

static enum status judge(struct run_keeper *k, const char *what, struct error *err)
{
    int st = k->child_status;
    char said[200];
    if (k->is_ending)
        return error_set(err, STATUS_CLOSED, "terminated");
    if (WIFEXITED(st) && WEXITSTATUS(st) == 0)
        return STATUS_OK;
    last_words_sentence(k->log.last, said, sizeof said);
    if (WIFSIGNALED(st))
        return error_set(err, STATUS_IO, "%s was killed by signal %d%s%s", what, WTERMSIG(st),
                         said[0] ? ": " : "", said);
    return error_set(err, STATUS_IO, "%s ended with exit code %d%s%s", what, WEXITSTATUS(st),
                     said[0] ? ": " : "", said);
}

enum status run_step(struct run_keeper *k, const char *what, const char *const *argv,
                     const char *cwd, int stdout_fd, struct error *err)
{
    const struct run_spawn o = {.argv = argv,
                                .cwd = cwd,
                                .env = k->env,
                                .out_fd = k->out_write,
                                .stdout_fd = stdout_fd,
                                .death_signal = SIGTERM};
    if (k->is_ending)
        return error_set(err, STATUS_CLOSED, "terminated");
    k->child_ended = false;
    k->log.n_last = 0;
    k->log.last[0] = '\0';
    TRY(run_spawn(&o, &k->child, err));
    while (!k->child_ended)
        look(k, LOOK_MS);
    k->child = 0;
    drain(k);
    return judge(k, what, err);
}

/* Whatever the run has left: asked to end, and killed when its time is over. */
static void end_all(struct run_keeper *k)
{
    if (!k->is_ending)
        k->kill_at_ns = clock_mono_ns() + END_S * NS_PER_S;
    k->is_ending = true;
    k->child = 0;
    if (!k->is_killing)
        (void)run_children_kill(k->start->store, SIGTERM);
    do
        look(k, LOOK_ENDING_MS);
    while (run_children_kill(k->start->store, 0) > 0);
    read_output(k);
}

/* ---- the run ---- */

static enum status run_commands(struct run_keeper *k, struct error *err)
{
    for (size_t i = 0; i < k->file->commands.n; i++) {
        const struct run_command *c = &k->file->commands.items[i];
        const char *const argv[] = {"/bin/sh", "-e", "-c", c->command, NULL};
        char cwd[RUN_PATH_BYTES], what[64];
        TRY(run_place(k, c->workdir ? c->workdir : "/", true, cwd, err));
        snprintf(what, sizeof what, "the command in line %u", c->at.line);
        TRY(run_step(k, what, argv, cwd, -1, err));
    }
    return STATUS_OK;
}

static enum status run_model(struct run_keeper *k, struct error *err)
{
    char options[RUN_PATH_BYTES + 16], place[RUN_PATH_BYTES];
    const char *model = k->file->model.s;
    if (!model)
        return STATUS_OK;
    if (model[0] == '/' && run_file_brings(k->file, model)) {
        TRY(run_place(k, model, false, place, err));
        model = place;
    }
    snprintf(options, sizeof options, "%s/up.yaml", k->start->folder);
    const char *const argv[] = {k->program, "up", model, "--config", options, NULL};
    return run_step(k, "`cox up`", argv, NULL, -1, err);
}

static enum status run_all(struct run_keeper *k, struct error *err)
{
    if (k->file->image.s)
        run_log_say(&k->log, "note: the image %s is a pod's: nothing of it is used here",
                    k->file->image.s);
    if (k->file->resources.cpu.s || k->file->resources.memory.s || k->file->resources.gpus >= 0)
        run_log_say(&k->log, "note: cpu, memory and gpus of `resources` are a pod's");
    if (k->file->imports.n > 0 || k->file->model.s)
        say_state(k, RUN_IMPORTING, NULL);
    TRY(run_import_all(k, err));
    TRY(run_link_volumes(k, err));
    TRY(run_pull_model(k, err));
    TRY(run_start_monitoring(k, err));
    say_state(k, RUN_RUNNING, "began");
    TRY(run_commands(k, err));
    return run_model(k, err);
}

static enum status open_all(struct run_keeper *k, struct error *err)
{
    int fds[2];
    sigset_t set;
    struct run_process me;
    ssize_t n = readlink("/proc/self/exe", k->program, sizeof k->program - 1);
    if (n <= 0)
        return error_set(err, STATUS_IO, "/proc/self/exe: %s", strerror(errno));
    k->program[n] = '\0';
    k->state = run_store_read_json(k->start->folder, "state.json");
    if (!k->state || !run_process_read(getpid(), &me))
        return error_set(err, STATUS_IO, "%s/state.json: gone", k->start->folder);
    (void)json_object_set_new(k->state, "keeper", process_json(&me));
    snprintf(k->root, sizeof k->root, "%s/root", k->start->folder);
    TRY(run_log_open(&k->log, k->start->folder, k->start->in_foreground ? STDOUT_FILENO : -1, err));
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &set, &k->signals_before);
    (void)signal(SIGPIPE, SIG_IGN); /* a terminal that has gone ends no run */
    k->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (k->signal_fd < 0 || pipe2(fds, O_CLOEXEC) != 0)
        return error_set(err, STATUS_LIMIT, "no more files: %s", strerror(errno));
    k->out_read = fds[0];
    k->out_write = fds[1];
    (void)fcntl(k->out_read, F_SETFL, O_NONBLOCK);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    run_build_env(k);
    return STATUS_OK;
}

static void close_all(struct run_keeper *k)
{
    run_log_close(&k->log);
    if (k->out_read >= 0)
        close(k->out_read);
    if (k->out_write >= 0)
        close(k->out_write);
    if (k->signal_fd >= 0)
        close(k->signal_fd);
    (void)sigprocmask(SIG_SETMASK, &k->signals_before,
                      NULL); /* what is left to say may be killed */
    json_decref(k->state);
    arena_fini(&k->arena);
}

static enum run_status finish(struct run_keeper *k, enum status s, struct error *err)
{
    struct error export_err = {0};
    bool was_ended = s == STATUS_CLOSED;
    end_all(k);
    if (s == STATUS_OK || was_ended) {
        k->is_ending = k->is_killing; /* a second signal still stops it */
        enum status e = run_export_all(k, &export_err);
        if (e != STATUS_OK && !was_ended) {
            s = e;
            *err = export_err;
        } else if (e != STATUS_OK) {
            run_log_say(&k->log, "%s", export_err.text);
        }
    }
    enum run_status status = was_ended        ? RUN_TERMINATED
                             : s == STATUS_OK ? RUN_COMPLETED
                                              : RUN_FAILED;
    if (status == RUN_FAILED)
        (void)json_object_set_new(k->state, "reason", json_string(err->text));
    run_log_say(&k->log, "%s%s%s", run_status_name(status), status == RUN_FAILED ? ": " : "",
                status == RUN_FAILED ? err->text : "");
    say_state(k, status, "ended");
    flush_echo(k);
    return status;
}

/* The keeper is one process at a time: the struct is large, and nobody else's. */
static enum status keep(struct run_start *r, int ready_fd, enum run_status *ended,
                        struct error *err)
{
    struct run_keeper *k = mem_zalloc(sizeof *k);
    *k = (struct run_keeper){.start = r,
                             .file = &r->source->file,
                             .log = {.fd = -1, .echo_fd = -1},
                             .out_read = -1,
                             .out_write = -1,
                             .signal_fd = -1};
    (void)sigprocmask(SIG_BLOCK, NULL, &k->signals_before);
    arena_init(&k->arena, 0);
    enum status s = open_all(k, err);
    if (s == STATUS_OK) {
        say_state(k, RUN_PENDING, NULL);
        if (ready_fd >= 0 && write(ready_fd, "1", 1) < 0) { /* nobody waits any more */
        }
        if (ready_fd >= 0)
            close(ready_fd);
        s = run_all(k, err);
        *ended = finish(k, s, err);
        s = *ended == RUN_FAILED ? err->status : STATUS_OK;
    }
    close_all(k);
    mem_free(k);
    return s;
}

enum status run_keep(struct run_start *r, enum run_status *ended, struct error *err)
{
    return keep(r, -1, ended, err);
}

/* A session of its own, and no file of whoever started it. */
static void leave(int ready_fd)
{
    (void)setsid();
    int null_fd = open("/dev/null", O_RDWR);
    for (int fd = 0; fd <= STDERR_FILENO && null_fd >= 0; fd++)
        (void)dup2(null_fd, fd);
    if (ready_fd > 3)
        (void)close_range(3, (unsigned)ready_fd - 1, 0);
    (void)close_range((unsigned)ready_fd + 1, ~0u, 0);
}

enum status run_start_keeper(struct run_start *r, struct error *err)
{
    int ready[2];
    char byte;
    (void)fflush(NULL);
    if (pipe2(ready, O_CLOEXEC) != 0)
        return error_set(err, STATUS_LIMIT, "no more files: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        enum run_status ended;
        leave(ready[1]);
        _exit(keep(r, ready[1], &ended, err) == STATUS_OK ? 0 : 1);
    }
    close(ready[1]);
    ssize_t n = pid > 0 ? read(ready[0], &byte, 1) : -1;
    close(ready[0]);
    if (n != 1)
        return error_set(err, STATUS_IO, "no keeper for the run could be started: see %s/log",
                         r->folder);
    return STATUS_OK;
}
