#include "cli/run/step.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/base/last_words.h"
#include "cli/run/children.h"
#include "common/base/clock.h"

enum { END_S = 30, LAST_WORDS_S = 1, LOOK_MS = 200, LOOK_ENDING_MS = 20, READS_MAX = 64 };

/* Returns true while bytes are held for the echo. The run's processes then wait, as a program
 * waits for a pager, unless the run is ending. */
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
            run_log_say(&k->log,
                        "prometheus has ended, so the run continues without monitoring: %s",
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
        /* `cox up` leads its own process group and ends its children itself */
        (void)kill(-k->child, SIGTERM);
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
        run_log_say(&k->log, "killing the processes that have not ended");
    }
    if (k->is_killing)
        (void)run_children_kill(k->start->store, SIGKILL);
}

/* Reads the rest of the output of a child that has ended: all bytes that the pipe contains now. */
static void drain(struct run_keeper *k)
{
    int n = 0;
    (void)ioctl(k->out_read, FIONREAD, &n);
    for (uint64_t until = k->n_read + (uint64_t)n; k->n_read < until && !k->is_ending;)
        look(k, LOOK_MS);
    read_output(k);
}

void run_step_flush(struct run_keeper *k)
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

void run_step_end_all(struct run_keeper *k)
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
