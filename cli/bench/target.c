#include "cli/bench/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ASK_TIMEOUT_MS = 30000, ANSWER_LIMIT = 64 << 20 };

enum status bench_target_open(struct bench_target *t, const struct gateway_access *gateway,
                              const char *endpoint, bool is_chat, struct error *err)
{
    size_t n = strlen(gateway->url);
    *t = (struct bench_target){.gateway = *gateway, .is_chat = is_chat};
    while (n > 0 && gateway->url[n - 1] == '/')
        n--;
    if (n > 3 && strncmp(gateway->url + n - 3, "/v1", 3) == 0)
        n -= 3;
    if (n >= sizeof t->base)
        return error_set(err, STATUS_INVALID, "--base-url is too long. Give a shorter URL");
    memcpy(t->base, gateway->url, n);
    if (!endpoint)
        endpoint = is_chat ? "/v1/chat/completions" : "/v1/completions";
    if (endpoint[0] != '/' || strlen(endpoint) >= sizeof t->endpoint)
        return error_set(err, STATUS_INVALID,
                         "--endpoint %.200s is not a path: give a path such as /v1/completions",
                         endpoint);
    memcpy(t->endpoint, endpoint, strlen(endpoint) + 1);
    t->is_chat = is_chat || strstr(endpoint, "chat/completions");
    t->fields = json_object();
    return STATUS_OK;
}

void bench_target_close(struct bench_target *t)
{
    json_decref(t->fields);
    *t = (struct bench_target){0};
}

void bench_error_text(const json_t *answer, char *out, size_t size)
{
    const json_t *e = json_object_get(answer, "error");
    const char *text = json_string_value(json_is_object(e) ? json_object_get(e, "message") : e);
    if (!text)
        text = json_string_value(json_object_get(answer, "message"));
    snprintf(out, size, "%.300s", text ? text : "");
    for (char *c = out; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F)
            *c = '?';
}

enum status bench_target_ask(const struct bench_target *t, const char *path, const json_t *body,
                             int *code, json_t **owned_answer, struct error *err)
{
    char url[1200];
    struct strbuf answer;
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    snprintf(url, sizeof url, "%s%s", t->base, path);
    struct http_call c = gateway_access_call(&t->gateway, url);
    c.headers = t->headers;
    c.n_headers = t->n_headers;
    c.timeout_ms = ASK_TIMEOUT_MS;
    if (text)
        c.body = str_from(text);
    strbuf_init(&answer, ANSWER_LIMIT);
    enum status s = http_client_call(&c, code, &answer, err);
    *owned_answer = s == STATUS_OK
                        ? json_loadb(answer.ptr ? answer.ptr : "", answer.len, JSON_ALLOW_NUL, NULL)
                        : NULL;
    strbuf_fini(&answer);
    free(text);
    return s;
}

/* Returns the name of the i-th model in the server's list; NULL = the list has no i-th model. */
static const char *model_at(const json_t *answer, size_t i)
{
    const json_t *data = json_object_get(answer, "data");
    return json_string_value(json_object_get(json_array_get(data, i), "id"));
}

static enum status find(struct bench_target *t, const char *given, const json_t *answer, int code,
                        struct error *err)
{
    char why[320];
    const char *id = model_at(answer, 0);
    bench_error_text(answer, why, sizeof why);
    if (code == 401 || code == 403)
        return error_set(err, STATUS_DENIED,
                         "%s/v1/models answered with status %d: the API key is missing or wrong. "
                         "Set COX_API_KEY or OPENAI_API_KEY, or give --api-key",
                         t->base, code);
    if (!id && !given)
        return error_set(err, STATUS_PROTOCOL,
                         "%s/v1/models answered with status %d and lists no model%s%s (name the "
                         "model with --model)",
                         t->base, code, why[0] ? ": " : "", why);
    for (size_t i = 0; given && id && strcmp(model_at(answer, i), given) != 0; i++)
        if (!model_at(answer, i + 1))
            return error_set(err, STATUS_NOT_FOUND,
                             "%s does not serve the model \"%.150s\" (--model, "
                             "--served-model-name). It serves \"%.150s\"%s",
                             t->base, given, id, i > 0 ? " and others" : "");
    const char *name = given ? given : id;
    if (strlen(name) >= sizeof t->model)
        return error_set(err, STATUS_INVALID,
                         "the model's name has %zu bytes, which is too long. Check --model and "
                         "--served-model-name",
                         strlen(name));
    memcpy(t->model, name, strlen(name) + 1);
    return STATUS_OK;
}

enum status bench_target_find_model(struct bench_target *t, const char *given, struct error *err)
{
    int code = 0;
    json_t *j = NULL;
    TRY(bench_target_ask(t, "/v1/models", NULL, &code, &j, err));
    enum status s = find(t, given, j, code, err);
    json_decref(j);
    return s;
}

char *bench_target_body(const struct bench_target *t, const char *model, const char *prompt,
                        uint32_t output_tokens)
{
    json_t *body = json_object();
    json_object_set_new(body, "model", json_string(model ? model : t->model));
    if (t->is_chat)
        json_object_set_new(body, "messages",
                            json_pack("[{s:s, s:s}]", "role", "user", "content", prompt));
    else
        json_object_set_new(body, "prompt", json_string(prompt));
    json_object_set_new(body, t->is_chat ? "max_completion_tokens" : "max_tokens",
                        json_integer(output_tokens));
    json_object_set_new(body, "stream", json_true());
    json_object_set_new(body, "stream_options", json_pack("{s:b}", "include_usage", 1));
    json_object_update(body, t->fields);
    char *text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    return text;
}
