#include "cli/batch/cluster.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/up/prepare/model_fetch.h"
#include "common/base/mem.h"
#include "common/http/client/client.h"

enum {
    LOOK_MS = 20,
    HEALTH_TIMEOUT_MS = 500,
    OWN_ARGS = 5 /* number of words in "cox up MODEL … --uds PATH" */
};

static volatile sig_atomic_t is_interrupted;

static void on_interrupt(int signum)
{
    (void)signum;
    is_interrupted = 1;
}

static enum status make_socket_dir(struct batch_cluster *c, struct error *err)
{
    const char *tmp = getenv("TMPDIR");
    TRY(throw_away_make(&c->dir, tmp && tmp[0] ? tmp : "/tmp", "batch", err));
    int n = snprintf(c->uds, sizeof c->uds, "%s/gateway", c->dir.path);
    if (n < 0 || (size_t)n >= sizeof c->uds)
        return error_set(
            err, STATUS_INVALID,
            "cannot make a socket in TMPDIR=%s: the path is too long. Set TMPDIR to a shorter path",
            tmp);
    return STATUS_OK;
}

/* Replaces the child process by `cox up`. It runs in the child after the fork. */
static _Noreturn void become_up(char *const *argv, pid_t parent)
{
    struct sigaction usual = {.sa_handler = SIG_DFL};
    (void)sigaction(SIGINT, &usual, NULL);
    (void)sigaction(SIGTERM, &usual, NULL);
    /* COX_CONFIG names a file with the options of this command, not those of `cox up` */
    (void)unsetenv("COX_CONFIG");
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && getppid() == parent)
        (void)execv("/proc/self/exe", argv);
    _exit(127);
}

static enum status spawn(struct batch_cluster *c, const char *model, const char *const *args,
                         size_t n_args, struct error *err)
{
    const char **argv = mem_array(n_args + OWN_ARGS + 1, sizeof *argv);
    size_t n = 0;
    argv[n++] = "cox";
    argv[n++] = "up";
    argv[n++] = model;
    for (size_t i = 0; i < n_args; i++)
        argv[n++] = args[i];
    argv[n++] = "--uds";
    argv[n++] = c->uds;
    argv[n] = NULL;
    pid_t parent = getpid();
    c->pid = fork();
    if (c->pid == 0)
        become_up((char *const *)argv, parent);
    mem_free(argv);
    if (c->pid > 0)
        return STATUS_OK;
    c->pid = 0;
    return error_set(err, STATUS_LIMIT, "cannot start a process for the cluster: %s",
                     strerror(errno));
}

static bool serves(const struct batch_cluster *c)
{
    struct strbuf answer;
    struct error err;
    int code = 0;
    const struct http_call call = {
        .url = "http://localhost/health", .timeout_ms = HEALTH_TIMEOUT_MS, .uds = c->uds};
    strbuf_init(&answer, 64 << 10);
    enum status s = http_client_call(&call, &code, &answer, &err);
    strbuf_fini(&answer);
    return s == STATUS_OK && code == 200;
}

enum status batch_cluster_start(struct batch_cluster *c, const char *command, const char *model,
                                const char *const *args, size_t n_args, struct error *err)
{
    struct sigaction sa = {.sa_handler = on_interrupt};
    *c = (struct batch_cluster){0};
    for (size_t i = 0; i < n_args; i++)
        if (strncmp(args[i], "--ssl-", 6) == 0 || strncmp(args[i], "--uds", 5) == 0)
            return error_set(err, STATUS_INVALID,
                             "%s is not allowed here: the cluster of run-batch listens only on a "
                             "Unix socket of its own. Remove this option",
                             args[i]);
    /* COX_CONFIG has been read, and it holds no options of `cox up` */
    (void)unsetenv("COX_CONFIG");
    enum status s = model_fetch_for_up(command, model, args, n_args, err);
    c->has_not_come = s != STATUS_OK;
    TRY(s);
    (void)sigaction(SIGINT, &sa, NULL);
    (void)sigaction(SIGTERM, &sa, NULL);
    TRY(make_socket_dir(c, err));
    TRY(spawn(c, model, args, n_args, err));
    while (!serves(c)) {
        if (is_interrupted)
            return error_set(err, STATUS_CLOSED, "the command was interrupted by a signal");
        if (waitpid(c->pid, NULL, WNOHANG) == c->pid) {
            c->pid = 0;
            return error_set(err, STATUS_INVALID,
                             "`cox up %s` has ended before the cluster was ready. See the log "
                             "above for the cause",
                             model);
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
    }
    return STATUS_OK;
}

void batch_cluster_end(struct batch_cluster *c)
{
    if (c->pid > 0) {
        (void)kill(c->pid, SIGTERM); /* `cox up` limits the time of its own shutdown */
        while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
    throw_away_remove(&c->dir);
    *c = (struct batch_cluster){0};
}
