/* Runs the gateway's side of compile processes. A pool thread calls `compilers_run`, which
 * requests a process from the parent of compiles. It sends the job over a socket and waits for
 * the verdict until the deadline.
 * Answers of a process are checked like input of a client. `lock` guards the control socket and
 * the debts only, so jobs run in parallel. When the parent has died, the next job starts it
 * again. */
#include "gateway/compile/compilers.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "gateway/compile/child.h"
#include "gateway/compile/debts.h"

enum {
    CONTROL_FD = 3, /* number of the control descriptor in the parent of compiles */
    TICK_MS = 100,  /* interval at which a job checks whether it was dropped */
    END_WAIT_MS = 2000,
};

struct compilers {
    struct compiler_options o;
    char *tokenizer_path, *cache_dir;
    atomic_bool stopped;
    pthread_mutex_t lock; /* guards the control socket and the fields below */
    int control;          /* control socket; -1 = no parent of compiles */
    int pid;
    uint64_t last_id;
    struct compile_debts debts;
    struct metric *outcomes[COMPILE_OUTCOME_COUNT], *seconds, *starts;
};

struct run { /* state of one job in one process */
    struct compilers *c;
    const struct compile_frame *job;
    const struct compile_client *client;
    uint64_t id, begin_ns, deadline_ns;
    int fd;
    unsigned char header[COMPILE_HEADER_BYTES];
    size_t n_sent;
    struct compile_reader reader;
};

bool compile_met_limit(enum compile_outcome o)
{
    return o == COMPILE_OVER_MEMORY || o == COMPILE_OVER_TIME || o == COMPILE_CRASHED;
}

const char *compile_outcome_words(enum compile_outcome o)
{
    static const char *const words[COMPILE_OUTCOME_COUNT] = {
        [COMPILE_DONE] = "it was compiled",
        [COMPILE_OVER_MEMORY] = "the compile process reached its memory limit and was ended",
        [COMPILE_OVER_TIME] = "the compile process reached its time limit and was ended",
        [COMPILE_CRASHED] = "the compiler crashed",
        [COMPILE_LOST] = "the compile process ended without an answer",
        [COMPILE_UNAVAILABLE] = "no compile process could be started",
        [COMPILE_CANCELLED] = "the client no longer waits for it",
    };
    return words[o];
}

/* ---- the parent of compiles ---- */

/* Copies the variables that a child needs to find libraries, and the sanitizers' options. No
 * secrets are copied. */
static void copy_environment(char *out[], size_t size)
{
    extern char **environ;
    static const char *const names[] = {
        "LD_LIBRARY_PATH=", "ASAN_OPTIONS=", "LSAN_OPTIONS=", "UBSAN_OPTIONS=", "TSAN_OPTIONS="};
    size_t n = 0;
    for (char **e = environ; e && *e; e++)
        for (size_t i = 0; i < sizeof names / sizeof *names && n + 1 < size; i++)
            if (strncmp(*e, names[i], strlen(names[i])) == 0)
                out[n++] = *e;
    out[n] = NULL;
}

static int spawn(struct compilers *c, int childs_end)
{
    char command[] = COMPILE_CHILD_COMMAND, name[] = "cox-gateway", memory[24], cpu[24],
         *environment[8];
    char *argv[] = {name, command, c->tokenizer_path, c->cache_dir, memory, cpu, NULL};
    posix_spawn_file_actions_t actions;
    int pid = -1;
    snprintf(memory, sizeof memory, "%u", c->o.memory_mib);
    snprintf(cpu, sizeof cpu, "%u", c->o.cpu_s);
    copy_environment(environment, sizeof environment / sizeof *environment);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, childs_end, CONTROL_FD);
    const int e = posix_spawn(&pid, c->o.program ? c->o.program : "/proc/self/exe", &actions, NULL,
                              argv, environment);
    posix_spawn_file_actions_destroy(&actions);
    if (e)
        log_error("compile_processes_not_started", "error=%s", log_quote(strerror(e)));
    return e ? -1 : pid;
}

/* Returns a descriptor above CONTROL_FD. If the number were already CONTROL_FD, dup2 would do
 * nothing and exec would close the descriptor. */
static int moved(int fd)
{
    const int high = fd > CONTROL_FD ? fd : fcntl(fd, F_DUPFD_CLOEXEC, CONTROL_FD + 1);
    if (high != fd)
        close(fd);
    return high;
}

static void close_parent(struct compilers *c)
{
    if (c->control < 0)
        return;
    close(c->control);
    c->control = -1;
    /* the gateway has not waited for the parent yet, so its pid is still valid; its children die
     * too */
    kill(c->pid, SIGKILL);
    while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

static bool open_parent(struct compilers *c)
{
    int ends[2];
    if (c->control >= 0)
        return true;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return false;
    ends[1] = moved(ends[1]);
    c->pid = ends[1] >= 0 ? spawn(c, ends[1]) : -1;
    if (ends[1] >= 0)
        close(ends[1]);
    if (c->pid < 0) {
        close(ends[0]);
        return false;
    }
    c->control = ends[0];
    if (c->starts)
        metric_add(c->starts, 1);
    log_info("compile_processes_started", "pid=%d", c->pid);
    return true;
}

static bool send_order(const struct compilers *c, const struct compile_order *o, int fd)
{
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct compile_order copy = *o;
    struct iovec iov = {&copy, sizeof copy};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd >= 0) {
        memset(&control, 0, sizeof control);
        m.msg_control = &control;
        m.msg_controllen = CMSG_SPACE(sizeof fd);
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(h), &fd, sizeof fd);
    }
    return sendmsg(c->control, &m, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof copy;
}

/* Sends the socket of the job to the parent of compiles. Starts the parent first when there is
 * none or it has died. The caller holds the lock. */
static bool order_run(struct run *r, int childs_end)
{
    struct compilers *c = r->c;
    for (int i = 0; i < 2; i++) {
        const struct compile_order o = {
            .what = COMPILE_ORDER_RUN,
            .wants_vocabulary = r->job->what == COMPILE_GRAMMAR,
            .is_heavy = compile_debts_is_heavy(&c->debts, r->client->tenant, r->begin_ns),
            .id = ++c->last_id};
        r->id = o.id;
        if (!open_parent(c))
            return false;
        if (send_order(c, &o, childs_end))
            return true;
        log_warn("compile_processes_gone", "pid=%d", c->pid);
        close_parent(c);
    }
    return false;
}

static bool begin(struct run *r)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return false;
    pthread_mutex_lock(&r->c->lock);
    const bool ok = order_run(r, ends[1]);
    pthread_mutex_unlock(&r->c->lock);
    close(ends[1]);
    if (!ok)
        close(ends[0]);
    r->fd = ok ? ends[0] : -1;
    return ok;
}

/* Kills the process of a job. With `insists`, it also kills the parent of compiles when the
 * parent does not end the process. */
static void kill_run(struct run *r, bool insists)
{
    const struct compile_order o = {.what = COMPILE_ORDER_KILL, .id = r->id};
    struct pollfd p = {.fd = r->fd};
    pthread_mutex_lock(&r->c->lock);
    const bool sent = r->c->control >= 0 && send_order(r->c, &o, -1);
    pthread_mutex_unlock(&r->c->lock);
    /* POLLHUP means that the process has closed its last descriptor of the socket. */
    if (!insists || (sent && poll(&p, 1, END_WAIT_MS) == 1))
        return;
    pthread_mutex_lock(&r->c->lock);
    close_parent(r->c);
    pthread_mutex_unlock(&r->c->lock);
}

/* ---- a job's socket ---- */

static struct str part(const struct run *r, size_t *begin_at)
{
    const struct str parts[] = {
        {(const char *)r->header, sizeof r->header}, r->job->text, r->job->more};
    size_t at = r->n_sent;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (at < parts[i].len) {
            *begin_at = at;
            return parts[i];
        }
        at -= parts[i].len;
    }
    *begin_at = 0;
    return (struct str){"", 0};
}

static bool send_some(struct run *r)
{
    for (;;) {
        size_t at;
        const struct str s = part(r, &at);
        if (s.len == 0)
            return true;
        const ssize_t n = send(r->fd, s.ptr + at, s.len - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        r->n_sent += (size_t)n;
    }
}

/* Reads the bytes that have arrived. Returns STATUS_AGAIN when there are no more bytes yet, and
 * STATUS_CLOSED when no more bytes will arrive. */
static enum status read_some(struct run *r)
{
    char piece[1 << 14];
    for (;;) {
        size_t n_used;
        const ssize_t n = recv(r->fd, piece, sizeof piece, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return STATUS_AGAIN;
        if (n <= 0)
            return STATUS_CLOSED;
        const enum status s =
            compile_reader_feed(&r->reader, (struct str){piece, (size_t)n}, &n_used);
        if (s != STATUS_AGAIN)
            return s;
    }
}

/* Sends the job and waits for the answer. A failed send is not an error in this function: the
 * process has died or will still answer, and the next read shows which is true. */
static enum status wait_answer(struct run *r)
{
    bool sends = true;
    for (;;) {
        size_t at;
        sends = sends && part(r, &at).len > 0;
        struct pollfd p = {.fd = r->fd, .events = (short)(sends ? POLLIN | POLLOUT : POLLIN)};
        if (atomic_load(&r->c->stopped) || (r->client->dropped && atomic_load(r->client->dropped)))
            return STATUS_DENIED;
        if (clock_mono_ns() > r->deadline_ns)
            return STATUS_TIMEOUT;
        if (poll(&p, 1, TICK_MS) <= 0)
            continue;
        if (p.revents & POLLOUT)
            sends = send_some(r);
        if (!(p.revents & (POLLIN | POLLHUP | POLLERR)))
            continue;
        const enum status s = read_some(r);
        if (s != STATUS_AGAIN)
            return s;
    }
}

/* Derives the outcome from the signal that ended a process. SIGABRT means that an allocation
 * failed or the stack was full. SIGXCPU means that the limit of processor time was reached.
 * SIGKILL is no verdict on the source, because the kernel sends it when the machine is out of
 * memory. */
static enum compile_outcome outcome_of_death(int signum)
{
    switch (signum) {
    case SIGABRT:
        return COMPILE_OVER_MEMORY;
    case SIGXCPU:
        return COMPILE_OVER_TIME;
    case SIGSEGV:
    case SIGBUS:
    case SIGILL:
    case SIGFPE:
    case SIGTRAP:
        return COMPILE_CRASHED;
    default:
        return COMPILE_LOST;
    }
}

/* Charges the job's processor time to the tenant. A killed process did not report its time, so
 * the job's whole duration counts, up to the limit. */
static void charge(struct run *r, bool has_said)
{
    const uint64_t now_ns = clock_mono_ns(), most_ns = r->c->o.cpu_s * NS_PER_S,
                   took_ns = now_ns - r->begin_ns;
    uint64_t ns = took_ns < most_ns ? took_ns : most_ns;
    if (has_said)
        ns = r->reader.frame.cpu_us * NS_PER_US;
    pthread_mutex_lock(&r->c->lock);
    compile_debts_add(&r->c->debts, r->client->tenant, ns, now_ns);
    pthread_mutex_unlock(&r->c->lock);
}

static enum compile_outcome run_once(struct run *r, struct compile_result *out)
{
    enum compile_outcome outcome = COMPILE_LOST;
    if (!begin(r))
        return COMPILE_UNAVAILABLE;
    compile_reader_init(&r->reader, true);
    const enum status s = wait_answer(r);
    if (s == STATUS_OK && r->reader.frame.what == COMPILE_VERDICT) {
        outcome = COMPILE_DONE;
        out->status = r->reader.frame.code;
        out->unread = r->reader.frame.number == 1;
        strbuf_append_str(&out->text, r->reader.frame.text);
    } else if (s == STATUS_OK) {
        outcome = outcome_of_death(r->reader.frame.code);
    } else if (s == STATUS_TIMEOUT) {
        outcome = COMPILE_OVER_TIME;
    } else if (s == STATUS_DENIED) {
        outcome = COMPILE_CANCELLED;
    }
    charge(r, s == STATUS_OK);
    if (s != STATUS_OK && s != STATUS_CLOSED)
        kill_run(r, s == STATUS_TIMEOUT);
    close(r->fd);
    compile_reader_fini(&r->reader);
    return outcome;
}

void compilers_run(struct compilers *c, const struct compile_frame *job,
                   const struct compile_client *client, struct compile_result *out)
{
    const uint64_t begin_ns = clock_mono_ns();
    *out = (struct compile_result){.outcome = COMPILE_CANCELLED};
    strbuf_init(&out->text, COMPILE_MAX_RENDERED + 1);
    for (int i = 0; i < 2 && !atomic_load(&c->stopped); i++) {
        struct run r = {.c = c,
                        .job = job,
                        .client = client,
                        .begin_ns = clock_mono_ns(),
                        .deadline_ns = begin_ns + c->o.wall_s * NS_PER_S};
        compile_frame_header(job, r.header);
        out->outcome = run_once(&r, out);
        if (out->outcome != COMPILE_LOST)
            break;
    }
    if (out->outcome != COMPILE_DONE && out->outcome != COMPILE_CANCELLED)
        log_warn("compile_without_verdict", "kind=%d bytes=%zu reason=%s", (int)job->what,
                 job->text.len, log_quote(compile_outcome_words(out->outcome)));
    if (!c->seconds)
        return;
    metric_add(c->outcomes[out->outcome], 1);
    metric_observe(c->seconds, (double)(clock_mono_ns() - begin_ns) / 1e9);
}

/* ---- start and end ---- */

static void init_metrics(struct compilers *c, struct metrics *m)
{
    static const char *const labels[COMPILE_OUTCOME_COUNT] = {
        "outcome=\"verdict\"",  "outcome=\"over_memory\"", "outcome=\"over_time\"",
        "outcome=\"crashed\"",  "outcome=\"lost\"",        "outcome=\"unavailable\"",
        "outcome=\"cancelled\""};
    static const double bounds[] = {0.002, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 120};
    for (int i = 0; i < COMPILE_OUTCOME_COUNT; i++)
        c->outcomes[i] =
            metrics_counter(m, "coxswain_gateway_compiles_total", labels[i],
                            "Grammars and templates that went to a compile process, by outcome");
    c->seconds = metrics_histogram(m, "coxswain_gateway_compile_seconds", "",
                                   "Time of one compile, from its process to its verdict", bounds,
                                   sizeof bounds / sizeof *bounds);
    c->starts = metrics_counter(m, "coxswain_gateway_compile_process_starts_total", "",
                                "Starts of the parent of the compile processes");
}

struct compilers *compilers_new(const struct compiler_options *o)
{
    struct compilers *c = mem_zalloc(sizeof *c);
    c->o = *o;
    c->tokenizer_path = mem_strdup(o->tokenizer_path);
    c->cache_dir = mem_strdup(o->cache_dir ? o->cache_dir : "");
    c->control = -1;
    pthread_mutex_init(&c->lock, NULL);
    if (o->metrics)
        init_metrics(c, o->metrics);
    return c;
}

void compilers_start(struct compilers *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    (void)open_parent(c);
    pthread_mutex_unlock(&c->lock);
}

void compilers_stop(struct compilers *c)
{
    if (c)
        atomic_store(&c->stopped, true);
}

void compilers_free(struct compilers *c)
{
    if (!c)
        return;
    close_parent(c);
    pthread_mutex_destroy(&c->lock);
    mem_free(c->tokenizer_path);
    mem_free(c->cache_dir);
    mem_free(c);
}
