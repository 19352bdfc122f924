/* Leads a request from its request line to its handler: finds the row, checks key, host and free
 * memory, then calls the handler.
 * servers.c calls `routes_body_max` and `routes_reads_body` after the headers, and
 * `routes_dispatch` after the body. Each request gets exactly one answer, from this file or from
 * its handler.
 * Only access.c decides about access. The key is looked up again at each step and passed in
 * `struct call`. Nothing is kept between requests. Only the loop thread calls these functions. */
#include "gateway/routes/dispatch.h"

#include "common/http/server/answer.h"
#include "common/http/server/request.h"
#include "gateway/dialects/dialects.h"
#include "gateway/http/reply.h"
#include "gateway/routes/access.h"
#include "gateway/routes/call.h"
#include "gateway/routes/chat_page.h"
#include "gateway/routes/routes.h"
#include "gateway/routes/sagemaker.h"

#define JSON_TYPE "application/json"

/* `MAX_SMALL_BODY` limits a body that names an adapter and its path. Such a body is parsed on
 * the loop. */
enum { MAX_SMALL_BODY = 64 << 10 };

/* Finds the route for this gateway. A chat page that is turned off is an unknown path. */
static enum route_result find(const struct api_server *a, const struct http_request *r,
                              bool on_admin_address, const struct http_route **row, char allow[64])
{
    const struct gateway_config *c = a->config;
    bool page = !c->front.no_chat_page && !c->sagemaker && !on_admin_address;
    allow[0] = '\0';
    if (!page && chat_page_owns(http_path(r)))
        return ROUTE_NOT_FOUND;
    return routes_find(http_method(r), http_path(r), row, allow);
}

static void answer_with(struct http_request *r, const struct dialect *d, const struct api_error *e,
                        const char *header, const char *value)
{
    const struct http_header_kv extra = {header, value};
    struct strbuf b;
    strbuf_init(&b, 0);
    int status = reply_error_body(&b, d, e);
    http_respond(r, status, JSON_TYPE, strbuf_str(&b), &extra, 1);
    strbuf_fini(&b);
}

/* Returns the dialect for errors of an unknown path. Anthropic's packages read only Anthropic's
 * form of an error. */
static const struct dialect *dialect_of_path(struct str path)
{
    const struct str messages = STR("/v1/messages");
    const bool is_below =
        str_starts(path, messages) && (path.len == messages.len || path.ptr[messages.len] == '/');
    return is_below ? &dialect_messages : NULL;
}

/* Answers an unknown path, in DJL's form on SageMaker. */
static void answer_not_found(struct api_server *a, struct http_request *r)
{
    struct api_error e = {0};
    api_error_set(&e, 404, NULL, "Not Found");
    if (a->config->sagemaker)
        sagemaker_answer_unknown(r, 404, NULL);
    else
        reply_error(&http_reply_ops, r, dialect_of_path(http_path(r)), &e);
}

static void answer_not_allowed(struct http_request *r, const char *allow)
{
    struct api_error e = {0};
    api_error_set(&e, 405, NULL, "Method Not Allowed");
    answer_with(r, dialect_of_path(http_path(r)), &e, "Allow", allow);
}

static void answer_unauthorized(struct http_request *r, const struct dialect *d)
{
    struct api_error e = {.code = "invalid_api_key"};
    api_error_set(&e, 401, NULL,
                  "The API key is missing or incorrect. Send it as \"Authorization: Bearer KEY\" "
                  "or as \"x-api-key: KEY\".");
    answer_with(r, d, &e, "WWW-Authenticate", "Bearer");
}

static enum access_verdict verdict_of(const struct api_server *a, const struct http_request *r,
                                      const struct http_route *row, bool on_admin_address,
                                      bool has_key)
{
    const struct access_caller caller = {
        .on_admin_address = on_admin_address,
        .has_key = has_key,
        .has_admin_key = admin_keys_who(&a->admin_keys, http_header(r, "authorization")) != NULL};
    const struct access_rules rules = {.keys = a->auth.n_entries > 0,
                                       .admin_key = a->admin_keys.n > 0,
                                       .admin_address = a->admin_server != NULL,
                                       .metrics_public = a->config->metrics_public};
    return access_decide(&rules, &caller, row);
}

/* Checks the caller's access to the row. Returns false when the request was refused and
 * answered. */
static bool is_allowed(struct api_server *a, struct http_request *r, const struct http_route *row,
                       bool on_admin_address, bool has_key)
{
    switch (verdict_of(a, r, row, on_admin_address, has_key)) {
    case ACCESS_GRANTED:
        return true;
    case ACCESS_WANTS_KEY:
        answer_unauthorized(r, row ? row->dialect : dialect_of_path(http_path(r)));
        return false;
    case ACCESS_NOT_HERE:
        answer_not_found(a, r);
        return false;
    case ACCESS_NO_ADMIN_KEY:
        break;
    }
    call_error(
        r, 403, NULL,
        "Models and adapters cannot be changed through this gateway: it was started without "
        "--admin-key-file. Use `cox models` for the models of `cox up`, and `cox lora`, which "
        "asks the head, for adapters.");
    return false;
}

/* Returns the row if access is granted, else NULL. Sets `key` to the caller's key or NULL. */
static const struct http_route *row_for(struct api_server *a, const struct http_request *r,
                                        bool on_admin_address, const struct api_key **key)
{
    const struct http_route *row = NULL;
    char allow[64];
    if (find(a, r, on_admin_address, &row, allow) != ROUTE_FOUND ||
        host_rule_refuses(on_admin_address ? &a->admin_hosts : &a->hosts, r))
        return NULL;
    *key = auth_find(&a->auth, http_header(r, "Authorization"), http_header(r, "x-api-key"));
    return verdict_of(a, r, row, on_admin_address, *key != NULL) == ACCESS_GRANTED ? row : NULL;
}

/* Charges the request's memory to its key's tenant, or to the client's address. */
static void say_whose(struct http_request *r, const struct api_key *key)
{
    http_set_tenant(r, key ? key->tenant : 0);
}

/* Checks the request by the host rule. Returns false when the rule refused the request, which
 * was then answered. */
static bool is_let_in(struct api_server *a, struct http_request *r, const struct http_route *row,
                      bool on_admin_address)
{
    const char *why = host_rule_refuses(on_admin_address ? &a->admin_hosts : &a->hosts, r);
    if (!why)
        return true;
    struct api_error e = {0};
    api_error_set(&e, 403, NULL, "%s.", why);
    reply_error(&http_reply_ops, r, row ? row->dialect : NULL, &e);
    return false;
}

/* Checks that an answer fits in the memory budget, before anything is computed. Returns false
 * when the request was refused and answered. */
static bool has_room(struct http_request *r, const struct http_route *row)
{
    if (!row || row->access != ACCESS_KEY || http_answer_has_room(r))
        return true;
    struct api_error e = {.retry_after_s = 1};
    api_error_set(&e, 503, NULL,
                  "Too many bytes of answers wait until clients read them, either in your streams "
                  "or in all streams. Read your open streams, then try again.");
    reply_error(&http_reply_ops, r, row->dialect, &e);
    return false;
}

static bool has_body(const struct http_route *row)
{
    return row->access == ACCESS_KEY || row->access == ACCESS_ADMIN;
}

bool routes_reads_body(struct api_server *a, const struct http_request *r, bool on_admin_address)
{
    const struct api_key *key;
    const struct http_route *row = row_for(a, r, on_admin_address, &key);
    return row && has_body(row);
}

uint64_t routes_body_max(struct api_server *a, struct http_request *r, bool on_admin_address)
{
    const struct api_key *key = NULL;
    const struct http_route *row = row_for(a, r, on_admin_address, &key);
    /* waiting for a body that no handler reads would only hold a connection */
    if (!row || !has_body(row))
        return 0;
    say_whose(r, key);
    return row->access == ACCESS_KEY ? UINT64_MAX : MAX_SMALL_BODY;
}

void routes_dispatch(struct api_server *a, struct http_request *r, bool on_admin_address)
{
    const struct http_route *row = NULL;
    char allow[64];
    if (front_begin(&a->front, r))
        return;
    enum route_result found = find(a, r, on_admin_address, &row, allow);
    struct api_key *key =
        auth_find(&a->auth, http_header(r, "Authorization"), http_header(r, "x-api-key"));
    struct access_record *record = front_record(r);
    if (record && key)
        access_record_copy(record->tenant, str_from(key->name));
    say_whose(r, key);
    if (!is_let_in(a, r, row, on_admin_address) ||
        !is_allowed(a, r, found == ROUTE_FOUND ? row : NULL, on_admin_address, key != NULL) ||
        !has_room(r, row))
        return; /* the request was answered */
    if (found == ROUTE_NOT_FOUND)
        answer_not_found(a, r);
    else if (found == ROUTE_METHOD_NOT_ALLOWED && a->config->sagemaker)
        sagemaker_answer_unknown(r, 405, allow);
    else if (found == ROUTE_METHOD_NOT_ALLOWED)
        answer_not_allowed(r, allow);
    else
        row->handle(a, &(struct call){r, row, key});
}
