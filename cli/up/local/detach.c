/* Implements `cox up --detach`, which runs the cluster in the background, with its log in a file
 * (detach.h has a drawing).
 * `up_detach` makes the log and forks. The typed command copies the pipe to its stderr until
 * READY or the end, and returns the exit code. The cluster continues with `up_detach_begin_log`
 * and `up_detach_ready`.
 * Invariants: the process forks before it starts any thread. A flock on the log ensures that
 * only one cluster writes it. A log is never another user's file. When a log has LOG_MAX_BYTES,
 * it is renamed and a new log begins. A second Ctrl-C in the typed command ends the cluster at
 * once. */
#include "cli/up/local/detach.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/up/local/find.h"

/* byte that the cluster writes to the pipe when it serves; no text contains it */
#define READY '\006'

enum { PIECE = 4096, LOOK_MS = 100 };
static const unsigned long long LOG_MAX_BYTES = 64ull << 20;

/* ---- the log ---- */

/* Writes the log folder to `out`, such as "/home/me/.local/state/coxswain/up", and makes the
 * folder. Returns false when the folder cannot be made. */
static bool state_folder(char *out, size_t size)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int n;
    if (state && state[0] == '/')
        n = snprintf(out, size, "%s/coxswain/up", state);
    else if (home && home[0] == '/')
        n = snprintf(out, size, "%s/.local/state/coxswain/up", home);
    else
        return false;
    if (n < 0 || (size_t)n >= size)
        return false;
    for (char *slash = strchr(out + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(out, 0700); /* a failure of mkdir is noticed at the last folder */
        *slash = '/';
    }
    struct stat st;
    return (mkdir(out, 0700) == 0 || errno == EEXIST) && stat(out, &st) == 0 &&
           S_ISDIR(st.st_mode) && access(out, W_OK) == 0;
}

/* Opens the log. Returns -1 when that fails. errno is EWOULDBLOCK when another cluster writes
 * the log. */
static int open_log(const char *path)
{
    struct stat st;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
        st.st_uid == geteuid() && ftruncate(fd, 0) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Makes the log. In a folder that other users may write to, their files are refused (open_log). */
static enum status make_log(const char *name, struct up_detach *d, int *fd, struct error *err)
{
    char folder[3000];
    bool has_state = state_folder(folder, sizeof folder);
    const char *prefix = has_state ? "" : "cox-up-";
    if (!has_state)
        snprintf(folder, sizeof folder, "%.2900s", local_cluster_folder());
    snprintf(d->log_file, sizeof d->log_file, "%s/%s%s.log", folder, prefix, name);
    *fd = open_log(d->log_file);
    if (*fd < 0) { /* a cluster with this name runs with another TMPDIR and has locked the log */
        snprintf(d->log_file, sizeof d->log_file, "%s/%s%s.%d.log", folder, prefix, name,
                 (int)getpid());
        *fd = open_log(d->log_file);
    }
    if (*fd >= 0)
        return STATUS_OK;
    return error_set(
        err, STATUS_IO,
        "--detach: cannot open the log %s: %s. Set XDG_STATE_HOME or TMPDIR to another folder",
        d->log_file, strerror(errno));
}

void up_detach_logged(struct up_detach *d, unsigned long long n)
{
    char old[sizeof d->log_file + 2];
    d->n_logged += n;
    if (d->log_file[0] == '\0' || d->n_logged < LOG_MAX_BYTES)
        return;
    d->n_logged = 0;
    snprintf(old, sizeof old, "%s.1", d->log_file);
    if (rename(d->log_file, old) != 0)
        return;
    int fd = open_log(d->log_file);
    if (fd < 0)
        return; /* the output stays in the old log */
    (void)dup2(fd, STDOUT_FILENO);
    (void)dup2(fd, STDERR_FILENO);
    close(fd);
}

/* ---- the typed command ---- */

static volatile sig_atomic_t n_interrupts;

static void on_interrupt(int signum)
{
    (void)signum;
    n_interrupts++;
}

static bool write_piece(const char *bytes, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t w = write(STDERR_FILENO, bytes + done, n - done);
        if (w < 0 && errno != EINTR)
            return false;
        done += w > 0 ? (size_t)w : 0;
    }
    return true;
}

/* Copies the cluster's output to stderr. Returns true when the output ended with READY. */
static bool show(int fd, pid_t cluster)
{
    char piece[PIECE];
    sig_atomic_t n_sent = 0;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        /* a signal just before poll() is detected after LOOK_MS */
        bool came = poll(&p, 1, LOOK_MS) > 0;
        if (n_interrupts > n_sent) { /* the second signal ends the cluster at once */
            n_sent = n_interrupts;
            (void)kill(cluster, SIGTERM);
        }
        ssize_t n = came ? read(fd, piece, sizeof piece) : -1;
        if (n < 0 && (!came || errno == EINTR))
            continue;
        if (n <= 0)
            return false;
        bool is_ready = piece[n - 1] == READY;
        (void)write_piece(piece, (size_t)n - is_ready);
        if (is_ready)
            return true;
    }
}

static bool has_log(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && st.st_size > 0;
}

static int wait_for_start(const char *command, int fd, pid_t cluster, const struct up_detach *d)
{
    struct sigaction sa = {.sa_handler = on_interrupt};
    int status = 0;
    (void)sigaction(SIGINT, &sa, NULL);
    (void)sigaction(SIGTERM, &sa, NULL);
    (void)sigaction(SIGHUP, &sa, NULL);
    if (show(fd, cluster))
        return EXIT_FINE;
    while (waitpid(cluster, &status, 0) < 0 && errno == EINTR)
        continue;
    if (n_interrupts > 0)
        fprintf(stderr, "cox %s: the start was interrupted, so the cluster was stopped\n", command);
    else if (WIFSIGNALED(status))
        fprintf(stderr, "cox %s: the cluster was killed by signal %d (%s). See its log: %s\n",
                command, WTERMSIG(status), strsignal(WTERMSIG(status)), d->log_file);
    else if (has_log(d->log_file))
        fprintf(stderr, "cox %s: the cluster did not start. See its log: %s\n", command,
                d->log_file);
    if (n_interrupts > 0 || WIFSIGNALED(status) || WEXITSTATUS(status) == EXIT_FINE)
        return EXIT_FAILED;
    return WEXITSTATUS(status);
}

enum status up_detach(const char *command, const char *name, struct up_detach *d,
                      enum up_side *side, int *exit_code, struct error *err)
{
    int ends[2], log_fd;
    *side = UP_SIDE_CLUSTER;
    TRY(make_log(name, d, &log_fd, err));
    if (pipe2(ends, O_CLOEXEC) != 0) {
        close(log_fd);
        return error_set(err, STATUS_LIMIT, "--detach: cannot create a pipe: %s", strerror(errno));
    }
    fflush(NULL);
    pid_t cluster = fork();
    if (cluster < 0) {
        close(log_fd);
        close(ends[0]);
        close(ends[1]);
        return error_set(err, STATUS_LIMIT, "--detach: cannot start a process: %s",
                         strerror(errno));
    }
    if (cluster > 0) {
        close(log_fd);
        close(ends[1]);
        *side = UP_SIDE_TYPED;
        *exit_code = wait_for_start(command, ends[0], cluster, d);
        close(ends[0]);
        return STATUS_OK;
    }
    close(ends[0]);
    d->fd = ends[1];
    (void)setsid();
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null_fd >= 0)
        (void)dup2(null_fd, STDIN_FILENO);
    if (null_fd >= 0)
        close(null_fd);
    d->log_fd = log_fd;
    return STATUS_OK;
}

void up_detach_init(struct up_detach *d)
{
    *d = (struct up_detach){.fd = -1, .log_fd = -1};
}

void up_detach_begin_log(struct up_detach *d)
{
    if (d->log_fd < 0)
        return;
    fflush(NULL);
    (void)dup2(d->log_fd, STDOUT_FILENO);
    (void)dup2(d->log_fd, STDERR_FILENO);
    close(d->log_fd); /* stdout and stderr are copies of log_fd and keep the lock */
    d->log_fd = -1;
}

void up_detach_ready(struct up_detach *d)
{
    const char ready = READY;
    if (d->fd < 0)
        return;
    (void)!write(d->fd, &ready, 1);
    close(d->fd);
    d->fd = -1;
}
