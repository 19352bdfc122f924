#include "head/admin/runs.h"

#include <signal.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/loop/child.h"

/* CALL_MS is the longest time of a call of `cox`, in ms. It is longer than the 40 s for which
 * `cox run terminate` waits for a run to end. */
enum { CALL_MS = 60000, OUT_MAX = 4 << 20, SAID_MAX = 4096 };

#define LAST "500" /* number of runs to list */

struct runs_call {
    struct runs *owner;
    struct runs_call *next, **prev;
    struct http_request *r; /* request to answer; NULL = the client has disconnected */
    struct loop_child *child;
    struct loop_timer *deadline;
    enum runs_what what;
    struct strbuf out, said; /* said: text from stderr */
};

struct runs {
    struct loop *loop;
    char *program;
    runs_answer_fn *answer;
    struct runs_call *calls;
    uint32_t n_calls;
};

struct runs *runs_new(struct loop *l, const char *program, runs_answer_fn *answer)
{
    struct runs *s = mem_zalloc(sizeof *s);
    *s = (struct runs){.loop = l, .program = mem_strdup(program), .answer = answer};
    return s;
}

static void call_free(struct runs_call *c)
{
    *c->prev = c->next;
    if (c->next)
        c->next->prev = c->prev;
    c->owner->n_calls--;
    loop_timer_stop(c->deadline);
    loop_child_free(c->child);
    strbuf_fini(&c->out);
    strbuf_fini(&c->said);
    mem_free(c);
}

/* Receives a part of a line. A long line arrives in several parts. Newlines between JSON values
 * have no meaning, so the output without newlines is still the same JSON. */
static void on_line(void *ctx, struct loop_child *child, const char *line, size_t n, bool is_stderr)
{
    struct runs_call *c = ctx;
    if (!is_stderr && c->what != RUNS_LIST && c->out.len > 0)
        return; /* the first line is the run's ID; the rest is ignored */
    if (is_stderr && c->said.len > 0)
        strbuf_append_c(&c->said, "\n");
    strbuf_append(is_stderr ? &c->said : &c->out, line, n);
}

static void on_exit_(void *ctx, struct loop_child *child, int64_t status, int term_signal)
{
    struct runs_call *c = ctx;
    struct http_request *r = c->r;
    bool is_fine = status == 0 && term_signal == 0 && !c->out.failed;
    struct str text = strbuf_str(is_fine ? &c->out : &c->said);
    if (c->out.failed)
        text = STR("the program of --runs printed more than 4 MiB: check that it is `cox` of this "
                   "version");
    else if (!is_fine && text.len == 0)
        text = term_signal
                   ? STR("the program of --runs did not end in time and was killed")
                   : STR("the program of --runs failed without a message: look at the head's log");
    if (r)
        c->owner->answer(r, c->what, is_fine ? 200 : 409, text.ptr, text.len);
    call_free(c);
}

static void on_deadline(void *ctx)
{
    struct runs_call *c = ctx;
    loop_child_kill(c->child, SIGKILL);
}

enum status runs_call(struct runs *s, struct http_request *r, enum runs_what what, const char *id,
                      struct error *err)
{
    const char *const list[] = {s->program, "run", "list", "--json", "--last", LAST, NULL};
    const char *const terminate[] = {s->program, "run", "terminate", id, NULL};
    const char *const create[] = {s->program, "run", "create", "--from", id, NULL};
    const char *const *const argv[] = {list, terminate, create};
    if (s->n_calls == RUNS_CALLS_MAX)
        return error_set(err, STATUS_LIMIT,
                         "too many requests about runs are open at once: try again in a moment");
    struct runs_call *c = mem_zalloc(sizeof *c);
    *c = (struct runs_call){.owner = s, .r = r, .what = what, .next = s->calls, .prev = &s->calls};
    strbuf_init(&c->out, OUT_MAX);
    strbuf_init(&c->said, SAID_MAX);
    if (s->calls)
        s->calls->prev = &c->next;
    s->calls = c;
    s->n_calls++;
    const struct loop_child_options o = {
        .argv = argv[what], .on_line = on_line, .on_exit = on_exit_, .ctx = c};
    enum status st = loop_child_spawn(s->loop, &o, &c->child, err);
    if (st != STATUS_OK) {
        call_free(c);
        return st;
    }
    c->deadline = loop_timer_start(s->loop, CALL_MS, 0, on_deadline, c);
    return STATUS_OK;
}

void runs_on_abort(struct runs *s, const struct http_request *r)
{
    for (struct runs_call *c = s ? s->calls : NULL; c; c = c->next)
        if (c->r == r)
            c->r = NULL; /* the child process still completes the order */
}

void runs_free(struct runs *s)
{
    if (!s)
        return;
    while (s->calls)
        call_free(s->calls);
    mem_free(s->program);
    mem_free(s);
}
