/* Does the first and last work on every HTTP request: CORS, request ids, the access log and
 * spans.
 * routes_dispatch calls `front_begin` before anything else, and servers.c calls `front_answered`
 * when the answer is complete.
 * A request's record is created only when the access log or the export of spans needs it, and is
 * freed with its request. No key and no text of a client is written to the log. Only the loop
 * thread calls these functions. */
#include "gateway/http/front.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/random.h"
#include "common/http/handlers/host_rule.h"
#include "common/http/server/answer.h"
#include "common/http/server/request.h"
#include "gateway/trace/access_log.h"

enum { LOG_VALUE_MAX = 512 };

/* ---- CORS ---- */

/* `BETWEEN` holds the characters that cannot be in an origin, a method or a header's name. */
#define BETWEEN "[]\", "

static bool takes_all(const struct option_list *l)
{
    return l->n_items == 0 || option_list_has(l, STR("*"));
}

static void add_view(struct http_request *r, const char *name, struct str value)
{
    char buf[HTTP_ADDED_MAX];
    if (value.len >= sizeof buf)
        return;
    memcpy(buf, value.ptr, value.len);
    buf[value.len] = '\0';
    http_add_header(r, name, buf);
}

/* Adds the allowed values to a CORS header: the value that the browser requested when everything
 * is allowed, and the list otherwise. */
static void add_allowed(struct http_request *r, const char *name, const struct option_list *l,
                        struct str asked)
{
    struct strbuf b;
    if (takes_all(l)) {
        if (asked.len > 0)
            add_view(r, name, asked);
        return;
    }
    strbuf_init(&b, 0);
    for (size_t i = 0; i < l->n_items; i++) {
        const char *at = l->items[i] + strspn(l->items[i], BETWEEN);
        for (size_t n; *at; at += n, at += strspn(at, BETWEEN)) {
            n = strcspn(at, BETWEEN);
            strbuf_append_c(&b, b.len ? ", " : "");
            strbuf_append(&b, at, n);
        }
    }
    add_view(r, name, strbuf_str(&b));
    strbuf_fini(&b);
}

static bool add_origin(const struct front_options *o, struct http_request *r, struct str origin)
{
    bool all = option_list_has(&o->allowed_origins, STR("*"));
    if (!all || o->allow_credentials)
        http_add_header(r, "Vary", "Origin");
    if (!all && !option_list_has(&o->allowed_origins, origin))
        return false;
    if (all && !o->allow_credentials)
        http_add_header(r, "Access-Control-Allow-Origin", "*");
    else
        add_view(r, "Access-Control-Allow-Origin", origin);
    if (o->allow_credentials)
        http_add_header(r, "Access-Control-Allow-Credentials", "true");
    return true;
}

static bool answer_preflight(const struct front_options *o, struct http_request *r, bool allowed,
                             struct str method)
{
    bool known = takes_all(&o->allowed_methods) || option_list_has(&o->allowed_methods, method);
    if (!allowed || !known) {
        http_respond(r, 400, "text/plain; charset=utf-8",
                     allowed ? STR("Disallowed CORS method") : STR("Disallowed CORS origin"), NULL,
                     0);
        return true;
    }
    add_allowed(r, "Access-Control-Allow-Methods", &o->allowed_methods, method);
    add_allowed(r, "Access-Control-Allow-Headers", &o->allowed_headers,
                http_header(r, "Access-Control-Request-Headers"));
    http_add_header(r, "Access-Control-Max-Age", "600");
    http_respond(r, 200, "text/plain; charset=utf-8", STR("OK"), NULL, 0);
    return true;
}

static bool cross_origin(const struct front_options *o, struct http_request *r)
{
    struct str origin = http_header(r, "Origin");
    struct str method = http_header(r, "Access-Control-Request-Method");
    if (o->allowed_origins.n_items == 0 || origin.len == 0)
        return false;
    bool allowed = add_origin(o, r, origin);
    if (str_eq_c(http_method(r), "OPTIONS") && method.len > 0)
        return answer_preflight(o, r, allowed, method);
    if (allowed)
        http_add_header(r, "Access-Control-Expose-Headers",
                        "Retry-After, X-Request-Id, X-Slo-Predicted-Ttft-Ms");
    return false;
}

/* ---- ids ---- */

/* Uses the client's id when it is short and has only plain characters, because it is copied into
 * answers, headers and logs. */
static bool take_id(struct http_request *r, struct str given)
{
    char id[HTTP_ID_MAX + 1];
    if (given.len == 0 || given.len > HTTP_ID_MAX)
        return false;
    memcpy(id, given.ptr, given.len);
    id[given.len] = '\0';
    if (strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:") !=
        given.len)
        return false;
    http_set_id(r, id);
    return true;
}

static void name_request(const struct front *f, struct http_request *r)
{
    char id[HTTP_ID_MAX + 1];
    bool shown = f->o->request_id_headers || f->sagemaker;
    if (!(f->sagemaker && take_id(r, http_header(r, "X-Amzn-SageMaker-Inference-Id"))) &&
        !take_id(r, http_header(r, "X-Request-Id")) && (f->log || shown)) {
        snprintf(id, sizeof id, "%016llx%016llx", (unsigned long long)random_secure_u64(),
                 (unsigned long long)random_secure_u64());
        http_set_id(r, id);
    }
    if (shown)
        http_add_header(r, "X-Request-Id", http_get_id(r));
}

/* ---- the access record ---- */

static void draw_span_id(struct trace_context *t)
{
    random_secure(t->span_id, sizeof t->span_id);
    t->span_id[0] |= 1; /* the lowest bit is set, because an id of zeros is invalid */
}

static void begin_record(const struct front *f, struct http_request *r)
{
    uint8_t random[TRACE_ID_BYTES];
    if (!f->log && !f->traces)
        return;
    struct access_record *n = mem_zalloc(sizeof *n);
    n->begun_wall_ns = clock_wall_ns();
    if (!trace_context_read(&n->trace, http_header(r, "traceparent"),
                            http_header(r, "tracestate")) &&
        f->traces) {
        random_secure(random, sizeof random);
        trace_context_begin(&n->trace, random, f->sampling);
    }
    if (f->traces)
        draw_span_id(&n->trace);
    http_set_note(r, n);
}

struct access_record *front_record(const struct http_request *r)
{
    return http_get_note(r);
}

bool front_begin(struct front *f, struct http_request *r)
{
    name_request(f, r);
    begin_record(f, r);
    return cross_origin(f->o, r);
}

/* ---- the access log ---- */

enum status front_init(struct front *f, const struct front_options *o, struct metrics *registry,
                       struct error *err)
{
    *f = (struct front){.o = o};
    if (!o->access_log)
        return STATUS_OK;
    return access_log_open(o->access_log, registry, &f->log, err);
}

enum status front_trace(struct front *f, const struct trace_options *o, const char *host,
                        struct metrics *registry, struct error *err)
{
    const struct trace_export_options e = {
        .endpoint = o->endpoint, .service_name = o->service_name, .host = host};
    f->sampling = o->sampling;
    return o->endpoint ? trace_export_new(&e, registry, &f->traces, err) : STATUS_OK;
}

void front_fini(struct front *f)
{
    trace_export_free(f->traces);
    f->traces = NULL;
    access_log_close(f->log);
    f->log = NULL;
}

static void append(struct strbuf *b, const char *name, struct str value)
{
    static const char mark[] = "…"; /* end of a value that was cut */
    char cut[LOG_VALUE_MAX + sizeof mark];
    if (value.len > LOG_VALUE_MAX) {
        size_t n = LOG_VALUE_MAX;
        while (n > LOG_VALUE_MAX - 3 && ((unsigned char)value.ptr[n] & 0xC0) == 0x80)
            n--; /* the cut must not be within a character */
        memcpy(cut, value.ptr, n);
        memcpy(cut + n, mark, sizeof mark);
        value = str_from(cut);
    }
    strbuf_printf(b, ",\"%s\":", name);
    strbuf_append_json(b, value);
}

static void append_trace(struct strbuf *b, const struct front *f, const struct trace_context *t)
{
    char hex[2 * TRACE_ID_BYTES + 1];
    if (!trace_context_is_set(t))
        return;
    trace_hex(t->trace_id, TRACE_ID_BYTES, hex);
    append(b, "trace_id", str_from(hex));
    if (!f->traces)
        return;
    trace_hex(t->span_id, SPAN_ID_BYTES, hex);
    append(b, "span_id", str_from(hex));
}

static void append_llm(struct strbuf *b, const struct access_record *n,
                       const struct http_answered *a)
{
    append(b, "answer", str_from(n->id));
    append(b, "model", str_from(n->model));
    append(b, "outcome", str_from(access_record_outcome(n, a->status, a->aborted)));
    strbuf_printf(b,
                  ",\"stream\":%s,\"choices\":%u,\"prompt_tokens\":%llu,\"cached_tokens\":%llu,"
                  "\"completion_tokens\":%llu,\"queue\":%.6f",
                  n->stream ? "true" : "false", n->n_choices, (unsigned long long)n->prompt_tokens,
                  (unsigned long long)n->cached_tokens, (unsigned long long)n->completion_tokens,
                  n->phases.queue);
    if (n->has_first_token)
        strbuf_printf(b, ",\"ttft\":%.6f", n->ttft);
}

/* Writes a line of the access log. The line contains no keys and no texts: no query, no body,
 * and no header except the user agent. */
static void log_line(struct front *f, const struct http_request *r, const struct access_record *n,
                     const struct http_answered *a)
{
    struct strbuf b;
    uint64_t t = clock_wall_ns();
    strbuf_init(&b, 0);
    strbuf_printf(&b, "{\"time\":%llu.%06llu", (unsigned long long)(t / NS_PER_S),
                  (unsigned long long)(t % NS_PER_S / 1000));
    append(&b, "id", str_from(http_get_id(r)));
    append(&b, "method", http_method(r));
    append(&b, "path", http_path(r));
    append(&b, "agent", http_header(r, "User-Agent"));
    strbuf_printf(&b, ",\"status\":%d,\"bytes\":%llu,\"seconds\":%.6f,\"aborted\":%s", a->status,
                  (unsigned long long)a->body_bytes, (double)a->duration_ns / 1e9,
                  a->aborted ? "true" : "false");
    if (n->tenant[0])
        append(&b, "tenant", str_from(n->tenant));
    append_trace(&b, f, &n->trace);
    if (n->is_llm)
        append_llm(&b, n, a);
    strbuf_append_c(&b, "}\n");
    access_log_add(f->log, strbuf_str(&b));
    strbuf_fini(&b);
}

void front_answered(struct front *f, const struct http_request *r, const struct http_answered *a)
{
    struct access_record *n = http_get_note(r);
    if (!n)
        return;
    if (f->log)
        log_line(f, r, n, a);
    if (f->traces && n->is_llm && n->trace.sampled)
        trace_export_add(f->traces, n, a->status, a->aborted, a->duration_ns);
    mem_free(n);
}
