/* Implements the keeper of a run: one process that runs all steps and writes the run's log and
 * state.
 * `run_start_keeper` forks the keeper in the background. `run_keep` runs it in this process
 * (`cox run -f`). `run_all` makes the imports and volumes, pulls the model, runs the commands,
 * then `cox up`. `finish` ends all processes, copies the exports, and writes the last state.
 * Invariants: only the keeper writes state.json and the log. Signals are received through a
 * signalfd, and SIGPIPE is ignored. Every process of the run has ended before the last state is
 * written. Only one thread calls these functions. */
#include "cli/run/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "cli/run/file/places.h"
#include "cli/run/monitoring.h"
#include "cli/run/step.h"
#include "cli/run/steps.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/host/kernel.h"

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
        run_log_say(&k->log,
                    "note: the image %s applies only in Kubernetes; it is not used on this machine",
                    k->file->image.s);
    if (k->file->resources.cpu.s || k->file->resources.memory.s || k->file->resources.gpus >= 0)
        run_log_say(&k->log, "note: cpu, memory and gpus of `resources` apply only in Kubernetes");
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
        return error_set(err, STATUS_IO, "cannot find the program's own path: /proc/self/exe: %s",
                         strerror(errno));
    k->program[n] = '\0';
    k->state = run_store_read_json(k->start->folder, "state.json");
    if (!k->state || !run_process_read(getpid(), &me))
        return error_set(err, STATUS_IO,
                         "cannot read the run's record %s/state.json. Check that the file exists "
                         "and is valid JSON",
                         k->start->folder);
    (void)json_object_set_new(k->state, "keeper", run_process_json(&me));
    snprintf(k->root, sizeof k->root, "%s/root", k->start->folder);
    TRY(run_log_open(&k->log, k->start->folder, k->start->in_foreground ? STDOUT_FILENO : -1, err));
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &set, &k->signals_before);
    (void)signal(SIGPIPE, SIG_IGN); /* a closed terminal must not end the run */
    k->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (k->signal_fd < 0)
        return error_set(err, STATUS_LIMIT, "cannot open a signal descriptor for the run: %s",
                         strerror(errno));
    if (pipe2(fds, O_CLOEXEC) != 0)
        return error_set(err, STATUS_LIMIT, "cannot open a pipe for the log of the run: %s",
                         strerror(errno));
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
                      NULL); /* from here on, a signal may end the process */
    json_decref(k->state);
    arena_fini(&k->arena);
}

static enum run_status finish(struct run_keeper *k, enum status s, struct error *err)
{
    struct error export_err = {0};
    bool was_ended = s == STATUS_CLOSED;
    run_step_end_all(k);
    if (s == STATUS_OK || was_ended) {
        k->is_ending = k->is_killing; /* a second signal can then stop the exports */
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
    run_step_flush(k);
    return status;
}

/* Runs the keeper until the run has ended. `struct run_keeper` is on the heap because it is
 * large. */
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
        /* it is no error when the starting command no longer waits */
        if (ready_fd >= 0 && write(ready_fd, "1", 1) < 0) {
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

/* Detaches the keeper: the keeper gets a session of its own and closes the open files of the
 * starting command. */
static void leave(int ready_fd)
{
    (void)setsid();
    int null_fd = open("/dev/null", O_RDWR);
    for (int fd = 0; fd <= STDERR_FILENO && null_fd >= 0; fd++)
        (void)dup2(null_fd, fd);
    if (ready_fd > 3)
        kernel_close_range(3, (unsigned)ready_fd - 1);
    kernel_close_range((unsigned)ready_fd + 1, ~0u);
}

enum status run_start_keeper(struct run_start *r, struct error *err)
{
    int ready[2];
    char byte;
    (void)fflush(NULL);
    if (pipe2(ready, O_CLOEXEC) != 0)
        return error_set(err, STATUS_LIMIT,
                         "cannot open a pipe to the keeper process of the run: %s",
                         strerror(errno));
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
        return error_set(err, STATUS_IO, "cannot start the keeper process of the run. See %s/log",
                         r->folder);
    return STATUS_OK;
}
