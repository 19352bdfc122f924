/* Builds the OpenAPI document of this gateway, for GET /openapi.json and `cox-gateway openapi`.
 * The hand-written openapi.json is the base. This file adds bodies from the table of fields and
 * security from the table of routes. Members named x-… are instructions for this file and are
 * removed.
 * The document depends only on the tables and `struct openapi_world`, so it is built once at the
 * start. The document under construction owns all JSON. */
#include "gateway/routes/openapi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/version.h"
#include "common/options/gateway.h"
#include "gateway/fields/table.h"
#include "gateway/routes/routes.h"

/* ---- request bodies, from the table of fields ---- */

static const struct {
    enum api_kind kind;
    /* `family`: prefix of fields that have another form in this dialect */
    const char *name, *family;
} kinds[] = {
    {API_COMPLETIONS, "completions", ""},
    {API_CHAT, "chat", ""},
    {API_RESPONSES, "responses", "responses."},
    {API_EMBEDDINGS, "embeddings", "embeddings."},
    {API_MESSAGES, "messages", "anthropic."},
    {API_COUNT_TOKENS, "count_tokens", "anthropic."},
    {API_TOKENIZE, "tokenize", ""},
    {API_DETOKENIZE, "detokenize", ""},
};

const char *openapi_kind_name(enum api_kind kind)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].kind == kind)
            return kinds[i].name;
    return NULL;
}

/* Returns the hand-written schema of a field: the dialect's own, or the common one. */
static json_t *schema_by_hand(const json_t *by_hand, const char *family, const char *name)
{
    char own[96];
    snprintf(own, sizeof own, "%s%s", family, name);
    json_t *v = json_object_get(by_hand, own);
    return json_deep_copy(v ? v : json_object_get(by_hand, name));
}

/* Returns a bound of the table, as an integer when it is whole. 2^63 exceeds the range of JSON's
 * reader, so it stays a real number. */
static json_t *bound(double d)
{
    if (d >= -0x1p62 && d <= 0x1p62 && d == (double)(int64_t)d)
        return json_integer((int64_t)d);
    return json_real(d);
}

static json_t *number_schema(const struct field *f)
{
    json_t *s = json_pack("{s:s}", "type", f->type == FIELD_FLOAT ? "number" : "integer");
    json_object_set_new(s, f->above_min ? "exclusiveMinimum" : "minimum", bound(f->min));
    json_object_set_new(s, "maximum", bound(f->max));
    return s;
}

static json_t *only_schema(const char *only)
{
    json_t *list = json_array();
    while (*only) {
        size_t n = strcspn(only, "|");
        json_array_append_new(list, json_loadb(only, n, JSON_DECODE_ANY, NULL));
        only += n + (only[n] == '|');
    }
    return json_pack("{s:o}", "enum", list);
}

/* Returns the schema of a field, or NULL when the field accepts anything. */
static json_t *field_schema(const struct field *f, const json_t *by_hand, const char *family)
{
    static const char *const types[] = {
        [JSON_OBJECT] = "object", [JSON_ARRAY] = "array", [JSON_STRING] = "string"};
    json_t *s = NULL;
    switch (f->type) {
    case FIELD_BOOL:
        return json_pack("{s:s}", "type", "boolean");
    case FIELD_INT:
    case FIELD_U32:
    case FIELD_FLOAT:
        return number_schema(f);
    case FIELD_STR:
        return json_pack("{s:s,s:I}", "type", "string", "maxLength", (json_int_t)f->max);
    case FIELD_ONLY:
        return only_schema(f->only);
    case FIELD_REFUSE:
        return json_pack("{s:[b,s,[],{}]}", "enum", 0, "");
    case FIELD_HARMLESS:
        return NULL;
    case FIELD_JSON:
    case FIELD_CUSTOM:
        break;
    }
    if (f->type == FIELD_CUSTOM || f->want != JSON_STRING)
        s = schema_by_hand(by_hand, family, f->name);
    if (!s && f->type == FIELD_JSON && f->want != JSON_NULL)
        s = json_pack("{s:s}", "type", types[f->want]);
    return s;
}

static bool is_required(const json_t *request, const char *name)
{
    const json_t *list = json_object_get(request, "required");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(json_string_value(json_array_get(list, i)), name) == 0)
            return true;
    return false;
}

/* Returns the schema of a member. null is the same as an absent member, so only required members
 * exclude null. */
static json_t *property(const struct field *f, const json_t *by_hand, const char *family,
                        const json_t *request)
{
    json_t *s = field_schema(f, by_hand, family);
    if (s && !is_required(request, f->name))
        s = json_pack("{s:[o,{s:s}]}", "anyOf", s, "type", "null");
    if (!s)
        s = json_object();
    if (f->type == FIELD_REFUSE || f->type == FIELD_HARMLESS || f->why) {
        char text[256];
        snprintf(text, sizeof text, "%s%s",
                 f->type == FIELD_REFUSE     ? "Refused: "
                 : f->type == FIELD_HARMLESS ? "Without effect: "
                                             : "",
                 f->why);
        json_object_set_new(s, "description", json_string(text));
    }
    return s;
}

/* Returns the schema for unknown members. Even when unknown members are refused, null is allowed
 * like an absent member. */
static json_t *unknown_members(enum unknown_fields policy)
{
    return policy == UNKNOWN_REFUSE ? json_pack("{s:s}", "type", "null") : json_true();
}

static json_t *request_schema(const struct openapi_world *w, size_t i_kind, const json_t *by_hand,
                              json_t *request)
{
    const struct field *f;
    json_t *properties = json_object(), *s = json_pack("{s:s}", "type", "object");
    for (size_t i = 0; (f = fields_at(i)); i++)
        if (f->kinds & kinds[i_kind].kind)
            json_object_set_new(properties, f->name,
                                property(f, by_hand, kinds[i_kind].family, request));
    json_object_set(s, "required", json_object_get(request, "required"));
    json_object_set_new(s, "properties", properties);
    json_object_set_new(s, "additionalProperties", unknown_members(w->unknown));
    json_object_set_new(s, "examples", json_pack("[O]", json_object_get(request, "example")));
    return s;
}

/* Replaces "additionalProperties": "unknown" by the schema of the policy. */
static void fill_unknown(json_t *v, enum unknown_fields policy)
{
    const char *key;
    json_t *member;
    json_object_foreach(v, key, member)
    {
        if (strcmp(key, "additionalProperties") == 0 && json_is_string(member))
            json_object_set_new(v, key, unknown_members(policy));
        else
            fill_unknown(member, policy);
    }
    for (size_t i = 0; i < json_array_size(v); i++)
        fill_unknown(json_array_get(v, i), policy);
}

static void add_requests(const struct openapi_world *w, json_t *doc)
{
    json_t *schemas = json_object_get(json_object_get(doc, "components"), "schemas");
    json_t *by_hand = json_object_get(doc, "x-fields"), *request;
    const char *name;
    fill_unknown(by_hand, w->unknown);
    json_object_foreach(json_object_get(doc, "x-requests"), name, request)
    {
        const char *kind = json_string_value(json_object_get(request, "kind"));
        for (size_t i = 0; kind && i < sizeof kinds / sizeof *kinds; i++)
            if (strcmp(kinds[i].name, kind) == 0)
                json_object_set_new(schemas, name, request_schema(w, i, by_hand, request));
    }
}

/* ---- operations ---- */

static json_t *reference(const char *what, const char *name)
{
    char text[96];
    snprintf(text, sizeof text, "#/components/%s/%s", what, name);
    return json_pack("{s:s}", "$ref", text);
}

static json_t *taken(json_t *operation, const char *key)
{
    json_t *v = json_incref(json_object_get(operation, key));
    json_object_del(operation, key);
    return v;
}

/* Adds the schemas that x-body, x-answer and x-stream name. */
static void add_body_and_answer(json_t *op)
{
    json_t *body = taken(op, "x-body"), *answer = taken(op, "x-answer");
    json_t *stream = taken(op, "x-stream");
    json_t *responses = json_object_get(op, "responses");
    if (!responses)
        json_object_set_new(op, "responses", responses = json_object());
    if (body)
        json_object_set_new(op, "requestBody",
                            json_pack("{s:b,s:{s:{s:o}}}", "required", 1, "content",
                                      "application/json", "schema",
                                      reference("schemas", json_string_value(body))));
    if (answer) {
        json_t *content = json_pack("{s:{s:o}}", "application/json", "schema",
                                    reference("schemas", json_string_value(answer)));
        const char *at = stream ? json_string_value(stream) : "";
        while (*at) {
            size_t n = strcspn(at, " ");
            json_object_setn_new(content, at, n,
                                 json_pack("{s:{s:s}}", "schema", "type", "string"));
            at += n + (at[n] == ' ');
        }
        json_object_set_new(
            responses, "200",
            json_pack("{s:s,s:o}", "description", "the answer", "content", content));
    }
    json_decref(body);
    json_decref(answer);
    json_decref(stream);
}

/* Adds the request headers of the list that x-headers names. An answer of an operation that takes
 * x-slo-ttft-ms has headers of its own. */
static void add_headers(json_t *op, const json_t *lists)
{
    static const char *const answered[] = {"X-Slo-Predicted-Ttft-Ms", "X-Coxswain-Fallback-Of",
                                           "X-Coxswain-Tools-Left-Out"};
    json_t *name = taken(op, "x-headers"), *parameters = json_array(), *headers = json_object();
    const json_t *list = json_object_get(lists, json_string_value(name));
    json_t *answer = json_object_get(json_object_get(op, "responses"), "200");
    bool has_tokens = false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *word = json_string_value(json_array_get(list, i));
        json_array_append_new(parameters, reference("parameters", word));
        has_tokens |= strcmp(word, "x-slo-ttft-ms") == 0;
    }
    for (size_t i = 0; i < sizeof answered / sizeof *answered; i++)
        json_object_set_new(headers, answered[i], reference("headers", answered[i]));
    if (list)
        json_object_set(op, "parameters", parameters);
    if (has_tokens)
        json_object_set(answer, "headers", headers);
    json_decref(name);
    json_decref(parameters);
    json_decref(headers);
}

/* Adds an error to an operation. When the operation already has an answer of this status, the
 * error's JSON is added to that answer. Errors before the handler use the same status. */
static void add_error(json_t *op, const char *status, const char *shape)
{
    json_t *responses = json_object_get(op, "responses");
    json_t *there = json_object_get(responses, status);
    if (!there) {
        json_object_set_new(responses, status, reference("responses", shape));
    } else if (!json_object_get(there, "$ref")) {
        json_object_set_new(json_object_get(there, "content"), "application/json",
                            json_pack("{s:o}", "schema", reference("schemas", "Error")));
    }
}

static void add_errors(json_t *op, const json_t *lists)
{
    json_t *name = taken(op, "x-errors"), *shape = taken(op, "x-error");
    const char *word = shape ? json_string_value(shape) : "Error";
    const json_t *own[] = {json_object_get(lists, json_string_value(name)),
                           json_object_get(lists, "always")};
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < json_array_size(own[k]); i++)
            add_error(op, json_string_value(json_array_get(own[k], i)), word);
    json_decref(name);
    json_decref(shape);
}

static void add_security(const struct openapi_world *w, json_t *op, enum route_access access)
{
    json_t *shape = json_object_get(op, "x-error");
    bool is_metrics = access == ACCESS_METRICS;
    bool open = access == ACCESS_OPEN || (is_metrics && w->metrics_public) ||
                (!w->keys && access != ACCESS_ADMIN && !(is_metrics && w->metrics_away));
    json_t *list = json_array();
    if (!open && access != ACCESS_ADMIN && w->keys) {
        json_array_append_new(list, json_pack("{s:[]}", "bearer"));
        json_array_append_new(list, json_pack("{s:[]}", "x-api-key"));
    }
    if (!open && access != ACCESS_KEY && (is_metrics ? w->metrics_key : w->admin))
        json_array_append_new(list, json_pack("{s:[]}", "admin"));
    if (!open && is_metrics && !w->keys && !w->metrics_key)
        add_error(op, "404", "Error");
    else if (!open)
        add_error(op, "401", shape ? json_string_value(shape) : "Error");
    json_object_set_new(op, "security", list);
}

/* Adds {model} and similar as parameters of all operations of the path. */
static void add_parameters(const char *path, json_t *operations)
{
    json_t *list = json_array();
    for (const char *at = path; (at = strchr(at, '{')); at++) {
        size_t n = strcspn(at + 1, "}");
        json_array_append_new(list, json_pack("{s:o,s:s,s:b,s:{s:s,s:i}}", "name",
                                              json_stringn(at + 1, n), "in", "path", "required", 1,
                                              "schema", "type", "string", "minLength", 1));
    }
    if (json_array_size(list) > 0)
        json_object_set(operations, "parameters", list);
    json_decref(list);
}

/* Returns the route of an operation. Each parameter stands for one segment. */
static const struct http_route *route_of(const char *method, const char *path)
{
    static const char *const methods[][2] = {
        {"get", "GET"}, {"post", "POST"}, {"put", "PUT"}, {"patch", "PATCH"}, {"delete", "DELETE"}};
    const char *upper = "";
    char plain[128], allow[64];
    const struct http_route *row = NULL;
    size_t n = 0;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (strcmp(method, methods[i][0]) == 0)
            upper = methods[i][1];
    for (const char *at = path; *at && n + 1 < sizeof plain; at++) {
        plain[n++] = *at;
        if (*at != '{')
            continue;
        plain[n - 1] = 'x';
        at += strcspn(at, "}");
    }
    routes_find(str_from(upper), (struct str){plain, n}, &row, allow);
    return row;
}

static bool is_here(const struct openapi_world *w, json_t *op)
{
    json_t *when = taken(op, "x-when");
    const char *word = when ? json_string_value(when) : "";
    bool here = strcmp(word, "state") == 0    ? w->state
                : strcmp(word, "admin") == 0  ? w->admin
                : strcmp(word, "models") == 0 ? w->admin && w->models
                                              : true;
    json_decref(when);
    return here;
}

static void add_operations(const struct openapi_world *w, json_t *doc)
{
    const char *path, *method;
    json_t *operations, *op;
    void *next_path, *next;
    json_t *paths = json_object_get(doc, "paths");
    json_object_foreach_safe(paths, next_path, path, operations)
    {
        json_object_foreach_safe(operations, next, method, op)
        {
            const struct http_route *row = route_of(method, path);
            if (!is_here(w, op) || !row) {
                json_object_del(operations, method);
                continue;
            }
            add_body_and_answer(op);
            add_headers(op, json_object_get(doc, "x-headers"));
            add_security(w, op, row->access);
            add_errors(op, json_object_get(doc, "x-errors"));
        }
        if (json_object_size(operations) == 0)
            json_object_del(paths, path);
        else
            add_parameters(path, operations);
    }
}

/* ---- the document ---- */

/* Adapts the paths to SageMaker, where chat's path belongs to DJL, and health has DJL's form. */
static void use_sagemaker(json_t *paths)
{
    static const char *const methods[] = {"get", "post"};
    for (size_t i = 0; i < 2; i++) {
        json_t *ping = json_object_get(json_object_get(paths, "/ping"), methods[i]);
        const char *texts[] = {"200", "a replica serves", "500", "none does any more"};
        for (size_t k = 0; k < 4; k += 2)
            json_object_set_new(json_object_get(ping, "responses"), texts[k],
                                json_pack("{s:s,s:{s:{s:{s:s}}}}", "description", texts[k + 1],
                                          "content", "application/json", "schema", "type",
                                          "object"));
    }
    json_t *own = json_deep_copy(json_object_get(paths, "/invocations"));
    json_object_set_new(json_object_get(own, "post"), "operationId", json_string("invokeChat"));
    json_object_set_new(paths, "/v1/chat/completions", own);
}

struct openapi_world openapi_world_of(const struct gateway_config *c)
{
    return (struct openapi_world){
        .keys = c->api_keys.n_items > 0 || (c->api_key_file && c->api_key_file[0]),
        .admin = c->admin_key_file && c->admin_key_file[0] && c->admin_port < 0,
        .metrics_public = c->metrics_public,
        .models = c->models != NULL,
        .metrics_away = c->admin_port >= 0,
        .metrics_key = c->admin_key_file && c->admin_key_file[0],
        .state = c->state_dir && c->state_dir[0],
        .sagemaker = c->sagemaker,
        .unknown = (enum unknown_fields)c->unknown_fields,
    };
}

void openapi_document(const struct openapi_world *w, struct strbuf *out)
{
    json_t *doc = json_loadb(openapi_base, openapi_base_len, JSON_REJECT_DUPLICATES, NULL);
    json_object_set_new(json_object_get(doc, "info"), "version", json_string(COX_VERSION));
    if (w->sagemaker)
        use_sagemaker(json_object_get(doc, "paths"));
    add_requests(w, doc);
    add_operations(w, doc);
    json_object_del(doc, "x-requests");
    json_object_del(doc, "x-fields");
    json_object_del(doc, "x-headers");
    json_object_del(doc, "x-errors");
    char *text = json_dumps(doc, JSON_COMPACT);
    strbuf_append_c(out, text ? text : "{}");
    strbuf_append_c(out, "\n");
    free(text);
    json_decref(doc);
}
