/* Keeps spare worker processes for `cox up`.
 * A kind of spare is the part of a worker's command line that decides where its process runs
 * (`own_flags`). Each kind has n_each places. A timer starts a process for an empty place some time
 * after the last start of a worker, so that the spare takes no CPU from it. `spares_take` sends the
 * command line to a process that waits (common/loop/handover.h) and gives its record to the caller.
 * Invariants: a `struct spare` keeps its address, since callbacks hold it. A process belongs either
 * to a spare or to a worker. A spare that ends is replaced with growing pauses, and a kind whose
 * spares cannot start is given up. When this process ends, the spares read the end of the socket
 * and end too. */
#include "cli/up/process/spares.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/up/process/restart_policy.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/loop/handover.h"

enum { KINDS_MAX = 64, WORDS_MAX = 16 };

struct kind;
struct spare {
    struct kind *kind;
    struct loop_child *process; /* NULL = the place is empty */
    int socket;
    uint64_t started_ns;
};

struct kind {
    struct spares *s;
    const char *argv[WORDS_MAX + 1];
    uint32_t n_words;
    struct restart_policy policy;
    uint64_t not_before_ns;
    bool is_given_up;
    struct spare *spares; /* [n_each] */
};

struct spares {
    struct spares_options o;
    struct kind kinds[KINDS_MAX];
    uint32_t n_kinds;
    struct loop_timer *timer; /* NULL = no place is empty */
    bool is_stopping;
};

struct spares *spares_new(const struct spares_options *o)
{
    struct spares *s = mem_zalloc(sizeof *s);
    s->o = *o;
    return s;
}

static void say(const struct spares *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void say(const struct spares *s, const char *fmt, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    s->o.on_line(s->o.ctx, line, strlen(line));
}

/* ---- processes ---- */

static void plan(struct spares *s, uint64_t wait_ms);

static void on_line(void *ctx, struct loop_child *process, const char *line, size_t n,
                    bool is_stderr)
{
    const struct spare *p = ctx;
    const struct spares *s = p->kind->s;
    s->o.on_line(s->o.ctx, line, n);
}

static void drop(struct spare *p)
{
    loop_child_free(p->process);
    close(p->socket);
    p->process = NULL;
}

static void on_exit_of(void *ctx, struct loop_child *process, int64_t status, int term_signal)
{
    struct spare *p = ctx;
    struct kind *k = p->kind;
    const uint64_t now_ns = clock_mono_ns();
    const struct restart_verdict v = restart_policy_on_exit(
        &k->policy, (now_ns - p->started_ns) / NS_PER_MS, (int)status, term_signal, false);
    say(k->s, "warning: the spare process %d has ended, %s %d%s", loop_child_pid(process),
        term_signal ? "signal" : "status", term_signal ? term_signal : (int)status,
        v.give_up ? ". No more spares are started for its device" : "");
    drop(p);
    k->is_given_up = v.give_up;
    k->not_before_ns = now_ns + v.wait_ms * NS_PER_MS;
    plan(k->s, v.wait_ms);
}

static bool start(struct spare *p)
{
    const struct spares *s = p->kind->s;
    struct error err = {0};
    int ends[2];
    enum status st = handover_open(ends, &err);
    if (st == STATUS_OK) {
        const struct loop_child_options o = {.argv = p->kind->argv,
                                             .on_line = on_line,
                                             .on_exit = on_exit_of,
                                             .ctx = p,
                                             .stdin_fd = ends[1]};
        st = loop_child_spawn(s->o.loop, &o, &p->process, &err);
        close(ends[1]);
        p->socket = ends[0];
        p->started_ns = clock_mono_ns();
        if (st != STATUS_OK)
            close(ends[0]);
    }
    if (st != STATUS_OK)
        say(s, "warning: no spare process: %s", err.text);
    return st == STATUS_OK;
}

/* Fills the empty places of a kind. Returns false when it must be tried again. */
static bool fill(struct kind *k, uint64_t now_ns)
{
    bool is_full = true;
    for (uint32_t i = 0; i < k->s->o.n_each && !k->is_given_up; i++) {
        struct spare *p = &k->spares[i];
        if (!p->process && (now_ns < k->not_before_ns || !start(p)))
            is_full = false;
    }
    return is_full;
}

static void on_timer(void *ctx)
{
    struct spares *s = ctx;
    bool is_full = true;
    loop_timer_stop(s->timer);
    s->timer = NULL;
    for (uint32_t i = 0; i < s->n_kinds; i++)
        is_full = fill(&s->kinds[i], clock_mono_ns()) && is_full;
    if (!is_full)
        plan(s, s->o.calm_ms);
}

/* Fills the empty places after `wait_ms`, instead of at the time planned before. */
static void plan(struct spares *s, uint64_t wait_ms)
{
    if (s->is_stopping)
        return;
    if (s->timer)
        loop_timer_again(s->timer, wait_ms);
    else
        s->timer = loop_timer_start(s->o.loop, wait_ms, 0, on_timer, s);
}

/* ---- kinds ---- */

/* Writes the command line of a spare for a worker with `argv`. Returns the number of words. */
static uint32_t make_words(const char *const *argv, const char **out)
{
    static const char *const own_flags[] = {"--device", "--gpu",       "--numa-node",
                                            "--cpus",   "--log-level", "--log-format"};
    uint32_t n = 0;
    out[n++] = argv[0];
    out[n++] = "spare";
    for (uint32_t i = 1; argv[i] && argv[i + 1]; i++)
        for (size_t f = 0; f < sizeof own_flags / sizeof *own_flags && n + 2 <= WORDS_MAX; f++)
            if (strcmp(argv[i], own_flags[f]) == 0) {
                out[n++] = argv[i];
                out[n++] = argv[i + 1];
            }
    out[n] = NULL;
    return n;
}

static struct kind *find_kind(struct spares *s, const char *const *words, uint32_t n_words)
{
    for (uint32_t i = 0; i < s->n_kinds; i++) {
        uint32_t n = 0;
        while (n < n_words && n < s->kinds[i].n_words && strcmp(words[n], s->kinds[i].argv[n]) == 0)
            n++;
        if (n == n_words && n == s->kinds[i].n_words)
            return &s->kinds[i];
    }
    return NULL;
}

void spares_expect(struct spares *s, const char *const *argv)
{
    const char *words[WORDS_MAX + 1];
    const uint32_t n = make_words(argv, words);
    if (s->is_stopping || s->n_kinds == KINDS_MAX || find_kind(s, words, n))
        return;
    struct kind *k = &s->kinds[s->n_kinds++];
    *k = (struct kind){.s = s, .n_words = n};
    for (uint32_t i = 0; i < n; i++)
        k->argv[i] = mem_strdup(words[i]);
    k->spares = mem_zalloc(s->o.n_each * sizeof *k->spares);
    for (uint32_t i = 0; i < s->o.n_each; i++)
        k->spares[i].kind = k;
    plan(s, s->o.calm_ms);
}

struct loop_child *spares_take(struct spares *s, const struct loop_child_options *o)
{
    const char *words[WORDS_MAX + 1];
    struct kind *k = s ? find_kind(s, words, make_words(o->argv, words)) : NULL;
    struct error err = {0};
    for (uint32_t i = 0; k && i < s->o.n_each; i++) {
        struct spare *p = &k->spares[i];
        if (!p->process)
            continue;
        struct loop_child *process = p->process;
        enum status st = handover_send(p->socket, o->argv, &err);
        if (st == STATUS_AGAIN)
            continue;
        if (st == STATUS_OK)
            st = handover_await(p->socket, (int)s->o.answer_ms, &err);
        if (st != STATUS_OK) { /* it has ended or hangs, and on_exit_of comes */
            say(s, "warning: %s", err.text);
            loop_child_kill(process, SIGKILL);
            break; /* the loop waits for one spare only */
        }
        close(p->socket);
        p->process = NULL;
        loop_child_give(process, o);
        plan(s, s->o.calm_ms);
        return process;
    }
    if (k)
        plan(s, s->o.calm_ms);
    return NULL;
}

/* ---- end ---- */

void spares_stop(struct spares *s)
{
    if (!s || s->is_stopping)
        return;
    s->is_stopping = true;
    loop_timer_stop(s->timer);
    s->timer = NULL;
    for (uint32_t i = 0; i < s->n_kinds; i++)
        for (uint32_t j = 0; j < s->o.n_each; j++)
            if (s->kinds[i].spares[j].process)
                drop(&s->kinds[i].spares[j]);
}

void spares_free(struct spares *s)
{
    if (!s)
        return;
    spares_stop(s);
    for (uint32_t i = 0; i < s->n_kinds; i++) {
        for (uint32_t j = 0; j < s->kinds[i].n_words; j++)
            mem_free((char *)s->kinds[i].argv[j]);
        mem_free(s->kinds[i].spares);
    }
    mem_free(s);
}
