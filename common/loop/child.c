/* Runs the child processes of `cox up`. loop_child_spawn forks and execs by hand, since uv_spawn
 * cannot set PR_SET_PDEATHSIG. With that setting the kernel kills the children however this
 * process ends, also by SIGKILL, so no head or worker is left behind with open ports. The signal
 * is tied to the thread that forked: the loop's thread, which lives as long as the process. Only
 * async-signal-safe calls are made between fork and exec.
 *
 * SIGCHLD and a waitpid for the child's own pid report the end of a child. No other code in the
 * program calls wait. The pid belongs to the child until then, so loop_child_kill never hits
 * another process. Bytes left in the pipes are read before on_exit is called. */
#include "common/loop/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/loop/uv.h"

enum { LINE_MAX_BYTES = 16 * 1024, DRAIN_MAX_BYTES = 1 << 20 };

struct child_pipe {
    uv_poll_t poll;
    struct loop_child *child;
    bool is_open, is_stderr;
    int fd;
    size_t n;
    char line[LINE_MAX_BYTES];
};

struct loop_child {
    struct loop_child *next, **prev;
    /* options of the child; argv and env are cleared after the start */
    struct loop_child_options o;
    struct child_pipe *pipes[2]; /* pipes of stdout and stderr; NULL when inherited */
    int pid;
    unsigned open_handles;
    /* `exited`: the process has ended; `released`: loop_child_free was called */
    bool exited, released;
};

/* `children` lists the children of one loop. The list exists from the first child until the loop
 * is freed. */
struct children {
    struct loop_child *first;
};

static void maybe_free(struct loop_child *c)
{
    if (c->open_handles == 0 && c->exited && c->released) {
        *c->prev = c->next;
        if (c->next)
            c->next->prev = c->prev;
        mem_free(c->pipes[0]);
        mem_free(c->pipes[1]);
        mem_free(c);
    }
}

static void emit(struct child_pipe *p)
{
    struct loop_child *c = p->child;
    size_t n = p->n;
    p->n = 0;
    p->line[n] = '\0';
    if (c->o.on_line && !c->released)
        c->o.on_line(c->o.ctx, c, p->line, n, p->is_stderr);
}

static void on_bytes(struct child_pipe *p, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '\n') {
            emit(p);
            continue;
        }
        if (p->n == LINE_MAX_BYTES - 1)
            emit(p); /* a line longer than the buffer is reported in pieces */
        p->line[p->n++] = bytes[i];
    }
}

static void on_pipe_closed(uv_handle_t *h)
{
    struct child_pipe *p = h->data;
    close(p->fd);
    p->child->open_handles--;
    maybe_free(p->child);
}

static void pipe_close(struct child_pipe *p)
{
    if (!p || !p->is_open)
        return;
    p->is_open = false;
    if (p->n)
        emit(p);
    uv_close((uv_handle_t *)&p->poll, on_pipe_closed);
}

/* Reads a child's pipe in pieces of up to 16 KiB, until `max` bytes have been read. Returns
 * false at the end of the pipe. */
static bool pipe_read(struct child_pipe *p, size_t max)
{
    char buf[16384];
    while (max > 0) {
        ssize_t n = read(p->fd, buf, sizeof buf);
        if (n > 0) {
            on_bytes(p, buf, (size_t)n);
            max -= (size_t)n < max ? (size_t)n : max;
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else {
            return n < 0 && errno == EAGAIN;
        }
    }
    return true;
}

static void on_readable(uv_poll_t *h, int status, int events)
{
    struct child_pipe *p = h->data;
    /* The loop reads at most 64 KiB of a pipe a turn, so that a child that writes without end
     * does not starve the others. */
    if (status < 0 || !pipe_read(p, 65536))
        pipe_close(p);
}

static void on_child_end(struct loop_child *c, int wait_status)
{
    c->exited = true;
    for (int i = 0; i < 2; i++)
        if (c->pipes[i] && c->pipes[i]->is_open) {
            pipe_read(c->pipes[i], DRAIN_MAX_BYTES);
            pipe_close(c->pipes[i]);
        }
    if (c->o.on_exit && !c->released)
        c->o.on_exit(c->o.ctx, c, WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 0,
                     WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0);
    else
        maybe_free(c); /* the owner has already released the child, or wants no on_exit */
}

/* Handles one child that has ended. Returns false when no child has ended. */
static bool reap_one(struct children *all)
{
    for (struct loop_child *c = all->first; c; c = c->next) {
        int wait_status;
        if (!c->exited && waitpid(c->pid, &wait_status, WNOHANG) == c->pid) {
            on_child_end(c, wait_status);
            return true; /* callbacks may have changed the list, so the caller starts again */
        }
    }
    return false;
}

static void on_sigchld(void *ctx, int signum)
{
    while (reap_one(ctx)) {
    }
}

/* Runs in the child after fork. Reports the errno of a failed exec through the close-on-exec
 * pipe. */
static _Noreturn void run_child(const struct loop_child_options *o, const int out_fds[2],
                                int fail_fd, int parent_pid)
{
    sigset_t none;
    sigemptyset(&none);
    for (int s = 1; s < 32; s++)
        if (s != SIGKILL && s != SIGSTOP)
            signal(s, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent_pid)
        _exit(127); /* the parent died before prctl took effect */
    if (!o->inherit_stdio) {
        /* The child gets a process group of its own, so that Ctrl-C reaches only us. We then end
         * the children in order. */
        setpgid(0, 0);
        int in_fd = o->stdin_fd > 0 ? o->stdin_fd : open("/dev/null", O_RDONLY);
        dup2(in_fd, STDIN_FILENO);
        dup2(out_fds[0], STDOUT_FILENO);
        dup2(out_fds[1], STDERR_FILENO);
        if (in_fd > STDERR_FILENO)
            close(in_fd);
    }
    execvpe(o->argv[0], (char *const *)o->argv, o->env ? (char *const *)o->env : environ);
    int e = errno;
    /* after a failed write the parent still sees exit status 127 */
    if (write(fail_fd, &e, sizeof e) < 0) {
    }
    _exit(127);
}

static void close_both(int fds[2])
{
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* Opens a pipe with descriptors above 2, because dup2 in the child overwrites 0 to 2. */
static bool open_pipe(int fds[2])
{
    if (pipe2(fds, O_CLOEXEC) < 0) {
        fds[0] = fds[1] = -1;
        return false;
    }
    for (int i = 0; i < 2; i++)
        if (fds[i] <= STDERR_FILENO) {
            int high = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
            close(fds[i]);
            fds[i] = high;
        }
    return fds[0] >= 0 && fds[1] >= 0;
}

static void watch(struct loop *l, struct loop_child *c, int i_pipe, int fd)
{
    struct child_pipe *p = mem_zalloc(sizeof *p);
    p->child = c;
    p->fd = fd;
    p->is_stderr = i_pipe == 1;
    p->poll.data = p;
    c->pipes[i_pipe] = p;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    if (uv_poll_init(loop_uv(l), &p->poll, fd)) {
        close(fd);
        return;
    }
    p->is_open = true;
    c->open_handles++;
    uv_poll_start(&p->poll, UV_READABLE, on_readable);
}

static void close_children(void *ctx)
{
    struct children *all = ctx;
    for (struct loop_child *c = all->first, *next; c; c = next) {
        next = c->next;
        c->exited = c->released = true;
        c->next = NULL;
        /* takes the child off the list, which is freed before the pipes close */
        c->prev = &c->next;
        pipe_close(c->pipes[0]);
        pipe_close(c->pipes[1]);
        maybe_free(c);
    }
    mem_free(all);
}

/* Returns the children of a loop, and watches SIGCHLD from the first call on. Returns NULL when
 * SIGCHLD cannot be watched. */
static struct children *children_of(struct loop *l)
{
    struct children *all = loop_find_on_free(l, close_children);
    if (all)
        return all;
    all = mem_zalloc(sizeof *all);
    if (loop_on_signal(l, SIGCHLD, on_sigchld, all) != STATUS_OK) {
        mem_free(all);
        return NULL;
    }
    loop_on_free(l, close_children, all);
    return all;
}

enum status loop_child_spawn(struct loop *l, const struct loop_child_options *o,
                             struct loop_child **out, struct error *err)
{
    int fail[2], outs[2] = {-1, -1}, errs[2] = {-1, -1}, exec_errno = 0, me = getpid();
    struct children *all = children_of(l);
    if (!all)
        return error_set(err, STATUS_IO,
                         "cannot start child processes: installing the handler of SIGCHLD failed");
    bool ok = open_pipe(fail);
    if (ok && !o->inherit_stdio)
        ok = open_pipe(outs) && open_pipe(errs);
    int pid = ok ? fork() : -1;
    if (pid == 0)
        run_child(o, (const int[]){outs[1], errs[1]}, fail[1], me);
    int e = errno;
    if (ok && pid > 0) {
        close(fail[1]);
        fail[1] = -1;
        /* The read waits only a short time: exec closes the pipe, or its errno arrives. */
        if (read(fail[0], &exec_errno, sizeof exec_errno) != sizeof exec_errno)
            exec_errno = 0;
    }
    close_both(fail);
    if (pid < 0 || exec_errno) {
        if (pid > 0)
            waitpid(pid, NULL, 0);
        close_both(outs);
        close_both(errs);
        return error_set(err, exec_errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO,
                         "cannot start %s: %s", o->argv[0], strerror(exec_errno ? exec_errno : e));
    }
    struct loop_child *c = mem_zalloc(sizeof *c);
    c->o = *o;
    c->o.argv = c->o.env = NULL;
    c->pid = pid;
    c->next = all->first;
    c->prev = &all->first;
    if (all->first)
        all->first->prev = &c->next;
    all->first = c;
    if (!o->inherit_stdio) {
        close(outs[1]);
        close(errs[1]);
        watch(l, c, 0, outs[0]);
        watch(l, c, 1, errs[0]);
    }
    *out = c;
    return STATUS_OK;
}

void loop_child_give(struct loop_child *c, const struct loop_child_options *o)
{
    c->o.on_line = o->on_line;
    c->o.on_exit = o->on_exit;
    c->o.ctx = o->ctx;
}

int loop_child_pid(const struct loop_child *c)
{
    return c->pid;
}

void loop_child_kill(struct loop_child *c, int signum)
{
    if (!c->exited)
        kill(c->pid, signum);
}

void loop_child_free(struct loop_child *c)
{
    if (!c || c->released)
        return;
    c->released = true; /* a child that still runs is then read and reaped without callbacks */
    maybe_free(c);
}
