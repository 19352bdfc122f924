/* Sends the load of a benchmark and measures every answer.
 * `bench_load_run` starts each request at its time in `arrivals_s` while fewer than
 * `max_concurrency` are open. Each answer is a stream of events (cli/client/sse_reader.h), and
 * `stamp` records the arrival time of each piece. `judge` decides at the end whether the answer
 * counts as failed.
 * Invariants: one thread runs the load. `struct asked` lives from `begin` to `on_end`, and each
 * request writes only its own `struct bench_result`. An interrupt closes all open requests, and
 * `on_end` is called for each of them. */
#include "cli/bench/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/bench/interrupt.h"
#include "cli/client/sse_reader.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/http/client/streams.h"

enum {
    /* 6 hours in ms, as in vLLM: a request may wait long in the server's queue */
    SILENCE_MS = 6 * 3600 * 1000,
    TURN_MS = 100,
    PROBE_PAUSE_MS = 500,
    RAW_LIMIT = 64 << 10
};

#define NEVER_NS (1ull << 62) /* longest delay of a request in ns, for rates close to 0 */

struct run {
    const struct bench_load *l;
    struct http_streams *streams;
    char url[1200];
    uint64_t begin_ns;
    uint32_t n_begun, n_open, n_done;
};

/* `asked` holds one open request. */
struct asked {
    struct run *run;
    struct bench_result *result;
    char *owned_body;
    struct sse_reader sse;
    struct strbuf raw; /* body of an answer that is not a stream, such as an error */
    uint64_t now_ns, last_ns;
    uint32_t n_pieces;
    bool is_stream, is_done, broken;
    char error[400]; /* text of an error event in the stream; "" = none */
    const char **owned_headers;
    char id_header[256]; /* X-Request-Id header, the last of `owned_headers` */
};

/* ---- one answer ---- */

static void add_gap(struct bench_result *r, uint64_t ns)
{
    if (r->n_gaps == r->cap_gaps) {
        r->cap_gaps = r->cap_gaps ? 2 * r->cap_gaps : 64;
        r->gaps_ns = mem_realloc(r->gaps_ns, r->cap_gaps * sizeof *r->gaps_ns);
    }
    r->gaps_ns[r->n_gaps++] = ns;
}

/* Records the arrival time of a piece. The first piece of a chat, which has only a role, is
 * ignored. A piece with only a finish reason moves the end time but does not count as a token. */
static void stamp(struct asked *a, const json_t *choice)
{
    const json_t *delta = json_object_get(choice, "delta");
    const json_t *text = json_object_get(delta ? delta : choice, delta ? "content" : "text");
    bool is_empty = json_string_length(text) == 0;
    bool ends = json_is_string(json_object_get(choice, "finish_reason"));
    if (delta && is_empty && !ends && json_object_get(delta, "role"))
        return;
    struct bench_result *r = a->result;
    r->end_ns = a->now_ns - a->run->begin_ns;
    if (a->n_pieces == 0)
        r->first_ns = r->end_ns - r->start_ns;
    else if (!is_empty || !ends)
        add_gap(r, a->now_ns - a->last_ns);
    a->n_pieces += a->n_pieces == 0 || !is_empty || !ends;
    a->last_ns = a->now_ns;
    if (a->run->l->keep_text && json_is_string(text))
        strbuf_append(&r->text, json_string_value(text), json_string_length(text));
}

static void read_usage(struct bench_result *r, const json_t *usage)
{
    const json_t *in = json_object_get(usage, "prompt_tokens");
    const json_t *out = json_object_get(usage, "completion_tokens");
    if (json_is_integer(in) && json_integer_value(in) >= 0)
        r->n_prompt_tokens = (uint32_t)json_integer_value(in);
    if (json_is_integer(out) && json_integer_value(out) >= 0)
        r->n_output_tokens = (uint32_t)json_integer_value(out);
}

static void on_event(void *ctx, struct str data)
{
    struct asked *a = ctx;
    a->is_stream = true;
    if (str_eq_c(data, "[DONE]")) {
        a->is_done = true;
        return;
    }
    json_t *j = json_loadb(data.ptr, data.len, JSON_ALLOW_NUL, NULL);
    const json_t *choices = json_object_get(j, "choices");
    size_t n = json_array_size(choices);
    if (!j || (json_object_get(j, "error") && !a->error[0])) {
        bench_error_text(j, a->error, sizeof a->error);
        if (!a->error[0])
            snprintf(a->error, sizeof a->error,
                     "the stream contains an event that is not a completion in JSON");
    }
    for (size_t i = 0; i < n; i++)
        stamp(a, json_array_get(choices, i));
    read_usage(a->result, json_object_get(j, "usage"));
    json_decref(j);
}

static bool on_bytes(void *ctx, struct str piece)
{
    struct asked *a = ctx;
    a->now_ns = clock_mono_ns();
    if (!a->is_stream && a->raw.len < RAW_LIMIT)
        strbuf_append_str(&a->raw,
                          (struct str){piece.ptr, piece.len < RAW_LIMIT ? piece.len : RAW_LIMIT});
    a->broken |= !sse_reader_feed(&a->sse, piece);
    return !a->broken;
}

/* Writes the reason why an answer counts as failed; "" = the answer succeeded. */
static void judge(const struct asked *a, enum status s, int code, const struct error *err,
                  char *out, size_t size)
{
    char why[320];
    out[0] = '\0';
    if (s != STATUS_OK) {
        snprintf(out, size, "%s", err->text);
    } else if (code != 200) {
        json_t *j = json_loadb(a->raw.ptr ? a->raw.ptr : "", a->raw.len, JSON_ALLOW_NUL, NULL);
        bench_error_text(j, why, sizeof why);
        snprintf(out, size, "%s answered %d%s%s%s", a->run->url, code, why[0] ? ": " : "", why,
                 code == 401 ? " (set COX_API_KEY to a valid key)" : "");
        json_decref(j);
    } else if (a->error[0]) {
        snprintf(out, size, "%s", a->error);
    } else if (a->broken || !a->is_done || a->n_pieces == 0) {
        snprintf(out, size, "%s: %s", a->run->url,
                 a->broken ? "the stream contains an event that is too long"
                 : !a->is_stream
                     ? "the server answered with status 200 but without a stream of events"
                     : "the stream ended before the answer was complete");
    }
}

static void on_end(void *ctx, enum status s, int code, const struct error *err)
{
    struct asked *a = ctx;
    struct run *r = a->run;
    char why[2048];
    judge(a, s, code, err, why, sizeof why);
    a->result->ok = !why[0];
    if (why[0])
        a->result->error = mem_strdup(why);
    if (a->result->n_output_tokens == 0)
        a->result->n_output_tokens = a->n_pieces;
    r->n_open--;
    r->n_done++;
    if (r->l->progress)
        bench_progress_add(r->l->progress, !a->result->ok);
    sse_reader_fini(&a->sse);
    strbuf_fini(&a->raw);
    free(a->owned_body);
    mem_free(a->owned_headers);
    mem_free(a);
}

/* ---- all requests ---- */

/* Sets the target's headers and the id of request i. */
static void set_headers(struct asked *a, uint32_t i, struct http_call *c)
{
    const struct bench_target *t = a->run->l->target;
    c->headers = t->headers;
    c->n_headers = t->n_headers;
    if (!t->request_id_prefix)
        return;
    a->owned_headers = mem_array(t->n_headers + 1, sizeof *a->owned_headers);
    for (size_t k = 0; k < t->n_headers; k++)
        a->owned_headers[k] = t->headers[k];
    snprintf(a->id_header, sizeof a->id_header, "X-Request-Id: %s%u", t->request_id_prefix, i);
    a->owned_headers[t->n_headers] = a->id_header;
    c->headers = a->owned_headers;
    c->n_headers++;
}

static void begin(struct run *r, const struct bench_prompt *p, struct bench_result *result)
{
    struct asked *a = mem_zalloc(sizeof *a);
    struct error err = {0};
    *a = (struct asked){.run = r, .result = result};
    sse_reader_init(&a->sse, on_event, a);
    strbuf_init(&a->raw, 0);
    strbuf_init(&result->text, 0);
    a->owned_body = bench_target_body(r->l->target, p->model, p->owned_text, p->n_output_tokens);
    struct http_call c = gateway_access_call(&r->l->target->gateway, r->url);
    c.body = str_from(a->owned_body);
    set_headers(a, r->n_begun, &c);
    c.timeout_ms = SILENCE_MS;
    c.on_data = on_bytes;
    c.ctx = a;
    result->n_prompt_tokens = p->n_prompt_tokens;
    result->start_ns = clock_mono_ns() - r->begin_ns;
    r->n_open++;
    enum status s =
        a->owned_body
            ? http_streams_begin(r->streams, &c, on_end, &err)
            : error_set(
                  &err, STATUS_INVALID,
                  "the request was not sent: its prompt is not UTF-8. Use a dataset in UTF-8");
    if (s != STATUS_OK)
        on_end(a, s, 0, &err);
}

/* Returns the nanoseconds until the next request is due; 0 = now. */
static uint64_t until_next(const struct run *r)
{
    if (!r->l->arrivals_s)
        return 0;
    const double due_ns = r->l->arrivals_s[r->n_begun] * 1e9;
    uint64_t due = due_ns < NEVER_NS ? (uint64_t)due_ns : NEVER_NS, now = clock_mono_ns();
    return r->begin_ns + due > now ? r->begin_ns + due - now : 0;
}

static bool has_room(const struct run *r)
{
    return r->l->max_concurrency == 0 || r->n_open < r->l->max_concurrency;
}

static void raise_file_limit(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
}

static void drive(struct run *r, struct bench_result *results)
{
    const struct bench_prompts *p = r->l->prompts;
    while (r->n_done < p->n && !bench_is_interrupted()) {
        uint64_t wait_ms = TURN_MS;
        while (r->n_begun < p->n && has_room(r)) {
            uint64_t wait_ns = until_next(r);
            if (wait_ns > 0) {
                wait_ms = (wait_ns + NS_PER_MS - 1) / NS_PER_MS;
                break;
            }
            begin(r, &p->items[r->n_begun], &results[r->n_begun]);
            r->n_begun++;
        }
        http_streams_turn(r->streams, (uint32_t)(wait_ms < TURN_MS ? wait_ms : TURN_MS));
        if (r->l->progress)
            bench_progress_tick(r->l->progress);
    }
}

enum status bench_load_run(const struct bench_load *l, struct bench_result *results,
                           double *duration_s, struct error *err)
{
    struct run r = {.l = l};
    snprintf(r.url, sizeof r.url, "%s%s", l->target->base, l->target->endpoint);
    raise_file_limit();
    TRY(http_streams_new(&r.streams, err));
    r.begin_ns = clock_mono_ns();
    drive(&r, results);
    *duration_s = (double)(clock_mono_ns() - r.begin_ns) / 1e9;
    /* http_streams_free calls `on_end` for every open request, as interrupted */
    http_streams_free(r.streams);
    return bench_is_interrupted()
               ? error_set(err, STATUS_CLOSED, "the command was interrupted by a signal")
               : STATUS_OK;
}

/* ---- the probe ---- */

/* Returns true for a temporary failure: no server listens yet, or the server is not ready. */
static bool may_pass(const char *error)
{
    return strstr(error, "cannot connect") || strstr(error, " answered 5") ||
           strstr(error, " answered 429");
}

enum status bench_load_probe(const struct bench_load *l, double timeout_s, struct error *err)
{
    uint64_t end_ns = clock_mono_ns() + (uint64_t)(timeout_s * 1e9);
    struct bench_prompts one = {l->prompts->items, 1};
    struct bench_load probe = {.target = l->target, .prompts = &one};
    for (;;) {
        struct bench_result result = {0};
        double seconds = 0;
        enum status s = bench_load_run(&probe, &result, &seconds, err);
        bool again = s == STATUS_OK && !result.ok && may_pass(result.error) &&
                     clock_mono_ns() + PROBE_PAUSE_MS * NS_PER_MS < end_ns;
        if (s == STATUS_OK && !result.ok)
            s = error_set(err, STATUS_IO, "the first request failed, so no load was sent: %.380s",
                          result.error);
        bench_results_fini(&result, 1);
        if (!again)
            return s;
        (void)usleep(PROBE_PAUSE_MS * 1000);
    }
}

void bench_results_fini(struct bench_result *results, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        mem_free(results[i].gaps_ns);
        mem_free(results[i].error);
        strbuf_fini(&results[i].text);
        results[i] = (struct bench_result){0};
    }
}
