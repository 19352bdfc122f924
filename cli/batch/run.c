/* Sends the lines of a batch file to a gateway and writes the answers in the input's order.
 * `batch_run` starts one thread per parallel request. Each thread claims the next line, sends
 * its request with retries, and stores the answer in `held`. `write_ready` writes an answer once
 * the answers of all earlier lines are written.
 * Invariants: `lock` guards everything below it in `struct run`. At most `window` lines lie
 * between the next line to send and the next line to write, so memory is bounded. An answer is
 * written as one complete line. The first SIGINT ends the run after the stored answers are
 * written. A second SIGINT ends the process at once. */
#include "cli/batch/run.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/http/client/client.h"

enum {
    ANSWER_LIMIT = 256 << 20,
    AHEAD = 4, /* answers that may wait for an earlier line, per parallel request */
    BACKOFF_MS = 250,
    BACKOFF_MAX_MS = 8000,
    LOOK_MS = 200,
    STACK_BYTES = 512 << 10
};

/* `held` holds an answer that waits for the answers of earlier lines. */
struct held {
    struct strbuf line;
    bool ready;
};

struct run {
    const struct run_batch_options *o;
    const char *base;
    const struct batch_file *f;
    int out_fd;
    uint64_t id_base;
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t moved;
    uint32_t i_begin, i_write; /* indices of the next line to send and of the next line to write */
    uint32_t window, n_threads;
    /* [window] answers that wait for earlier lines; the answer of line i is at index i % window */
    struct held *held;
    bool stopping;
    enum status status;
    struct error why;
    struct batch_totals totals;
};

static volatile sig_atomic_t n_interrupts;

static void on_interrupt(int signum)
{
    (void)signum;
    if (++n_interrupts > 1)
        /* exiting here is safe: --resume removes a partial last line from the output */
        _exit(EXIT_FAILED);
}

/* ---- one answer ---- */

static json_t *parsed(struct str body)
{
    return json_loadb(body.ptr ? body.ptr : "", body.len, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
}

/* Appends the JSON body on one line: a line end between JSON tokens becomes a space. */
static void append_flat(struct strbuf *out, struct str body)
{
    size_t from = out->len;
    strbuf_append_str(out, body);
    for (size_t i = from; i < out->len; i++)
        if (out->ptr[i] == '\n' || out->ptr[i] == '\r')
            out->ptr[i] = ' ';
}

void batch_answer_write(struct strbuf *out, const char *custom_id, uint64_t id, int status,
                        struct str body)
{
    json_t *j = parsed(body);
    const json_t *error = json_object_get(j, "error");
    strbuf_printf(out, "{\"id\":\"batch_req_%016llx\",\"custom_id\":", (unsigned long long)id);
    if (custom_id)
        strbuf_append_json(out, str_from(custom_id));
    else
        strbuf_append_c(out, "null");
    strbuf_printf(out, ",\"response\":{\"status_code\":%d,\"request_id\":\"req_%016llx\",\"body\":",
                  status, (unsigned long long)id);
    if (status == 200 && j) {
        append_flat(out, body);
        strbuf_append_c(out, "},\"error\":null}\n");
    } else {
        char *text = json_is_object(error) ? json_dumps(error, JSON_COMPACT) : NULL;
        strbuf_append_c(out, "null},\"error\":");
        if (text)
            strbuf_append_c(out, text);
        else
            strbuf_printf(out,
                          "{\"message\":\"the answer (status %d) is not the JSON of a gateway\"}",
                          status);
        strbuf_append_c(out, "}\n");
        free(text);
    }
    json_decref(j);
}

/* ---- one line ---- */

static bool is_stopping(struct run *r)
{
    (void)pthread_mutex_lock(&r->lock);
    bool is = r->stopping;
    (void)pthread_mutex_unlock(&r->lock);
    return is;
}

static void nap(struct run *r, uint32_t ms)
{
    for (uint32_t slept = 0; slept < ms && !is_stopping(r); slept += LOOK_MS)
        (void)nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
}

/* Returns true when a retry may succeed: no gateway answers, too many requests, or no head
 * behind the gateway. */
static bool may_change(enum status s, int code)
{
    return s == STATUS_OK ? code == 429 || code == 502 || code == 503 : s == STATUS_IO;
}

static enum status call(struct run *r, const struct batch_input_line *l, int *code,
                        struct strbuf *body, struct error *err)
{
    char url[1024];
    snprintf(url, sizeof url, "%s%s", r->base, l->owned_url);
    struct http_call c = gateway_access_call(&r->o->gateway, url);
    c.method = "POST";
    c.body = (struct str){l->owned_body, l->body_len};
    c.timeout_ms = (uint32_t)(r->o->timeout_s * 1000);
    uint64_t until = clock_mono_ns() + (uint64_t)r->o->retry_s * NS_PER_S;
    for (uint32_t ms = BACKOFF_MS;; ms = ms < BACKOFF_MAX_MS / 2 ? 2 * ms : BACKOFF_MAX_MS) {
        strbuf_reset(body);
        enum status s = http_client_call(&c, code, body, err);
        if (!may_change(s, *code))
            return s;
        if (clock_mono_ns() >= until || is_stopping(r))
            return s != STATUS_OK
                       ? s
                       : error_set(
                             err, STATUS_TIMEOUT,
                             "%s still answered with status %d after %lld s (--retry-timeout). "
                             "Check the gateway, then continue with --resume",
                             url, *code, (long long)r->o->retry_s);
        nap(r, ms);
    }
}

/* Writes the error answer of line i, which cannot be sent, in the format of the gateway's
 * errors. */
static void refuse(const struct run *r, uint32_t i, struct strbuf *out)
{
    const struct batch_file_line *line = &r->f->owned_lines[i];
    struct strbuf body;
    strbuf_init(&body, 0);
    strbuf_append_c(&body, "{\"error\":{\"message\":");
    strbuf_append_json(&body, str_from(line->owned_why));
    strbuf_append_c(&body, ",\"type\":\"invalid_request_error\",\"param\":null,\"code\":null}}");
    batch_answer_write(out, line->owned_id, r->id_base + i, 400, strbuf_str(&body));
    strbuf_fini(&body);
}

static enum status answer(struct run *r, uint32_t i, struct strbuf *out, int *code,
                          struct error *err)
{
    const struct batch_file_line *line = &r->f->owned_lines[i];
    struct batch_input_line l;
    struct strbuf body;
    char why[200];
    if (line->owned_why) {
        refuse(r, i, out);
        *code = 400;
        return STATUS_OK;
    }
    if (!batch_input_read(line->text, "", &l, why)) /* the file has changed since it was checked */
        return error_set(err, STATUS_INVALID,
                         "line %u of the input is no longer valid: %s. Do not change the file "
                         "while the batch runs",
                         line->number, why);
    strbuf_init(&body, ANSWER_LIMIT);
    enum status s = call(r, &l, code, &body, err);
    if (s == STATUS_OK && *code == 401)
        s = error_set(err, STATUS_DENIED,
                      "%s requires an API key: set COX_API_KEY or give --api-key KEY", r->base);
    if (s == STATUS_OK)
        batch_answer_write(out, line->owned_id, r->id_base + i, *code, strbuf_str(&body));
    strbuf_fini(&body);
    batch_input_line_fini(&l);
    return s;
}

/* ---- all lines ---- */

/* Stops the run with this status. The caller holds the lock. */
static void stop(struct run *r, enum status s, const struct error *why)
{
    if (!r->stopping && s != STATUS_OK) {
        r->status = s;
        r->why = *why;
    }
    r->stopping = true;
    (void)pthread_cond_broadcast(&r->moved);
}

static void write_one(struct run *r, struct held *h)
{
    struct error err = {0};
    struct str rest = strbuf_str(&h->line);
    while (rest.len > 0) {
        ssize_t n = write(r->out_fd, rest.ptr, rest.len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            stop(r,
                 error_set(&err, STATUS_IO,
                           "cannot write %s: %s. Free some disk space, then continue with --resume",
                           r->o->output, strerror(errno)),
                 &err);
            break;
        }
        rest = (struct str){rest.ptr + n, rest.len - (size_t)n};
    }
    strbuf_fini(&h->line);
    *h = (struct held){0};
}

static bool is_answered(const struct run *r, uint32_t i)
{
    return r->f->owned_lines[i].text.len == 0;
}

static void write_ready(struct run *r)
{
    while (r->i_write < r->f->n_lines) {
        struct held *h = &r->held[r->i_write % r->window];
        if (!h->ready && !is_answered(r, r->i_write))
            break;
        if (h->ready)
            write_one(r, h);
        r->i_write++;
    }
    (void)pthread_cond_broadcast(&r->moved);
}

/* Returns the next line to send; n_lines = no line is left. The caller holds the lock. */
static uint32_t next_line(struct run *r)
{
    for (;;) {
        while (r->i_begin < r->f->n_lines && is_answered(r, r->i_begin))
            r->i_begin++;
        if (r->stopping || r->i_begin >= r->f->n_lines)
            return r->f->n_lines;
        if (r->i_begin < r->i_write + r->window)
            return r->i_begin++;
        (void)pthread_cond_wait(&r->moved, &r->lock);
    }
}

static void *work(void *ctx)
{
    struct run *r = ctx;
    (void)pthread_mutex_lock(&r->lock);
    for (uint32_t i; (i = next_line(r)) < r->f->n_lines;) {
        struct held h = {.ready = true};
        struct error err = {0};
        int code = 0;
        strbuf_init(&h.line, 0);
        (void)pthread_mutex_unlock(&r->lock);
        enum status s = answer(r, i, &h.line, &code, &err);
        (void)pthread_mutex_lock(&r->lock);
        if (s != STATUS_OK) {
            strbuf_fini(&h.line);
            stop(r, s, &err);
            break;
        }
        r->held[i % r->window] = h;
        r->totals.n_answered++;
        r->totals.n_errors += code != 200;
        write_ready(r);
    }
    r->n_threads--;
    (void)pthread_cond_broadcast(&r->moved);
    (void)pthread_mutex_unlock(&r->lock);
    return NULL;
}

static void tell(const struct run *r, uint64_t *told_ns, bool terminal)
{
    uint64_t now = clock_mono_ns();
    if (now - *told_ns < (terminal ? NS_PER_S : 10 * NS_PER_S))
        return;
    *told_ns = now;
    fprintf(stderr, "%scox run-batch: %u of %u answered, %u with an error%s", terminal ? "\r" : "",
            r->f->n_answered + r->totals.n_answered, r->f->n_lines, r->totals.n_errors,
            terminal ? "" : "\n");
}

/* Shows the progress until every thread has ended. */
static void watch(struct run *r)
{
    bool terminal = isatty(STDERR_FILENO), said = false;
    uint64_t told_ns = clock_mono_ns();
    (void)pthread_mutex_lock(&r->lock);
    while (r->n_threads > 0) {
        struct timespec at;
        (void)clock_gettime(CLOCK_REALTIME, &at);
        at.tv_nsec += LOOK_MS * 1000000L;
        at.tv_sec += at.tv_nsec / 1000000000L;
        at.tv_nsec %= 1000000000L;
        (void)pthread_cond_timedwait(&r->moved, &r->lock, &at);
        if (n_interrupts > 0 && !said) {
            struct error err = {0};
            said = true;
            stop(r, error_set(&err, STATUS_CLOSED, "the command was interrupted by a signal"),
                 &err);
            fprintf(stderr,
                    "%scox run-batch: stopping: no new lines are sent, and open requests finish. "
                    "Press Ctrl-C again to stop at once\n",
                    terminal ? "\n" : "");
        }
        tell(r, &told_ns, terminal);
    }
    (void)pthread_mutex_unlock(&r->lock);
    if (terminal)
        fputc('\n', stderr);
}

static uint32_t start(struct run *r, pthread_t *threads)
{
    pthread_attr_t attr;
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES);
    (void)pthread_mutex_lock(&r->lock);
    for (uint32_t i = 0; i < (uint32_t)r->o->concurrency; i++) {
        int rc = pthread_create(&threads[i], &attr, work, r);
        if (rc != 0) {
            struct error err = {0};
            stop(r,
                 error_set(&err, STATUS_NO_MEMORY,
                           "cannot start thread %u of --concurrency: %s. Use a lower --concurrency",
                           i, strerror(rc)),
                 &err);
            break;
        }
        r->n_threads++;
    }
    uint32_t n = r->n_threads;
    (void)pthread_mutex_unlock(&r->lock);
    (void)pthread_attr_destroy(&attr);
    return n;
}

enum status batch_run(const struct run_batch_options *o, const char *base,
                      const struct batch_file *f, int out_fd, struct batch_totals *totals,
                      struct error *err)
{
    struct run r = {
        .o = o, .base = base, .f = f, .out_fd = out_fd, .window = AHEAD * (uint32_t)o->concurrency};
    pthread_t *threads = mem_array((size_t)o->concurrency, sizeof *threads);
    r.held = mem_array(r.window, sizeof *r.held);
    (void)pthread_mutex_init(&r.lock, NULL);
    (void)pthread_cond_init(&r.moved, NULL);
    if (getrandom(&r.id_base, sizeof r.id_base, 0) != (ssize_t)sizeof r.id_base)
        r.id_base = clock_wall_ns();
    struct sigaction sa = {.sa_handler = on_interrupt};
    (void)sigaction(SIGINT, &sa, NULL);
    (void)sigaction(SIGTERM, &sa, NULL);
    uint32_t n_started = start(&r, threads);
    watch(&r);
    for (uint32_t i = 0; i < n_started; i++)
        (void)pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < r.window;
         /* answers after a line without an answer are written too, since they are complete */
         i++)
        if (r.held[(r.i_write + i) % r.window].ready)
            write_one(&r, &r.held[(r.i_write + i) % r.window]);
    *totals = r.totals;
    if (r.status != STATUS_OK)
        *err = r.why;
    (void)pthread_cond_destroy(&r.moved);
    (void)pthread_mutex_destroy(&r.lock);
    mem_free(r.held);
    mem_free(threads);
    return r.status;
}
