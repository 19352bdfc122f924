#include "gateway/batches/call.h"

#include <string.h>

#include "common/base/metrics.h"
#include "common/http/server/answer.h"
#include "common/http/server/server.h"

enum { DEFAULT_LIMIT = 10000 };
#define RETRY_S "1"
static const char json_type[] = "application/json";

void state_call_fail(struct state_call *c, const char *what, enum status s, const struct error *err)
{
    if (s == STATUS_NOT_FOUND)
        api_error_set(&c->error, 404, "id", "No such %s: " STR_FMT, what,
                      (int)(c->id.len < 100 ? c->id.len : 100), c->id.ptr);
    else if (s == STATUS_LIMIT)
        api_error_set(&c->error, 507, NULL,
                      "The file store is full. Delete files that you do not need.");
    else if (s == STATUS_DENIED)
        api_error_set(&c->error, 507, NULL,
                      "The files of this API key already use its share of the file store; the rest "
                      "is reserved for other keys. Delete files that you do not need.");
    else if (s == STATUS_NO_MEMORY)
        api_error_set(&c->error, 507, NULL,
                      "The disk of the file store is full. Delete files that you do not need, or "
                      "try again later.");
    else if (s == STATUS_CLOSED || s == STATUS_IO) /* the log already has the reason */
        api_error_set(&c->error, 503, NULL,
                      "The file store is not available; the gateway's log gives the reason. The "
                      "gateway keeps trying to open it: try again later.");
    else
        api_error_set(&c->error, 500, NULL, "%s", err->text);
}

/* Reads a value of the query string. The value is "" when it is absent. Ids and words need no
 * %-decoding. Returns false when the value is empty or given twice. */
static bool query_value(struct state_call *c, const char *name, struct str *out)
{
    struct str query = c->query;
    size_t n = strlen(name);
    *out = STR("");
    while (query.len > 0) {
        const char *end = memchr(query.ptr, '&', query.len);
        size_t len = end ? (size_t)(end - query.ptr) : query.len;
        bool is_it =
            len >= n && memcmp(query.ptr, name, n) == 0 && (len == n || query.ptr[n] == '=');
        if (is_it && (out->len > 0 || len <= n + 1))
            return api_error_set(&c->error, 400, name,
                                 "%s must be given only once, and with a value.", name);
        if (is_it)
            *out = (struct str){query.ptr + n + 1, len - n - 1};
        len += end != NULL;
        query = (struct str){query.ptr + len, query.len - len};
    }
    return true;
}

bool state_call_query(struct state_call *c, struct state_query *q)
{
    struct str limit, order, after, purpose;
    uint64_t n = DEFAULT_LIMIT;
    if (!query_value(c, "limit", &limit) || !query_value(c, "order", &order) ||
        !query_value(c, "after", &after) || !query_value(c, "purpose", &purpose))
        return false;
    if (limit.len > 0 && (str_to_u64(limit, &n) != STATUS_OK || n < 1 || n > DEFAULT_LIMIT))
        return api_error_set(&c->error, 400, "limit", "limit must be in [1, %d].", DEFAULT_LIMIT);
    if (order.len > 0 && !str_eq_c(order, "asc") && !str_eq_c(order, "desc"))
        return api_error_set(&c->error, 400, "order", "order must be \"asc\" or \"desc\".");
    *q = (struct state_query){.tenant = c->tenant,
                              .after = after,
                              .purpose = purpose,
                              .limit = (uint32_t)n,
                              .oldest_first = str_eq_c(order, "asc")};
    return true;
}

void state_call_id(struct strbuf *b, const char *name, const char *id)
{
    strbuf_printf(b, ",\"%s\":", name);
    if (id[0])
        strbuf_append_json(b, str_from(id));
    else
        strbuf_append_c(b, "null");
}

void state_answer(struct http_request *r, const struct api_error *e)
{
    const struct http_header_kv retry = {"Retry-After", RETRY_S};
    struct strbuf b;
    strbuf_init(&b, 0);
    api_error_json(e, &b);
    http_respond(r, e->http_status, json_type, strbuf_str(&b), &retry, e->http_status == 503);
    strbuf_fini(&b);
}

void state_answer_error(struct http_request *r, int status, const char *param, const char *text,
                        const char *what)
{
    struct api_error e = {0};
    api_error_set(&e, status, param, "%s%.100s", text, what);
    state_answer(r, &e);
}

void state_answer_busy(struct state_calls *all, struct http_request *r, uint64_t tenant)
{
    struct api_error e = {0};
    if (encode_pool_n_jobs_of(all->thread, tenant) >= STATE_MAX_TENANT_CALLS)
        api_error_set(
            &e, 503, NULL,
            "%d of your calls of /v1/files and /v1/batches are already waiting. Try again later.",
            STATE_MAX_TENANT_CALLS);
    else
        api_error_set(
            &e, 503, NULL,
            "The server is busy with calls of /v1/files and /v1/batches. Try again later.");
    metric_add(all->refused, 1);
    state_answer(r, &e);
}
