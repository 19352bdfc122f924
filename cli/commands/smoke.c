/* Implements `cox smoke`, which checks as a client that a gateway works. The checks are health,
 * the list of models, a completion and a stream. Each check is repeated until it passes or the
 * time is over, and prints one line.
 * Invariants: a failure that waiting cannot repair (a wrong key, an unknown model) ends the
 * command at once. All checks share one deadline. The first check that fails ends the command.
 * The command runs in one thread. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/client/gateway_access.h"
#include "cli/client/sse_reader.h"
#include "cli/commands/command.h"
#include "cli/commands/tables.h"
#include "common/base/clock.h"

struct smoke_options {
    struct gateway_access gateway;
    const char *model;
    int64_t timeout_s;
};

enum { PAUSE_MS = 500, CALL_MAX_MS = 120000, BODY_LIMIT = 4 << 20, N_TOKENS = 4 };

#define S smoke_options
const struct option_spec smoke_specs[] = {
    GATEWAY_ACCESS_ROWS(S),
    OPT_STRING(S, model, "model", NULL,
               "Name of the model to ask. Default: the first one of the gateway."),
    OPT_INT(S, timeout_s, "timeout", 1, 86400, "300", "Seconds for the whole test."),
};
#undef S
const size_t smoke_n_specs = sizeof smoke_specs / sizeof smoke_specs[0];

struct smoke {
    struct smoke_options o;
    char url[900], model[512];
    uint64_t deadline_ns;
    struct strbuf answer; /* body of the last call that was not a stream */
    /* reads a streamed answer */
    struct sse_reader sse;
    uint32_t n_pieces;
    bool is_done, has_finish;
    char detail[256]; /* detail in the printed line of a check that passed */
};

/* Makes one check. Returns STATUS_AGAIN when a retry may pass. Any other failure is final. */
typedef enum status check_fn(struct smoke *k, struct error *err);

static uint32_t call_ms(const struct smoke *k)
{
    uint64_t now = clock_mono_ns();
    uint64_t left = k->deadline_ns > now ? (k->deadline_ns - now) / NS_PER_MS : 1;
    return left < CALL_MAX_MS ? (uint32_t)left + 1 : CALL_MAX_MS;
}

static bool on_bytes(void *ctx, struct str piece)
{
    struct smoke *k = ctx;
    if (k->n_pieces == 0 && !k->is_done)
        strbuf_append_str(&k->answer, piece); /* the body of an error is not a stream */
    return sse_reader_feed(&k->sse, piece);
}

static void on_data(void *ctx, struct str data)
{
    struct smoke *k = ctx;
    if (str_eq_c(data, "[DONE]")) {
        k->is_done = true;
        return;
    }
    json_t *j = json_loadb(data.ptr, data.len, 0, NULL);
    const json_t *choice = json_array_get(json_object_get(j, "choices"), 0);
    k->n_pieces += choice != NULL;
    k->has_finish |= json_is_string(json_object_get(choice, "finish_reason"));
    json_decref(j);
}

/* Converts an HTTP status to a result. 5xx, 408 and 429 are temporary; any other status except
 * 200 is a final failure. */
static enum status judge(const struct smoke *k, const char *path, int code, struct error *err)
{
    if (code == 200)
        return STATUS_OK;
    json_t *j = json_loadb(k->answer.ptr ? k->answer.ptr : "", k->answer.len, 0, NULL);
    const char *why = json_string_value(json_object_get(json_object_get(j, "error"), "message"));
    enum status s = code >= 500 || code == 408 || code == 429 ? STATUS_AGAIN : STATUS_DENIED;
    s = error_set(err, s, "%s answered with status %d%s%s%s", path, code, why ? ": " : "",
                  why ? why : "", code == 401 ? " (set COX_API_KEY to a valid key)" : "");
    json_decref(j);
    return s;
}

static enum status ask(struct smoke *k, const char *path, const json_t *body, bool stream,
                       int *code, struct error *err)
{
    char url[1024];
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    snprintf(url, sizeof url, "%s%s", k->url, path);
    struct http_call call = gateway_access_call(&k->o.gateway, url);
    if (text)
        call.body = str_from(text);
    call.timeout_ms = call_ms(k);
    call.on_data = stream ? on_bytes : NULL;
    call.ctx = k;
    strbuf_reset(&k->answer);
    enum status s = http_client_call(&call, code, &k->answer, err);
    free(text);
    if (s == STATUS_IO || s == STATUS_TIMEOUT)
        return err->status = STATUS_AGAIN;
    return s == STATUS_OK ? judge(k, path, *code, err) : s;
}

static enum status check_health(struct smoke *k, struct error *err)
{
    int code;
    k->detail[0] = '\0';
    return ask(k, "/health", NULL, false, &code, err);
}

static enum status check_models(struct smoke *k, struct error *err)
{
    int code;
    const char *want = k->o.model, *found = NULL;
    TRY(ask(k, "/v1/models", NULL, false, &code, err));
    json_t *j = json_loadb(k->answer.ptr ? k->answer.ptr : "", k->answer.len, 0, NULL);
    const json_t *data = json_object_get(j, "data");
    size_t n = json_array_size(data);
    for (size_t i = 0; i < n && !found; i++) {
        const char *id = json_string_value(json_object_get(json_array_get(data, i), "id"));
        found = id && (!want || strcmp(id, want) == 0) ? id : NULL;
    }
    enum status s = STATUS_OK;
    if (found)
        snprintf(k->model, sizeof k->model, "%s", found);
    else if (want) /* the gateway does not list the model; an adapter may still be loading */
        s = error_set(err, STATUS_AGAIN,
                      "/v1/models does not list the model \"%s\" among its %zu models. Check the "
                      "name, or wait until the model is loaded",
                      want, n);
    else
        s = error_set(err, STATUS_PROTOCOL, "/v1/models lists no model. See the gateway's log");
    snprintf(k->detail, sizeof k->detail, "%.200s", k->model);
    json_decref(j);
    return s;
}

static enum status check_completion(struct smoke *k, struct error *err)
{
    int code;
    json_t *body = json_pack("{s:s, s:s, s:i, s:i}", "model", k->model, "prompt", "Once upon",
                             "max_tokens", N_TOKENS, "temperature", 0);
    enum status s = ask(k, "/v1/completions", body, false, &code, err);
    json_decref(body);
    TRY(s);
    json_t *j = json_loadb(k->answer.ptr ? k->answer.ptr : "", k->answer.len, 0, NULL);
    const json_t *choice = json_array_get(json_object_get(j, "choices"), 0);
    json_int_t n =
        json_integer_value(json_object_get(json_object_get(j, "usage"), "completion_tokens"));
    if (!json_is_string(json_object_get(choice, "text")) || n < 1)
        s = error_set(err, STATUS_PROTOCOL,
                      "/v1/completions answered with status 200 but without a completion. See the "
                      "logs of the gateway and the workers");
    snprintf(k->detail, sizeof k->detail, "%d tokens", (int)n);
    json_decref(j);
    return s;
}

static enum status stream(struct smoke *k, const char *path, json_t *body, int *code,
                          struct error *err)
{
    sse_reader_init(&k->sse, on_data, k);
    k->n_pieces = 0;
    k->is_done = k->has_finish = false;
    enum status s = ask(k, path, body, true, code, err);
    sse_reader_fini(&k->sse);
    json_decref(body);
    if (s == STATUS_OK && !(k->n_pieces && k->has_finish && k->is_done))
        s = error_set(err, STATUS_AGAIN,
                      "%s: the stream ended after %u pieces, before the answer was complete. See "
                      "the logs of the gateway and the workers",
                      path, k->n_pieces);
    snprintf(k->detail, sizeof k->detail, "%s, %u pieces", path, k->n_pieces);
    return s;
}

/* Checks a stream. It is a chat, as most clients use it, or a completion when the model has no
 * chat template. */
static enum status check_stream(struct smoke *k, struct error *err)
{
    int code;
    json_t *chat = json_pack("{s:s, s:[{s:s, s:s}], s:i, s:i, s:b}", "model", k->model, "messages",
                             "role", "user", "content", "Say yes.", "max_tokens", N_TOKENS,
                             "temperature", 0, "stream", 1);
    enum status s = stream(k, "/v1/chat/completions", chat, &code, err);
    if (s == STATUS_OK || code != 400)
        return s;
    json_t *plain = json_pack("{s:s, s:s, s:i, s:i, s:b}", "model", k->model, "prompt", "Once upon",
                              "max_tokens", N_TOKENS, "temperature", 0, "stream", 1);
    return stream(k, "/v1/completions", plain, &code, err);
}

static enum status check(struct smoke *k, const char *name, check_fn *fn)
{
    struct error err = {0};
    const uint64_t begin = clock_mono_ns();
    enum status s;
    while ((s = fn(k, &err)) == STATUS_AGAIN &&
           clock_mono_ns() + (uint64_t)PAUSE_MS * NS_PER_MS < k->deadline_ns)
        usleep(PAUSE_MS * 1000);
    double seconds = (double)(clock_mono_ns() - begin) / (double)NS_PER_S;
    if (s == STATUS_OK)
        printf("ok      %-10s %.1f s%s%s\n", name, seconds, k->detail[0] ? ", " : "", k->detail);
    else
        printf("failed  %-10s %.1f s, %s\n", name, seconds, err.text);
    fflush(stdout);
    return s;
}

/* Reads the gateway's URL. A slash or /v1 at its end is removed, since a pasted base URL may end
 * with one. */
static bool read_url(struct smoke *k)
{
    size_t n = strlen(k->o.gateway.url);
    while (n > 0 && k->o.gateway.url[n - 1] == '/')
        n--;
    if (n > 3 && strncmp(k->o.gateway.url + n - 3, "/v1", 3) == 0)
        n -= 3;
    return n < sizeof k->url && snprintf(k->url, sizeof k->url, "%.*s", (int)n, k->o.gateway.url);
}

static int run(struct smoke *k)
{
    static const struct {
        const char *name;
        check_fn *fn;
    } checks[] = {{"health", check_health},
                  {"models", check_models},
                  {"completion", check_completion},
                  {"stream", check_stream}};
    if (!read_url(k)) {
        fputs("cox smoke: --url is too long for a URL of this command\n", stderr);
        return EXIT_USAGE;
    }
    k->deadline_ns = clock_mono_ns() + (uint64_t)k->o.timeout_s * NS_PER_S;
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        if (check(k, checks[i].name, checks[i].fn) != STATUS_OK)
            return EXIT_FAILED; /* the later checks depend on this check */
    return EXIT_FINE;
}

int cmd_smoke(int argc, char **argv)
{
    struct smoke k = {0};
    struct config_result res;
    int code;
    const struct command_line line = {
        .usage = "cox smoke [OPTION...]", .specs = smoke_specs, .n_specs = smoke_n_specs};
    if (command_parse(&line, argc, argv, &k.o, &res, &code)) {
        strbuf_init(&k.answer, BODY_LIMIT);
        code = run(&k);
        strbuf_fini(&k.answer);
    }
    config_fini(&res);
    return code;
}
