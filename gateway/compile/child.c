/* Runs the parent of compiles and the children that it forks. The parent is one thread that
 * waits for orders and for the end of its children. It opens the tokenizer, and builds the
 * vocabulary at the first grammar. A child reads one job from its socket, runs the job and
 * answers on the socket.
 * Invariants: only a child reads bytes of a client. A child has no descriptor but its socket and
 * can open no other. A child is killed when its parent dies. The parent is killed when the
 * gateway dies. It also sees the gateway's death at the end of the control socket. */
#include "gateway/compile/child.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/host/kernel.h"

enum {
    CONTROL_FD = 3,
    MAX_CHILDREN = 64,
    NICENESS = 10,
    HEAVY_NICENESS = 19,
    /* `STACK_MIB` is the stack of the thread that compiles (text/src/grammar/grammar.rs,
     * STACK_BYTES). Untouched pages use no memory. */
    STACK_MIB = 512,
    HARD_CPU_S = 2, /* seconds of processor time between SIGXCPU and SIGKILL */
};

struct child {
    int pid; /* process id of the child; 0 = this entry is free */
    int fd;  /* socket of the job, used to report how the child died */
    uint64_t id;
};

struct parent {
    const char *tokenizer_path, *cache_dir;
    uint64_t memory_mib, cpu_s;
    /* vocabulary of the tokenizer; NULL = not built yet, or failed (`why` is set) */
    struct text_vocabulary *vocabulary;
    char why[TEXT_ERR_MAX];
    int signals;
    struct child children[MAX_CHILDREN];
};

/* ---- in a child ---- */

static uint32_t microseconds(const struct rusage *u)
{
    const int64_t us = (u->ru_utime.tv_sec + u->ru_stime.tv_sec) * INT64_C(1000000) +
                       u->ru_utime.tv_usec + u->ru_stime.tv_usec;
    return us < 0 ? 0 : us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
}

static void put_words(struct strbuf *out, const char *words)
{
    struct str s = str_from(words);
    s.len = str_utf8_valid(s); /* the text may end within a character */
    strbuf_append_str(out, s);
}

static void render(const struct compile_frame *job, struct strbuf *out,
                   struct compile_frame *verdict, char why[TEXT_ERR_MAX])
{
    struct text_template *t = NULL;
    char *rendered = NULL;
    size_t len = 0;
    int code = text_template_new(job->text.ptr, job->text.len, &t, why);
    verdict->number = code != TEXT_OK;
    if (code == TEXT_OK)
        code = text_template_render(t, job->more.ptr, job->more.len, job->number, 0, &rendered,
                                    &len, why);
    text_template_free(t);
    if (code == TEXT_OK && len > COMPILE_MAX_RENDERED) {
        snprintf(why, TEXT_ERR_MAX, "the rendered text is too large: it has %zu bytes", len);
        code = TEXT_LIMIT;
    }
    if (code == TEXT_OK)
        strbuf_append(out, rendered, len);
    text_free(rendered);
    verdict->code = code;
}

void compile_run(const struct text_vocabulary *v, const struct compile_frame *job,
                 struct strbuf *out, struct compile_frame *verdict)
{
    char why[TEXT_ERR_MAX] = "";
    struct text_grammar *g = NULL;
    *verdict = (struct compile_frame){.what = COMPILE_VERDICT};
    if (job->what == COMPILE_TEMPLATE) {
        render(job, out, verdict, why);
    } else {
        verdict->code = text_grammar_compile(v, (enum text_grammar_kind)job->code, job->text.ptr,
                                             job->text.len, &g, why);
        text_grammar_free(g);
    }
    if (verdict->code != TEXT_OK)
        put_words(out, why);
    verdict->text = strbuf_str(out);
}

static bool read_job(int fd, struct compile_reader *r)
{
    static char piece[1 << 16];
    enum status s = STATUS_AGAIN;
    while (s == STATUS_AGAIN) {
        size_t n_used;
        ssize_t n = recv(fd, piece, sizeof piece, 0);
        if (n <= 0)
            return false;
        s = compile_reader_feed(r, (struct str){piece, (size_t)n}, &n_used);
    }
    return s == STATUS_OK;
}

static bool send_all(int fd, const void *bytes, size_t n)
{
    const char *at = bytes;
    while (n > 0) {
        ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        at += sent;
        n -= (size_t)sent;
    }
    return true;
}

/* Returns the MiB of addresses that the process has mapped. */
static uint64_t mapped_mib(void)
{
    char text[64] = "";
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        close(fd);
    return n > 0 ? strtoull(text, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE) >> 20 : 0;
}

static void limit(int what, uint64_t soft, uint64_t hard)
{
    const struct rlimit l = {.rlim_cur = soft, .rlim_max = hard};
    if (setrlimit(what, &l) != 0)
        _exit(1); /* a missing verdict is better than a process without limits */
}

/* Sets the limits of the process. The number of processes has no limit here: each thread counts
 * as one, and so do the user's other processes. */
static void limit_self(const struct parent *p, bool is_grammar)
{
    const uint64_t mib = mapped_mib() + (is_grammar ? STACK_MIB : 0) + p->memory_mib;
#ifndef __SANITIZE_THREAD__ /* the sanitizer's shadow memory takes addresses at run time */
    limit(RLIMIT_AS, mib << 20, mib << 20);
#else
    (void)mib;
#endif
    limit(RLIMIT_CPU, p->cpu_s, p->cpu_s + HARD_CPU_S);
    limit(RLIMIT_CORE, 0, 0);
    limit(RLIMIT_FSIZE, 0, 0);
    limit(RLIMIT_NOFILE, 0, 0); /* the process can open no file, socket or pipe from here on */
}

/* Isolates the process: it dies with its parent, gains no privileges, and keeps no descriptor
 * but the socket of its job. */
static void shed(int socket_fd, int parent_pid, int niceness)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_NAME, "cox-compile");
    /* building the vocabulary keeps the normal priority */
    (void)setpriority(PRIO_PROCESS, 0, niceness);
    if (getppid() != parent_pid)
        _exit(1);
    dup2(socket_fd, CONTROL_FD); /* dup2 also closes the control socket */
    kernel_close_range(CONTROL_FD + 1, ~0u);
    for (int fd = 0; fd < CONTROL_FD; fd++)
        close(fd);
}

static _Noreturn void run_child(const struct parent *p, const struct compile_order *o,
                                int socket_fd, int parent_pid)
{
    struct compile_reader job;
    struct compile_frame answer = {.what = COMPILE_VERDICT, .code = TEXT_INTERNAL};
    struct strbuf out;
    unsigned char header[COMPILE_HEADER_BYTES];
    struct rusage used = {0};
    shed(socket_fd, parent_pid, o->is_heavy ? HEAVY_NICENESS : NICENESS);
    limit_self(p, o->wants_vocabulary);
    compile_reader_init(&job, false);
    strbuf_init(&out, 0);
    if (!read_job(CONTROL_FD, &job))
        _exit(1);
    if (job.frame.what == COMPILE_GRAMMAR && !p->vocabulary) {
        put_words(&out, p->why);
        answer.text = strbuf_str(&out);
    } else {
        text_compile_may_end_process(COMPILE_EXIT_LIMIT);
        compile_run(p->vocabulary, &job.frame, &out, &answer);
    }
    (void)getrusage(RUSAGE_SELF, &used);
    answer.cpu_us = microseconds(&used);
    compile_frame_header(&answer, header);
    const bool said = send_all(CONTROL_FD, header, sizeof header) &&
                      send_all(CONTROL_FD, answer.text.ptr, answer.text.len);
    _exit(said ? 0 : 1);
}

/* ---- the parent of compiles ---- */

static void make_vocabulary(struct parent *p)
{
    struct text_tokenizer *t = NULL;
    if (p->vocabulary)
        return;
    if (text_tokenizer_open(p->tokenizer_path, p->cache_dir[0] ? p->cache_dir : NULL, &t, p->why) ==
            TEXT_OK &&
        text_vocabulary_new(t, &p->vocabulary, p->why) != TEXT_OK)
        p->vocabulary = NULL;
    text_tokenizer_free(t);
}

static void say(int fd, const struct compile_frame *f)
{
    char bytes[COMPILE_HEADER_BYTES + TEXT_ERR_MAX];
    compile_frame_header(f, (unsigned char *)bytes);
    if (f->text.len > 0)
        memcpy(bytes + COMPILE_HEADER_BYTES, f->text.ptr, f->text.len);
    (void)!send(fd, bytes, COMPILE_HEADER_BYTES + f->text.len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Reports how a child ended, for a child that could not report its own end. */
static void say_end(int fd, int how, const struct rusage *used)
{
    const uint32_t cpu_us = microseconds(used);
    const struct compile_frame limit = {.what = COMPILE_VERDICT,
                                        .code = TEXT_LIMIT,
                                        .cpu_us = cpu_us,
                                        .text =
                                            STR("it needs more memory or work than one grammar may "
                                                "use. Make it smaller, or combine fewer patterns")},
                               died = {.what = COMPILE_DIED,
                                       .code = WIFSIGNALED(how) ? WTERMSIG(how) : 0,
                                       .cpu_us = cpu_us};
    if (WIFEXITED(how) && WEXITSTATUS(how) == COMPILE_EXIT_LIMIT)
        say(fd, &limit);
    else if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
        say(fd, &died);
}

static void start_child(struct parent *p, const struct compile_order *o, int owned_fd)
{
    struct child *c = p->children;
    while (c < p->children + MAX_CHILDREN && c->pid)
        c++;
    if (o->wants_vocabulary)
        make_vocabulary(p);
    const int me = getpid();
    const int pid = c < p->children + MAX_CHILDREN ? fork() : -1;
    if (pid == 0)
        run_child(p, o, owned_fd, me);
    if (pid < 0) { /* the gateway detects from the closed socket that there is no process */
        close(owned_fd);
        return;
    }
    *c = (struct child){.pid = pid, .fd = owned_fd, .id = o->id};
}

/* Kills a child. The parent has not waited for it yet, so no other process can have its pid. */
static void kill_child(const struct parent *p, uint64_t id)
{
    for (const struct child *c = p->children; c < p->children + MAX_CHILDREN; c++)
        if (c->pid && c->id == id)
            kill(c->pid, SIGKILL);
}

static void reap(struct parent *p)
{
    struct signalfd_siginfo info;
    (void)!read(p->signals, &info, sizeof info);
    for (struct child *c = p->children; c < p->children + MAX_CHILDREN; c++) {
        int how;
        struct rusage used;
        if (!c->pid || wait4(c->pid, &how, WNOHANG, &used) != c->pid)
            continue;
        say_end(c->fd, how, &used);
        close(c->fd);
        *c = (struct child){0};
    }
}

/* Receives one order of the gateway and carries it out. Returns false when the gateway has
 * closed the control socket. */
static bool take_order(struct parent *p)
{
    struct compile_order o;
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {&o, sizeof o};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = CMSG_LEN(sizeof(int))};
    const ssize_t n = recvmsg(CONTROL_FD, &m, MSG_CMSG_CLOEXEC);
    const struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
    int fd = -1;
    if (n < 0)
        return errno == EINTR || errno == EAGAIN;
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(c), sizeof fd);
    if (n == sizeof o && o.what == COMPILE_ORDER_RUN && fd >= 0)
        start_child(p, &o, fd);
    else if (fd >= 0)
        close(fd);
    if (n == sizeof o && o.what == COMPILE_ORDER_KILL)
        kill_child(p, o.id);
    return n > 0;
}

/* Makes the kernel kill this process and its children before the gateway when memory is short. */
static void offer_to_oom_killer(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)!write(fd, "1000", 4);
    close(fd);
}

static int watch_children(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_SETMASK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Ignores Ctrl-C of a terminal, and SIGTERM that a supervisor sends to all processes of a
 * service. The gateway handles these signals and may need the compile processes for its last
 * answers. */
static void leave_signals_to_gateway(void)
{
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
}

int compile_child_main(int argc, char **argv)
{
    if (argc != 6)
        return 2;
    struct parent p = {.tokenizer_path = argv[2],
                       .cache_dir = argv[3],
                       .memory_mib = strtoull(argv[4], NULL, 10),
                       .cpu_s = strtoull(argv[5], NULL, 10)};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "cox-compiles");
    leave_signals_to_gateway();
    kernel_close_range(CONTROL_FD + 1, ~0u);
    offer_to_oom_killer();
    (void)mallopt(M_ARENA_MAX, 1); /* a second arena would reserve addresses, which are limited */
    p.signals = watch_children();
    struct pollfd fds[] = {{.fd = CONTROL_FD, .events = POLLIN},
                           {.fd = p.signals, .events = POLLIN}};
    bool goes_on = p.signals >= 0;
    while (goes_on) {
        if (poll(fds, 2, -1) < 0) {
            goes_on = errno == EINTR;
            continue;
        }
        reap(&p);
        if (fds[0].revents)
            goes_on = take_order(&p);
    }
    for (const struct child *c = p.children; c < p.children + MAX_CHILDREN; c++)
        if (c->pid)
            kill(c->pid, SIGKILL);
    text_vocabulary_free(p.vocabulary);
    return 0;
}
