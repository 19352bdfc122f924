#include "gateway/front.h"

#include <string.h>
#include <strings.h>

#include "common/base/clock.h"
#include "common/base/random.h"

enum { LOG_BUFFER = 64 << 10, LOG_PATH_MAX = 1024 };

/* ---- CORS ---- */

/* Words of a list, also of one that came as JSON, ["a", "b"]: none of these can be in an origin, a
 * method or a header's name. */
#define BETWEEN "[]\", "

static bool list_has(const struct option_list *l, struct str want)
{
    for (size_t i = 0; i < l->n_items; i++) {
        const char *at = l->items[i] + strspn(l->items[i], BETWEEN);
        for (size_t n; *at; at += n, at += strspn(at, BETWEEN)) {
            n = strcspn(at, BETWEEN);
            if (n == want.len && strncasecmp(at, want.ptr, n) == 0)
                return true;
        }
    }
    return false;
}

static bool takes_all(const struct option_list *l)
{
    return l->n_items == 0 || list_has(l, STR("*"));
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

/* What is allowed, as the browser asked for it when everything is, else the list. */
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
    bool all = list_has(&o->allowed_origins, STR("*"));
    if (!all || o->allow_credentials)
        http_add_header(r, "Vary", "Origin");
    if (!all && !list_has(&o->allowed_origins, origin))
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
    bool known = takes_all(&o->allowed_methods) || list_has(&o->allowed_methods, method);
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
        http_add_header(r, "Access-Control-Expose-Headers", "Retry-After, X-Request-Id");
    return false;
}

/* ---- ids ---- */

/* The client's when it is short and plain: it goes into answers, headers and logs. */
static void name_request(const struct front *f, struct http_request *r)
{
    struct str given = http_header(r, "X-Request-Id");
    char id[HTTP_ID_MAX + 1];
    if (given.len > 0 && given.len <= HTTP_ID_MAX) {
        memcpy(id, given.ptr, given.len);
        id[given.len] = '\0';
        if (strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:") ==
            given.len)
            http_set_id(r, id);
    }
    if (!http_get_id(r)[0] && (f->log || f->o->request_id_headers)) {
        snprintf(id, sizeof id, "%016llx%016llx", (unsigned long long)random_secure_u64(),
                 (unsigned long long)random_secure_u64());
        http_set_id(r, id);
    }
    if (f->o->request_id_headers)
        http_add_header(r, "X-Request-Id", http_get_id(r));
}

bool front_begin(struct front *f, struct http_request *r)
{
    name_request(f, r);
    return cross_origin(f->o, r);
}

/* ---- the access log ---- */

enum status front_init(struct front *f, const struct front_options *o, struct error *err)
{
    *f = (struct front){.o = o};
    if (!o->access_log)
        return STATUS_OK;
    f->log = strcmp(o->access_log, "-") == 0 ? stdout : fopen(o->access_log, "ae");
    if (!f->log)
        return error_set(err, STATUS_IO, "--access-log %s: %m", o->access_log);
    (void)setvbuf(f->log, NULL, _IOFBF, LOG_BUFFER);
    return STATUS_OK;
}

void front_fini(struct front *f)
{
    if (f->log == stdout)
        fflush(stdout);
    else if (f->log)
        fclose(f->log);
    f->log = NULL;
}

void front_flush(struct front *f)
{
    if (f->log)
        fflush(f->log);
}

static void append(struct strbuf *b, const char *name, struct str value)
{
    strbuf_printf(b, ",\"%s\":", name);
    strbuf_append_json(b, value.len > LOG_PATH_MAX ? (struct str){value.ptr, LOG_PATH_MAX} : value);
}

/* Neither keys nor texts: no header but the agent's name, no query, no body. */
void front_log(struct front *f, const struct http_request *r, const struct http_answered *a)
{
    struct strbuf b;
    if (!f->log)
        return;
    uint64_t t = clock_wall_ns();
    strbuf_init(&b, 0);
    strbuf_printf(&b, "{\"time\":%llu.%06llu", (unsigned long long)(t / NS_PER_S),
                  (unsigned long long)(t % NS_PER_S / 1000));
    append(&b, "id", str_from(http_get_id(r)));
    append(&b, "method", http_method(r));
    append(&b, "path", http_path(r));
    append(&b, "agent", http_header(r, "User-Agent"));
    strbuf_printf(&b, ",\"status\":%d,\"bytes\":%llu,\"seconds\":%.6f,\"aborted\":%s}\n", a->status,
                  (unsigned long long)a->body_bytes, (double)a->duration_ns / 1e9,
                  a->aborted ? "true" : "false");
    (void)fwrite(b.ptr, 1, b.len, f->log);
    strbuf_fini(&b);
}
