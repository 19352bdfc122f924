/* Tests the OpenAPI document against the tables of routes and of fields. Every route and every
 * field is in the document, and nothing else is. The second part sends the documented examples
 * and bounds to `params_init`. Invariant: the server behaves as the document says. */
#include "gateway/routes/openapi.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/auth/api_key.h"
#include "gateway/fields/read.h"
#include "gateway/fields/table.h"
#include "gateway/prepare/dialect.h"
#include "gateway/routes/chat_page.h"
#include "gateway/routes/routes.h"

static json_t *document(const struct openapi_world *w)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    openapi_document(w, &b);
    json_t *doc = json_loadb(b.ptr, b.len, JSON_REJECT_DUPLICATES, NULL);
    strbuf_fini(&b);
    assert_non_null(doc);
    return doc;
}

static const struct openapi_world all = {
    .keys = true, .admin = true, .metrics_key = true, .state = true, .models = true};

/* Returns the route of a documented path and method, such as the path
 * "/v1/files/{file_id}/content" and the method "post". */
static const struct http_route *route_of(const char *method, const char *path)
{
    const char *upper = strcmp(method, "get") == 0      ? "GET"
                        : strcmp(method, "post") == 0   ? "POST"
                        : strcmp(method, "put") == 0    ? "PUT"
                        : strcmp(method, "patch") == 0  ? "PATCH"
                        : strcmp(method, "delete") == 0 ? "DELETE"
                                                        : "";
    char plain[128] = "", allow[64];
    const struct http_route *row = NULL;
    for (size_t n = 0; *path; path++) {
        plain[n++] = *path;
        if (*path != '{')
            continue;
        plain[n - 1] = 'x';
        path = strchr(path, '}');
    }
    return routes_find(str_from(upper), str_from(plain), &row, allow) == ROUTE_FOUND ? row : NULL;
}

static void test_every_route_is_in_it(void **state)
{
    json_t *doc = document(&all), *operations, *op;
    const char *path, *method;
    size_t n, n_ops = 0;
    const struct http_route *rows = routes_all(&n);
    bool *found = calloc(n, sizeof *found);
    json_object_foreach(json_object_get(doc, "paths"), path, operations)
    {
        json_object_foreach(operations, method, op)
        {
            if (strcmp(method, "parameters") == 0)
                continue;
            const struct http_route *row = route_of(method, path);
            if (!row)
                fail_msg("%s %s is no route", method, path);
            found[row - rows] = true;
            n_ops++;
            const json_t *responses = json_object_get(op, "responses");
            bool wants_key = json_array_size(json_object_get(op, "security")) > 0;
            assert_int_equal(wants_key, row->access != ACCESS_OPEN);
            assert_int_equal(wants_key, json_object_get(responses, "401") != NULL);
            assert_true(json_object_size(responses) > 3);
            if (row->dialect)
                assert_non_null(json_object_get(json_object_get(responses, "200"), "content"));
        }
    }
    for (size_t i = 0; i < n; i++)
        /* the page is not part of the API */
        if (!found[i] && !chat_page_owns(str_from(rows[i].path)))
            fail_msg("%s %s is not in gateway/routes/openapi.json", rows[i].method, rows[i].path);
    assert_true(n_ops + 2 >= n); /* two rows belong to the chat page */
    free(found);
    json_decref(doc);
}

static bool has_parameter(const json_t *op, const char *name)
{
    const json_t *list = json_object_get(op, "parameters");
    char want[96];
    snprintf(want, sizeof want, "#/components/parameters/%s", name);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *is = json_string_value(json_object_get(json_array_get(list, i), "$ref"));
        if (is && strcmp(is, want) == 0)
            return true;
    }
    return false;
}

/* A route whose dialect generates takes a promise of the first token, and tells the prediction in
 * the answer and in the 429. Every route with a dialect chooses among the models of a route. */
static void test_headers(void **state)
{
    json_t *doc = document(&all), *operations, *op;
    const char *path, *method;
    json_object_foreach(json_object_get(doc, "paths"), path, operations)
    {
        json_object_foreach(operations, method, op)
        {
            const struct http_route *row =
                strcmp(method, "parameters") == 0 ? NULL : route_of(method, path);
            if (!row)
                continue;
            const bool generates = row->dialect && !row->dialect->answer;
            const json_t *responses = json_object_get(op, "responses");
            const json_t *headers = json_object_get(json_object_get(responses, "200"), "headers");
            assert_int_equal(has_parameter(op, "x-coxswain-model"), row->dialect != NULL);
            assert_int_equal(has_parameter(op, "x-request-id"), row->dialect != NULL);
            assert_int_equal(has_parameter(op, "x-slo-ttft-ms"), generates);
            assert_int_equal(has_parameter(op, "x-coxswain-usage"), generates);
            assert_int_equal(json_object_get(headers, "X-Slo-Predicted-Ttft-Ms") != NULL,
                             generates);
            if (generates)
                assert_non_null(json_object_get(responses, "429"));
        }
    }
    json_t *components = json_object_get(doc, "components");
    const json_t *slo = json_object_get(json_object_get(components, "parameters"), "x-slo-ttft-ms");
    char range[40];
    snprintf(range, sizeof range, "1 to %u;", SLO_TTFT_MS_MAX);
    assert_non_null(strstr(json_string_value(json_object_get(slo, "description")), range));
    json_object_foreach(json_object_get(components, "responses"), path, op)
        assert_non_null(json_object_get(json_object_get(op, "headers"), "X-Slo-Predicted-Ttft-Ms"));
    json_decref(doc);
}

static json_t *request_of(const json_t *doc, enum api_kind kind)
{
    static const struct {
        enum api_kind kind;
        const char *schema;
    } names[] = {{API_COMPLETIONS, "CompletionRequest"}, {API_CHAT, "ChatCompletionRequest"},
                 {API_RESPONSES, "ResponseRequest"},     {API_EMBEDDINGS, "EmbeddingRequest"},
                 {API_MESSAGES, "MessageRequest"},       {API_COUNT_TOKENS, "TokenCountRequest"},
                 {API_TOKENIZE, "TokenizeRequest"},      {API_DETOKENIZE, "DetokenizeRequest"}};
    json_t *schemas = json_object_get(json_object_get(doc, "components"), "schemas");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].kind == kind)
            return json_object_get(schemas, names[i].schema);
    return NULL;
}

/* The schema of a field comes from the table or from x-fields, which is written by hand. Only a
 * harmless field may have no type. */
static void test_every_field_is_in_it(void **state)
{
    json_t *doc = document(&all);
    for (unsigned kind = 1; kind <= API_RESPONSES; kind <<= 1) {
        json_t *properties = json_object_get(request_of(doc, kind), "properties");
        const struct field *f;
        size_t n = 0;
        for (size_t i = 0; (f = fields_at(i)); i++) {
            if (!(f->kinds & kind))
                continue;
            n++;
            const json_t *p = json_object_get(properties, f->name);
            bool says = json_object_get(p, "anyOf") || json_object_get(p, "type") ||
                        json_object_get(p, "enum");
            if (!p || says == (f->type == FIELD_HARMLESS))
                fail_msg("%s of %s: nothing is said of it by hand (x-fields)", f->name,
                         openapi_kind_name(kind));
        }
        assert_int_equal(json_object_size(properties), n);
        assert_true(n > 0);
    }
    json_decref(doc);
}

/* Every entry of x-fields belongs to a field of the table. */
static void test_nothing_is_left_over(void **state)
{
    json_t *base = json_loadb(openapi_base, openapi_base_len, 0, NULL), *schema;
    const char *key;
    json_object_foreach(json_object_get(base, "x-fields"), key, schema)
    {
        const char *dot = strchr(key, '.'), *name = dot ? dot + 1 : key;
        const struct field *f = NULL;
        bool found = false;
        for (size_t i = 0; (f = fields_at(i)) && !found; i++)
            found =
                strcmp(f->name, name) == 0 && (f->type == FIELD_CUSTOM || f->type == FIELD_JSON);
        if (!found)
            fail_msg("x-fields: there is no field %s", key);
    }
    json_decref(base);
}

/* ---- the server behaves as the document says ---- */

static const struct params_policy policy = {
    .max_logprobs = PARAMS_MAX_LOGPROBS, .auto_tools = true, .trust_chat_template = true};

/* Returns true when a body of this kind is accepted. Only its fields are checked. */
static bool is_taken(enum api_kind kind, const json_t *body, struct api_error *e)
{
    struct params p;
    *e = (struct api_error){0};
    bool ok = params_init(&p, kind, json_deep_copy(body), &policy, e);
    params_fini(&p);
    return ok;
}

static void test_examples_and_what_is_required(void **state)
{
    json_t *doc = document(&all);
    for (unsigned kind = 1; kind <= API_RESPONSES; kind <<= 1) {
        json_t *request = request_of(doc, kind);
        json_t *example = json_array_get(json_object_get(request, "examples"), 0);
        const json_t *required = json_object_get(request, "required");
        struct api_error e;
        if (!is_taken(kind, example, &e))
            fail_msg("%s: the example is refused: %s", openapi_kind_name(kind), e.message);
        for (size_t i = 0; i < json_array_size(required); i++) {
            const char *name = json_string_value(json_array_get(required, i));
            json_t *without = json_deep_copy(example);
            assert_int_equal(json_object_del(without, name), 0);
            assert_false(is_taken(kind, without, &e));
            json_object_set_new(without, name, json_null());
            assert_false(is_taken(kind, without, &e));
            assert_string_equal(e.param, name);
            json_decref(without);
        }
        json_t *with = json_deep_copy(example);
        json_object_set_new(with, "nobody_knows", json_null());
        assert_true(is_taken(kind, with, &e));
        json_object_set_new(with, "nobody_knows", json_integer(1));
        assert_false(is_taken(kind, with, &e));
        json_decref(with);
    }
    json_decref(doc);
}

/* Checks that the server accepts the documented minimum and maximum, and refuses values beyond
 * them. */
static void check_bounds(enum api_kind kind, const json_t *example, const char *name,
                         const json_t *schema)
{
    const struct {
        const char *bound;
        double step;
        bool inside;
    } probes[] = {{"minimum", 0, true},
                  {"minimum", -1, false},
                  {"maximum", 0, true},
                  {"maximum", 1, false},
                  {"exclusiveMinimum", 0, false}};
    for (size_t i = 0; i < sizeof probes / sizeof *probes; i++) {
        const json_t *at = json_object_get(schema, probes[i].bound);
        struct api_error e;
        double v = json_number_value(at) + probes[i].step;
        if (!at || (probes[i].step != 0 && v == json_number_value(at)))
            continue; /* a double cannot represent 2^63 and 2^63 + 1 as different numbers */
        json_t *body = json_deep_copy(example);
        json_object_set_new(body, name, json_real(v));
        /* An error from a rule between two fields, such as best_of and n, does not count. */
        bool taken = is_taken(kind, body, &e) || !strstr(e.message, "must be in");
        if (taken != probes[i].inside)
            fail_msg("%s of %s: %s %g: %s", name, openapi_kind_name(kind), probes[i].bound, v,
                     taken ? "taken" : e.message);
        json_decref(body);
    }
}

static void test_bounds_and_types(void **state)
{
    json_t *doc = document(&all), *property;
    const char *name;
    size_t n = 0;
    for (unsigned kind = 1; kind <= API_RESPONSES; kind <<= 1) {
        json_t *request = request_of(doc, kind);
        const json_t *example = json_array_get(json_object_get(request, "examples"), 0);
        json_object_foreach(json_object_get(request, "properties"), name, property)
        {
            /* A nullable field is an anyOf of its type and null. Any other field has one type,
             * or several forms that `read` handles. */
            const json_t *list = json_object_get(property, "anyOf");
            const json_t *other = json_object_get(json_array_get(list, 1), "type");
            bool may_lack = json_is_string(other) && strcmp(json_string_value(other), "null") == 0;
            const json_t *schema = may_lack ? json_array_get(list, 0) : property;
            const char *type = json_string_value(json_object_get(schema, "type"));
            struct api_error e;
            json_t *body = json_deep_copy(example);
            if (!type) {
                json_decref(body);
                continue;
            }
            /* the value has a type that the field does not accept */
            json_object_set_new(body, name,
                                strcmp(type, "boolean") == 0 ? json_string("x") : json_true());
            if (is_taken(kind, body, &e) || strcmp(e.param, name) != 0)
                fail_msg("%s of %s: another type than %s: %s", name, openapi_kind_name(kind), type,
                         e.message);
            json_decref(body);
            check_bounds(kind, example, name, schema);
            n++;
        }
    }
    assert_true(n > 100);
    json_decref(doc);
}

static void test_worlds(void **state)
{
    const struct openapi_world bare = {0}, lax = {.unknown = UNKNOWN_WARN, .sagemaker = true};
    json_t *doc = document(&bare), *paths = json_object_get(doc, "paths");
    assert_null(json_object_get(paths, "/v1/files"));
    assert_null(json_object_get(paths, "/v1/load_lora_adapter"));
    assert_null(json_object_get(paths, "/admin/models/{model}"));
    json_t *models = json_object_get(json_object_get(paths, "/v1/models"), "get");
    assert_int_equal(json_array_size(json_object_get(models, "security")), 0);
    assert_null(json_object_get(json_object_get(models, "responses"), "401"));
    json_decref(doc);
    doc = document(&lax);
    assert_true(json_is_true(json_object_get(request_of(doc, API_CHAT), "additionalProperties")));
    json_t *chat = json_object_get(json_object_get(doc, "paths"), "/v1/chat/completions");
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(chat, "post"), "operationId")),
        "invokeChat");
    json_decref(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_route_is_in_it),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_every_field_is_in_it),
        cmocka_unit_test(test_nothing_is_left_over),
        cmocka_unit_test(test_examples_and_what_is_required),
        cmocka_unit_test(test_bounds_and_types),
        cmocka_unit_test(test_worlds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
