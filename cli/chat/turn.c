/* Streams one answer of a gateway, for `cox chat` and `cox complete`.
 * `chat_turn_find` requests the model list from /v1/models. `chat_turn_run` sends the messages
 * or the prompt, reads the stream through sse_reader.h, prints text as it arrives, and collects
 * it in `answer`.
 * Invariants: one thread calls these functions. SIGINT sets a flag that ends the transfer. The
 * text received until then stays valid. A body that is not a stream goes to `raw`, which has a
 * limit. `struct chat_turn` owns its buffers until `chat_turn_fini`. */
#include "cli/chat/turn.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/http/client/client.h"

enum { SILENCE_MS = 120000, MODELS_TIMEOUT_MS = 10000, BODY_LIMIT = 16 << 20 };

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signum)
{
    (void)signum;
    interrupted = 1;
}

void chat_turn_catch_interrupts(void)
{
    struct sigaction sa = {.sa_handler = on_interrupt};
    (void)sigaction(SIGINT, &sa, NULL);
}

bool chat_turn_is_interrupted(void)
{
    return interrupted;
}

/* ---- the answer ---- */

static void end_reasoning(struct chat_turn *t)
{
    if (t->in_reasoning)
        fputs("\033[0m\n\n", stdout);
    t->in_reasoning = false;
}

static void on_reasoning(struct chat_turn *t, const char *piece)
{
    if (!piece || !piece[0])
        return;
    if (t->first_ns == 0)
        t->first_ns = clock_mono_ns();
    if (!t->is_dim)
        return;
    if (!t->in_reasoning)
        fputs("\033[2m", stdout);
    t->in_reasoning = true;
    fputs(piece, stdout);
    fflush(stdout);
}

static void on_text(struct chat_turn *t, const char *piece)
{
    if (!piece || !piece[0])
        return;
    if (t->first_ns == 0)
        t->first_ns = clock_mono_ns();
    strbuf_append_c(&t->answer, piece);
    if (!t->prints)
        return;
    end_reasoning(t);
    fputs(piece, stdout);
    fflush(stdout);
}

static void read_usage(struct chat_turn *t, const json_t *usage)
{
    const json_t *n = json_object_get(usage, "completion_tokens"),
                 *prompt = json_object_get(usage, "prompt_tokens");
    if (json_is_integer(n))
        t->n_tokens = json_integer_value(n);
    if (json_is_integer(prompt))
        t->n_prompt = json_integer_value(prompt);
}

static void on_data(void *ctx, struct str data)
{
    struct chat_turn *t = ctx;
    t->is_stream = true;
    if (str_eq_c(data, "[DONE]"))
        return;
    json_t *j = json_loadb(data.ptr, data.len, 0, NULL);
    const json_t *choice = json_array_get(json_object_get(j, "choices"), 0),
                 *delta = json_object_get(choice, "delta");
    const char *error = json_string_value(json_object_get(json_object_get(j, "error"), "message")),
               *reason = json_string_value(json_object_get(choice, "finish_reason"));
    const json_t *reasoning = json_object_get(delta, "reasoning_content");
    on_reasoning(t, json_string_value(reasoning ? reasoning : json_object_get(delta, "reasoning")));
    on_text(t, json_string_value(t->is_completion ? json_object_get(choice, "text")
                                                  : json_object_get(delta, "content")));
    if (choice)
        t->last_ns = clock_mono_ns();
    if (reason)
        snprintf(t->finish_reason, sizeof t->finish_reason, "%s", reason);
    read_usage(t, json_object_get(j, "usage"));
    if (error) {
        end_reasoning(t);
        fprintf(stderr, "%scox %s: %s\n", t->prints ? "\n" : "", t->name, error);
        t->failed = true;
    }
    json_decref(j);
}

static bool on_bytes(void *ctx, struct str piece)
{
    struct chat_turn *t = ctx;
    if (!t->is_stream)
        strbuf_append_str(&t->raw, piece);
    return sse_reader_feed(&t->sse, piece) && !interrupted;
}

void chat_turn_init(struct chat_turn *t, const struct chat_options *o, const char *name)
{
    *t = (struct chat_turn){.o = o, .name = name, .prints = true};
    strbuf_init(&t->answer, 0);
    strbuf_init(&t->raw, BODY_LIMIT);
    sse_reader_init(&t->sse, on_data, t);
}

void chat_turn_fini(struct chat_turn *t)
{
    sse_reader_fini(&t->sse);
    strbuf_fini(&t->raw);
    strbuf_fini(&t->answer);
}

/* ---- the request ---- */

static json_t *make_body(const struct chat_turn *t, const json_t *messages, const char *prompt)
{
    const struct chat_options *o = t->o;
    json_t *body = json_object();
    json_object_set_new(body, "model", json_string(t->model));
    json_object_set_new(body, "stream", json_true());
    json_object_set_new(body, "stream_options", json_pack("{s:b}", "include_usage", 1));
    if (prompt)
        json_object_set_new(body, "prompt", json_string(prompt));
    else
        json_object_set(body, "messages", (json_t *)messages);
    if (o->max_tokens > 0)
        json_object_set_new(body, "max_tokens", json_integer(o->max_tokens));
    if (o->temperature >= 0)
        json_object_set_new(body, "temperature", json_real(o->temperature));
    if (o->top_p >= 0)
        json_object_set_new(body, "top_p", json_real(o->top_p));
    if (o->seed >= 0)
        json_object_set_new(body, "seed", json_integer(o->seed));
    return body;
}

/* Returns true for the error text with which Coxswain's gateway or vLLM reports that the model
 * has no chat template. */
static bool says_no_template(const char *message)
{
    return strstr(message, "no chat template") || strstr(message, "must provide a chat template");
}

static void take_failure(struct chat_turn *t, int code)
{
    json_t *j = json_loadb(t->raw.ptr ? t->raw.ptr : "", t->raw.len, 0, NULL);
    const char *message =
        json_string_value(json_object_get(json_object_get(j, "error"), "message"));
    t->is_base_model = !t->is_completion && code == 400 && message && says_no_template(message);
    if (!t->is_base_model)
        fprintf(stderr, "cox %s: the gateway answered with status %d: %s\n", t->name, code,
                message ? message : "the answer has no error text");
    json_decref(j);
}

static void begin(struct chat_turn *t)
{
    strbuf_reset(&t->answer);
    strbuf_reset(&t->raw);
    /* the line may contain part of an error's body, or of a stream that was cut */
    strbuf_reset(&t->sse.line);
    t->is_stream = t->failed = t->in_reasoning = t->is_base_model = false;
    t->finish_reason[0] = '\0';
    t->n_tokens = t->n_prompt = -1;
    t->first_ns = t->last_ns = 0;
    t->begin_ns = clock_mono_ns();
    interrupted = 0;
}

bool chat_turn_run(struct chat_turn *t, const json_t *messages, const char *prompt)
{
    char url[1024];
    struct error err = {0};
    int code = 0;
    snprintf(url, sizeof url, "%s/v1/%s", t->url, prompt ? "completions" : "chat/completions");
    t->is_completion = prompt != NULL;
    json_t *body = make_body(t, messages, prompt);
    char *text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    begin(t);
    struct http_call call = gateway_access_call(&t->o->gateway, url);
    call.method = "POST";
    call.body = str_from(text);
    call.timeout_ms = SILENCE_MS;
    call.on_data = on_bytes;
    call.ctx = t;
    enum status s =
        text ? http_client_call(&call, &code, NULL, &err)
             : error_set(&err, STATUS_INVALID,
                         "the message was not sent: it is not UTF-8. Set the terminal to UTF-8");
    free(text);
    end_reasoning(t);
    if (!interrupted && s != STATUS_OK)
        fprintf(stderr, "cox %s: %s\n", t->name, err.text);
    else if (!interrupted && code != 200)
        take_failure(t, code);
    return interrupted || (s == STATUS_OK && code == 200 && !t->failed);
}

void chat_turn_describe(const struct chat_turn *t, char *out, size_t size)
{
    double first = (double)(t->first_ns - t->begin_ns) / 1e9,
           rest = (double)(t->last_ns - t->first_ns) / 1e9;
    out[0] = '\0';
    if (t->first_ns == 0)
        return;
    if (t->n_tokens > 1 && rest > 0)
        snprintf(out, size, "%lld tokens, %.1f tokens/s, the first after %.2f s",
                 (long long)t->n_tokens, (double)(t->n_tokens - 1) / rest, first);
    else
        snprintf(out, size, "the first token after %.2f s", first);
}

/* ---- the gateway and its model ---- */

/* Returns the name of the i-th model in an answer of /v1/models; NULL = the answer has no i-th
 * model. */
static const char *model_at(const json_t *answer, size_t i)
{
    const json_t *data = json_object_get(answer, "data");
    return json_string_value(json_object_get(json_array_get(data, i), "id"));
}

/* Reads the gateway's URL. A slash or /v1 at its end is removed, since a pasted base URL may end
 * with one. */
static enum status read_url(struct chat_turn *t, struct error *err)
{
    const char *url = t->o->gateway.url;
    size_t n = strlen(url);
    while (n > 0 && url[n - 1] == '/')
        n--;
    if (n > 3 && strncmp(url + n - 3, "/v1", 3) == 0)
        n -= 3;
    if (n >= sizeof t->url)
        return error_set(err, STATUS_INVALID, "--url is too long. Give a shorter URL");
    snprintf(t->url, sizeof t->url, "%.*s", (int)n, url);
    return STATUS_OK;
}

/* Requests the model list from /v1/models. On success the list has at least one model. */
static enum status ask_models(struct chat_turn *t, json_t **owned, struct error *err)
{
    char url[1024];
    struct strbuf text;
    int code = 0;
    snprintf(url, sizeof url, "%s/v1/models", t->url);
    strbuf_init(&text, BODY_LIMIT);
    struct http_call call = gateway_access_call(&t->o->gateway, url);
    call.timeout_ms = MODELS_TIMEOUT_MS;
    enum status s = http_client_call(&call, &code, &text, err);
    json_t *j = s == STATUS_OK ? json_loadb(text.ptr ? text.ptr : "", text.len, 0, NULL) : NULL;
    const char *why = json_string_value(json_object_get(json_object_get(j, "error"), "message"));
    if (s == STATUS_OK && code == 401)
        s = error_set(err, STATUS_DENIED,
                      "%s requires an API key: set COX_API_KEY or give --api-key KEY", url);
    else if (s == STATUS_OK && !model_at(j, 0))
        s = error_set(err, STATUS_PROTOCOL,
                      "cannot choose a model: %s answered with status %d and lists no model%s%s",
                      url, code, why ? ": " : "", why ? why : "");
    strbuf_fini(&text);
    *owned = s == STATUS_OK ? j : NULL;
    if (s != STATUS_OK)
        json_decref(j);
    return s;
}

enum status chat_turn_find(struct chat_turn *t, struct error *err)
{
    json_t *models;
    TRY(read_url(t, err));
    if (t->o->model) {
        snprintf(t->model, sizeof t->model, "%s", t->o->model);
        return STATUS_OK;
    }
    TRY(ask_models(t, &models, err));
    snprintf(t->model, sizeof t->model, "%s", model_at(models, 0));
    const json_t *first = json_array_get(json_object_get(models, "data"), 0);
    const char *root = json_string_value(json_object_get(first, "root"));
    t->demo = root ? demo_model_find(root) : NULL;
    json_decref(models);
    return STATUS_OK;
}

enum status chat_turn_check_model(struct chat_turn *t, const char *model, struct error *err)
{
    char names[300] = "";
    const char *id;
    json_t *models;
    bool is_there = false;
    TRY(ask_models(t, &models, err));
    for (size_t i = 0, n = 0; !is_there && (id = model_at(models, i)); i++) {
        is_there = strcmp(id, model) == 0;
        if (n < sizeof names) /* names that do not fit are cut off */
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i > 0 ? ", " : "", id);
    }
    json_decref(models);
    return is_there ? STATUS_OK
                    : error_set(err, STATUS_NOT_FOUND,
                                "the model \"%.200s\" is not served here. The gateway serves: %s.",
                                model, names);
}
