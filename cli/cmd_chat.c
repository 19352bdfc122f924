/* `cox chat`: lines from the terminal to a gateway, the answer streamed back. Keeps the
 * conversation; with --completion every line is a prompt of its own, continued as text. */
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/sse_reader.h"
#include "cli/tables.h"
#include "common/net/http_client.h"

enum { SILENCE_MS = 120000, MODELS_TIMEOUT_MS = 10000, BODY_LIMIT = 16 << 20 };

#define S chat_options
const struct option_spec chat_specs[] = {
    GATEWAY_ACCESS_ROWS(S),
    OPT_STRING(S, model, "model", NULL, "default: the first that the gateway has"),
    OPT_STRING(S, system, "system", NULL, "system message"),
    OPT_BOOL(S, completion, "completion", NULL, "continue text (a base model), no chat template"),
    OPT_INT(S, max_tokens, "max-tokens", 0, 1 << 24, "0", "0: the gateway's default"),
    OPT_FLOAT(S, temperature, "temperature", -1, 10, "-1", "-1: the gateway's default"),
    OPT_FLOAT(S, top_p, "top-p", -1, 1, "-1", "-1: the gateway's default"),
    OPT_INT(S, seed, "seed", -1, 9007199254740992.0, "-1", "-1: a new one each time"),
};
#undef S
const size_t chat_n_specs = sizeof chat_specs / sizeof chat_specs[0];

struct chat {
    struct chat_options o;
    char url[900], model[512];
    json_t *messages;
    struct sse_reader sse;
    struct strbuf answer, raw; /* text so far; body when it was no stream: an error */
    bool is_stream, failed;
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signum)
{
    (void)signum;
    interrupted = 1;
}

static void fail_text(const struct strbuf *body, int code)
{
    json_t *j = json_loadb(body->ptr ? body->ptr : "", body->len, 0, NULL);
    const char *message =
        json_string_value(json_object_get(json_object_get(j, "error"), "message"));
    fprintf(stderr, "cox chat: %d: %s\n", code, message ? message : "no error text");
    json_decref(j);
}

static void on_data(void *ctx, struct str data)
{
    struct chat *c = ctx;
    c->is_stream = true;
    if (str_eq_c(data, "[DONE]"))
        return;
    json_t *j = json_loadb(data.ptr, data.len, 0, NULL);
    const json_t *choice = json_array_get(json_object_get(j, "choices"), 0);
    const char *piece = json_string_value(
        c->o.completion ? json_object_get(choice, "text")
                        : json_object_get(json_object_get(choice, "delta"), "content"));
    const char *error = json_string_value(json_object_get(json_object_get(j, "error"), "message"));
    if (piece) {
        fputs(piece, stdout);
        fflush(stdout);
        strbuf_append_c(&c->answer, piece);
    }
    if (error) {
        fprintf(stderr, "\ncox chat: %s\n", error);
        c->failed = true;
    }
    json_decref(j);
}

static bool on_bytes(void *ctx, struct str piece)
{
    struct chat *c = ctx;
    if (!c->is_stream)
        strbuf_append_str(&c->raw, piece);
    return sse_reader_feed(&c->sse, piece) && !interrupted;
}

static json_t *make_body(const struct chat *c, const char *line)
{
    json_t *body = json_object();
    json_object_set_new(body, "model", json_string(c->model));
    json_object_set_new(body, "stream", json_true());
    if (c->o.completion)
        json_object_set_new(body, "prompt", json_string(line));
    else
        json_object_set(body, "messages", c->messages);
    if (c->o.max_tokens > 0)
        json_object_set_new(body, "max_tokens", json_integer(c->o.max_tokens));
    if (c->o.temperature >= 0)
        json_object_set_new(body, "temperature", json_real(c->o.temperature));
    if (c->o.top_p >= 0)
        json_object_set_new(body, "top_p", json_real(c->o.top_p));
    if (c->o.seed >= 0)
        json_object_set_new(body, "seed", json_integer(c->o.seed));
    return body;
}

static void add_message(struct chat *c, const char *role, const char *content)
{
    json_array_append_new(c->messages, json_pack("{s:s,s:s}", "role", role, "content", content));
}

/* One line there, one answer back. False: the line could not be answered. */
static bool turn(struct chat *c, const char *line)
{
    char url[1024];
    struct error err = {0};
    int code = 0;
    snprintf(url, sizeof url, "%s/v1/%s", c->url,
             c->o.completion ? "completions" : "chat/completions");
    if (!c->o.completion)
        add_message(c, "user", line);
    json_t *body = make_body(c, line);
    char *text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    strbuf_reset(&c->answer);
    strbuf_reset(&c->raw);
    c->is_stream = c->failed = false;
    interrupted = 0;
    struct http_call call = gateway_access_call(&c->o.gateway, url);
    call.method = "POST";
    call.body = str_from(text);
    call.timeout_ms = SILENCE_MS;
    call.on_data = on_bytes;
    call.ctx = c;
    enum status s = text ? http_client_call(&call, &code, NULL, &err)
                         : error_set(&err, STATUS_INVALID, "the line is not UTF-8");
    free(text);
    bool ok = interrupted || (s == STATUS_OK && code == 200 && !c->failed);
    if (!interrupted && s != STATUS_OK)
        fprintf(stderr, "cox chat: %s\n", err.text);
    else if (!interrupted && code != 200)
        fail_text(&c->raw, code);
    putchar('\n');
    if (!c->o.completion && ok)
        add_message(c, "assistant", c->answer.ptr ? c->answer.ptr : "");
    else if (!c->o.completion)
        json_array_remove(c->messages, json_array_size(c->messages) - 1);
    return ok;
}

static enum status find_model(struct chat *c, struct error *err)
{
    char url[1024];
    struct strbuf text;
    int code = 0;
    if (c->o.model) {
        snprintf(c->model, sizeof c->model, "%s", c->o.model);
        return STATUS_OK;
    }
    snprintf(url, sizeof url, "%s/v1/models", c->url);
    strbuf_init(&text, BODY_LIMIT);
    struct http_call call = gateway_access_call(&c->o.gateway, url);
    call.timeout_ms = MODELS_TIMEOUT_MS;
    enum status s = http_client_call(&call, &code, &text, err);
    json_t *j = s == STATUS_OK ? json_loadb(text.ptr ? text.ptr : "", text.len, 0, NULL) : NULL;
    const char *id =
        json_string_value(json_object_get(json_array_get(json_object_get(j, "data"), 0), "id"));
    const char *why = json_string_value(json_object_get(json_object_get(j, "error"), "message"));
    if (s == STATUS_OK && code == 401)
        s = error_set(err, STATUS_DENIED, "%s wants a key: --api-key KEY or COX_API_KEY", url);
    else if (s == STATUS_OK && !id)
        s = error_set(err, STATUS_PROTOCOL, "%s answered %d and names no model%s%s", url, code,
                      why ? ": " : "", why ? why : "");
    else if (id)
        snprintf(c->model, sizeof c->model, "%s", id);
    json_decref(j);
    strbuf_fini(&text);
    return s;
}

/* Taken as people paste it: with a slash at the end, or with the /v1 of a base_url. */
static enum status read_url(struct chat *c, struct error *err)
{
    size_t n = strlen(c->o.gateway.url);
    while (n > 0 && c->o.gateway.url[n - 1] == '/')
        n--;
    if (n > 3 && strncmp(c->o.gateway.url + n - 3, "/v1", 3) == 0)
        n -= 3;
    if (n >= sizeof c->url)
        return error_set(err, STATUS_INVALID, "--url is too long");
    snprintf(c->url, sizeof c->url, "%.*s", (int)n, c->o.gateway.url);
    return STATUS_OK;
}

static int converse(struct chat *c)
{
    struct error err = {0};
    if (read_url(c, &err) != STATUS_OK || find_model(c, &err) != STATUS_OK) {
        fprintf(stderr, "cox chat: %s\n", err.text);
        return EXIT_FAILED;
    }
    /* Ctrl-C ends an answer, a second one at the prompt ends the program; no SA_RESTART, so that
     * getline returns. */
    struct sigaction sa = {.sa_handler = on_interrupt};
    (void)sigaction(SIGINT, &sa, NULL);
    bool terminal = isatty(STDIN_FILENO), ok = true;
    if (terminal)
        fprintf(stderr, "%s at %s. Ctrl-C stops an answer, Ctrl-D ends.\n", c->model, c->url);
    if (c->o.system && !c->o.completion)
        add_message(c, "system", c->o.system);
    char *line = NULL;
    size_t cap = 0;
    for (;;) {
        if (terminal)
            fputs("> ", stderr);
        interrupted = 0;
        ssize_t n = getline(&line, &cap, stdin);
        if (n < 0)
            break;
        if (n > 0 && line[n - 1] == '\n')
            line[--n] = '\0';
        if (n == 0)
            continue;
        struct str said = {line, (size_t)n};
        if (str_utf8_valid(said) != said.len || memchr(line, '\0', said.len)) {
            fputs("cox chat: this line is not UTF-8 text\n", stderr);
            ok = terminal;
            continue;
        }
        ok = turn(c, line) && (ok || terminal);
    }
    free(line);
    return ok ? EXIT_FINE : EXIT_FAILED;
}

int cmd_chat(int argc, char **argv)
{
    struct chat c = {0};
    struct config_result res;
    int code;
    const struct command_line line = {
        .usage = "cox chat [OPTION...]", .specs = chat_specs, .n_specs = chat_n_specs};
    if (command_parse(&line, argc, argv, &c.o, &res, &code)) {
        c.messages = json_array();
        strbuf_init(&c.answer, 0);
        strbuf_init(&c.raw, BODY_LIMIT);
        sse_reader_init(&c.sse, on_data, &c);
        code = converse(&c);
        sse_reader_fini(&c.sse);
        strbuf_fini(&c.raw);
        strbuf_fini(&c.answer);
        json_decref(c.messages);
    }
    config_fini(&res);
    return code;
}
